"""Settings of the cluster: they decide replicated facts and are equal on all nodes. Pure.

    NodeConfig of the first leader --FoundClusterSettings--> Tables.settings --> all nodes
    oncelog cluster config set     --SetClusterSetting---------'

The ranges decide whether a command in the log is accepted, so they change only together with a
feature. A new setting is a feature, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.metadata.topics import DAY_MS, MIB, invalid

LEASE_LIFETIME, NAME_EXPIRY = "lease_lifetime_ms", "producer_name_expiry_ms"
MAX_BATCH_BYTES = "max_batch_bytes"
LEARNER_RATE = "learner_bytes_per_s"
MAX_LEARNER_RATE = 1 << 40


@dataclass(frozen=True, slots=True)
class SettingRange:
    """Range of a setting. shrinks: it can only be lowered, as forgotten state stays forgotten."""

    low: int
    high: int
    shrinks: bool = False


# The same ranges as for the nodes' own settings in `cluster/config/node_config.py`.
SETTINGS: Mapping[str, SettingRange] = {
    LEASE_LIFETIME: SettingRange(1000, 30 * DAY_MS, shrinks=True),
    NAME_EXPIRY: SettingRange(1000, 365 * DAY_MS, shrinks=True),
    MAX_BATCH_BYTES: SettingRange(1024, 64 * MIB),
    LEARNER_RATE: SettingRange(0, MAX_LEARNER_RATE),
}


def founded(given: Mapping[str, int], lifetime_ms: int, expiry_ms: int) -> dict[str, int]:
    """Returns a cluster's first settings, with these two times in force. Raises Rejected."""
    if given.keys() != SETTINGS.keys():
        raise invalid("settings", f"{', '.join(given) or 'none'} must be {', '.join(SETTINGS)}")
    for name, value in given.items():
        _check_range(name, value)
    _check_together(given)
    times = {LEASE_LIFETIME: lifetime_ms, NAME_EXPIRY: expiry_ms}
    return {**given, **{name: min(given[name], value) for name, value in times.items()}}


def changed(settings: Mapping[str, int], name: str, value: int) -> dict[str, int]:
    """Returns the settings after one was set. Raises Rejected."""
    if name not in SETTINGS:
        raise invalid("name", f"{name!r} must be one of {', '.join(SETTINGS)}")
    _check_range(name, value)
    if SETTINGS[name].shrinks and value > settings[name]:
        raise invalid(
            name,
            f"{value} must be at most {settings[name]}, the value in force: ids and names that "
            f"were forgotten would count as valid again",
            f"..{settings[name]}",
        )
    after = {**settings, name: value}
    _check_together(after)
    return after


def differences(own: Mapping[str, int], settings: Mapping[str, int]) -> list[str]:
    """Describes differences between a node's own settings and the cluster's, for people."""
    return [
        f"{name}: this node's setting is {own[name]}, the cluster's is {settings[name]}"
        for name in sorted(own.keys() & settings.keys())
        if own[name] != settings[name]
    ]


def _check_range(name: str, value: int) -> None:
    known = SETTINGS[name]
    if not known.low <= value <= known.high:
        limit = f"{known.low}..{known.high}"
        raise invalid(name, f"{value} must be {limit}", limit)


def _check_together(settings: Mapping[str, int]) -> None:
    lifetime_ms, expiry_ms = settings[LEASE_LIFETIME], settings[NAME_EXPIRY]
    if expiry_ms < lifetime_ms:
        text = f"{expiry_ms} must be at least {LEASE_LIFETIME}, {lifetime_ms}"
        raise invalid(NAME_EXPIRY, text)
