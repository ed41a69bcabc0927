"""Settings by Kafka's dotted names, as they come from a file: {"linger.ms": "5"}.

Place in the flow: `from_config` of each client -> here -> the client's keyword arguments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from oncelog.config import ClientConfig
from oncelog.errors import ConfigError

# Kafka's names that differ from ours by more than dots for underscores.
_ALIASES = {
    "max.in.flight.requests.per.connection": "max_in_flight",
    "transactional.id": "producer_name",
    "reconnect.backoff.ms": "retry_backoff_ms",
    "reconnect.backoff.max.ms": "retry_backoff_max_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "max.poll.interval.ms": "processing_timeout_ms",
    "group.remote.assignor": "assignor",
}


def settings_from_dotted(
    config: type[ClientConfig], dotted: Mapping[str, object]
) -> dict[str, Any]:
    """Return the keyword arguments of a mapping such as {"linger.ms": "5"}.

    Values may be strings, as in a file. Raises ConfigError for an unknown key, a value that does
    not parse, and two keys for the same setting.
    """
    fields = {field.name: str(field.type) for field in dataclasses.fields(config)}
    settings: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for key, value in dotted.items():
        name = _ALIASES.get(key, key.replace(".", "_").replace("-", "_"))
        if name not in fields:
            raise ConfigError(f"{config._what()} has no setting {key!r}", key)
        if name in origin:
            raise ConfigError(
                f"{origin[name]!r} and {key!r} are the same setting", origin[name], key
            )
        origin[name] = key
        settings[name] = _parse(key, value, fields[name])
    return settings


def _parse(key: str, value: object, kind: str) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key} must be true or false, got {value!r}", key)
        return text.lower() == "true"
    if kind.startswith("int"):
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{key} must be an integer, got {value!r}", key) from None
    return text


__all__ = ["settings_from_dotted"]
