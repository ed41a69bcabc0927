"""Values of topics' settings under Kafka's names."""

from __future__ import annotations

import pytest

from cluster.config.node_config import NodeConfig
from cluster.kafka import configs
from cluster.kafka.errors import InvalidConfigError
from cluster.metadata.topics import COMPACT, COMPACT_DELETE, KAFKA, TopicSettings


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes", "max.message.bytes"])
@pytest.mark.parametrize("value", [str(2**64), str(-(2**64)), "9" * 5000, "1.5", ""])
def test_a_value_out_of_range_is_an_error_of_the_setting(name: str, value: str) -> None:
    """Anything else ends the client's connection."""
    with pytest.raises(InvalidConfigError, match=f"^{name}: "):
        configs.created({name: value})


def values_of(settings: TopicSettings, *, keeps_compacted: bool = True) -> dict[str, str | None]:
    return {
        one.name: one.value for one in configs.described(settings, keeps_compacted=keeps_compacted)
    }


def settings_of(values: dict[str, str | None]) -> TopicSettings:
    config = configs.created(values, keeps_compacted=True)
    return TopicSettings().altered(config, set_expected_offsets=True)


@pytest.mark.parametrize("retention", [{}, {"retention.ms": "86400000"}])
def test_a_compacted_topic_keeps_all_and_says_so(retention: dict[str, str | None]) -> None:
    settings = settings_of({configs.CLEANUP: "compact", **retention})
    assert (settings.retention_ms, settings.retention_bytes) == (-1, -1)
    told = values_of(settings)
    assert (told["cleanup.policy"], told["retention.ms"]) == ("compact", "-1")


@pytest.mark.parametrize("policy", ["compact,delete", "delete, compact"])
def test_a_compacted_topic_with_an_age_is_deleted_by_age(policy: str) -> None:
    settings = settings_of({configs.CLEANUP: policy, "retention.ms": "86400000"})
    assert settings.retention_ms == 86_400_000
    assert values_of(settings)["cleanup.policy"] == "delete"


def test_other_topics_are_as_before() -> None:
    assert values_of(settings_of({configs.CLEANUP: "delete"}))["cleanup.policy"] == "delete"
    assert settings_of({"segment.bytes": "1000"}) == settings_of({})
    for policy in ("compact,other", "Compact", ""):
        with pytest.raises(InvalidConfigError, match=r"^cleanup\.policy: "):
            settings_of({configs.CLEANUP: policy})


COMPACTION = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "7",
    "max.compaction.lag.ms": "90",
    "min.cleanable.dirty.ratio": "0.25",
    "min.compaction.lag.ms": "6",
}


def test_a_node_compacts_topics_unless_it_is_told_to_keep_all() -> None:
    assert NodeConfig().kafka_compact != configs.KEEP
    config = configs.created({**COMPACTION, "segment.bytes": "1000", "retention.ms": "5"})
    settings = TopicSettings().altered(config, set_expected_offsets=True)
    assert settings == TopicSettings(
        retention_ms=5,
        formats=KAFKA,
        cleanup_policy=COMPACT,
        delete_retention_ms=7,
        max_compaction_lag_ms=90,
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=6,
    )
    assert values_of(settings, keeps_compacted=False).items() >= COMPACTION.items()


@pytest.mark.parametrize("policy", ["compact,delete", "delete, compact"])
def test_a_policy_may_have_both_words(policy: str) -> None:
    config = configs.created({configs.CLEANUP: policy})
    assert config.cleanup_policy == COMPACT_DELETE
    settings = TopicSettings().altered(config, set_expected_offsets=True)
    assert values_of(settings, keeps_compacted=False)["cleanup.policy"] == "compact,delete"


def test_no_limit_of_a_lag_is_kafkas_highest_number() -> None:
    told = values_of(TopicSettings(), keeps_compacted=False)
    assert told["max.compaction.lag.ms"] == str(2**63 - 1)
    config = configs.created({"max.compaction.lag.ms": str(2**63 - 1)})
    assert config.max_compaction_lag_ms == -1


@pytest.mark.parametrize("field", ["retention_ms", "retention_bytes"])
def test_a_retention_of_kafkas_highest_number_has_no_limit(field: str) -> None:
    """Debezium asks for it for the topic of a schema's history."""
    name = field.replace("_", ".")
    config = configs.created({name: str(2**63 - 1)})
    assert getattr(config, field) == -1
    settings = TopicSettings().altered(config, set_expected_offsets=True)
    assert values_of(settings, keeps_compacted=False)[name] == "-1"


def test_streams_creates_its_topics_that_are_not_compacted() -> None:
    config = configs.created(
        {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"}
    )
    assert (config.cleanup_policy, config.retention_ms) == (0, -1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("cleanup.policy", "purge"), ("min.cleanable.dirty.ratio", "half"), ("segment.bytes", "1000")],
)
def test_settings_of_compaction_are_refused_by_name(name: str, value: str) -> None:
    """Sizes of files mean nothing here; alone they are refused."""
    with pytest.raises(InvalidConfigError, match=f"^{name}: "):
        configs.created({name: value})
