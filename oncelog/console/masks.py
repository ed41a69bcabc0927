"""Masks: parts of records that the console never shows, searches or sends to a browser.

Place in the flow: `records` masks each record before any filter sees it, so that a search cannot
probe a hidden value. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from oncelog.errors import ConfigError
from oncelog.types import Record

HIDDEN = "***"
FORM = "TOPIC:value, TOPIC:key, TOPIC:header=NAME or TOPIC:json=PATH, as in pay-*:json=card.number"
Change = Callable[[Record], Record]


@dataclass(frozen=True, slots=True)
class Mask:
    """A part of the records of topics with a name like a pattern."""

    topics: str
    part: str  # value, key, header or json
    name: str = ""  # of the header, or the path


def parse_mask(given: str) -> Mask:
    """Parse TOPIC:PART. Raises ConfigError."""
    topics, _, rest = given.partition(":")
    part, found, name = rest.partition("=")
    whole = part in ("value", "key") and not found
    if not topics or not (whole or (part in ("header", "json") and name)):
        raise ConfigError(f"mask: {given[:80]!r} is not {FORM}", "mask")
    if part == "json" and not all(name.split(".")):
        text = f"its path {name[:80]!r} has an empty part, so it hides nothing"
        raise ConfigError(f"mask: {given[:80]!r}: {text}; write names with one dot between", "mask")
    return Mask(topics, part, name)


class Masks:
    """All masks of a console."""

    def __init__(self, masks: Sequence[Mask] = ()) -> None:
        self._masks = masks

    def of_topic(self, topic: str) -> Change | None:
        """Return the change of the topic's records; None: nothing is hidden."""
        found = [one for one in self._masks if fnmatchcase(topic, one.topics)]
        if not found:
            return None
        parts = {one.part for one in found}
        headers = {one.name for one in found if one.part == "header"}
        paths = [one.name.split(".") for one in found if one.part == "json"]

        def masked(record: Record) -> Record:
            value, key = record.value, record.key
            if "value" in parts:
                value = _length(value)
            elif paths and value is not None:
                value = _without(value, paths)
            if "key" in parts:
                key = _length(key)
            shown = [
                (name, HIDDEN.encode() if name in headers else text)
                for name, text in record.headers
            ]
            return record._replace(value=value, key=key, headers=shown)

        return masked


def _length(data: bytes | None) -> bytes | None:
    return None if data is None else f"masked: {len(data)} bytes".encode()


def _without(value: bytes, paths: Sequence[Sequence[str]]) -> bytes | None:
    """Return JSON with hidden parts, written anew.

    Other values, and those that are nested too deep to hide a part, show their length only.
    """
    try:
        found = json.loads(value)
        for path in paths:
            found = _hide(found, path)
        shown = json.dumps(found, ensure_ascii=False)
    except (ValueError, RecursionError):
        return _length(value)
    return shown.encode("utf-8", errors="backslashreplace")


def _hide(found: Any, path: Sequence[str]) -> Any:
    """Hide a path; in a list it is hidden in each element.

    A value in place of an object on the path may be the secret in another form, so it is hidden.
    """
    if isinstance(found, list) and path:
        return [_hide(one, path) for one in found]
    if not path or not isinstance(found, dict | None):
        return HIDDEN
    if found is not None and path[0] in found:
        return {**found, path[0]: _hide(found[path[0]], path[1:])}
    return found


__all__ = ["Mask", "Masks", "parse_mask"]
