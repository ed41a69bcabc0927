"""Effects of a topic's new settings: each setting that changes, and whether it can be undone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from oncelog import CleanupPolicy, ExpectedOffsets, TopicConfig, TopicFormats, TopicInfo
from oncelog.console.topic_tasks import config_of
from oncelog.views.changes import effects_of_settings
from oncelog.views.topics import settings_of

BEFORE = TopicConfig(60_000, -1, 4096, ExpectedOffsets.CHECKED, TopicFormats.COLUMNAR,
                     CleanupPolicy.DELETE)  # fmt: skip
EACH: dict[str, Any] = {
    "retention_ms": 5000, "retention_bytes": 7000, "max_batch_bytes": 2048,
    "expected_offsets": ExpectedOffsets.IGNORED, "formats": TopicFormats.BOTH,
    "cleanup_policy": CleanupPolicy.COMPACT, "min_compaction_lag_ms": 1,
    "max_compaction_lag_ms": 2, "delete_retention_ms": 3, "min_cleanable_dirty_ratio": 0.25,
}  # fmt: skip


def effects(**wanted: Any) -> tuple[list[str], bool]:
    return effects_of_settings(TopicInfo("t", 1, (), BEFORE, 0), TopicConfig(**wanted))


def test_each_setting_of_a_topic_has_effects_and_a_field_of_the_console() -> None:
    assert {field.name for field in dataclasses.fields(TopicConfig)} == {*EACH}
    for name, value in EACH.items():
        lines, _ = effects(**{name: value})
        assert lines[0].startswith(f"{name}: ") and lines[0].endswith(f" becomes {value}")
    whole = TopicConfig(**EACH)
    assert config_of({name: str(value) for name, value in settings_of(whole).items()}) == whole


@pytest.mark.parametrize(
    ("wanted", "undoable"),
    [
        ({"retention_ms": 70_000}, True),
        ({"retention_ms": -1}, True),
        ({"retention_ms": 50_000}, False),
        ({"retention_bytes": 10**12}, False),
        ({"max_batch_bytes": 2048}, True),
        ({"formats": TopicFormats.BOTH}, False),
        ({"cleanup_policy": CleanupPolicy.COMPACT_DELETE}, False),
    ],
)
def test_a_change_that_deletes_or_stays_cannot_be_undone(
    wanted: dict[str, Any], undoable: bool
) -> None:
    assert effects(**wanted)[1] is undoable


def test_the_same_value_changes_nothing() -> None:
    assert effects(retention_ms=60_000, cleanup_policy=CleanupPolicy.DELETE) == ([], True)
