"""The metadata state machine: each command's rules, events, snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.features import COMPACTION, KAFKA, PLACES, Finalized
from cluster.metadata.places import NodePlace
from cluster.metadata.state import (
    FIRST_PARTITION_GROUP_ID,
    LayoutChanged,
    MetadataCorruptError,
    MetadataState,
    TopicAltered,
)
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import MAX_PARTITIONS, MAX_TOPICS, TopicSettings
from cluster.v1 import metadata_pb2 as pb
from oncelog.v1.cluster_pb2 import (
    CLEANUP_POLICY_COMPACT,
    CLEANUP_POLICY_DELETE,
    TOPIC_FORMATS_BOTH,
    TOPIC_FORMATS_COLUMNAR,
    TOPIC_FORMATS_KAFKA,
    ExpectedOffsets,
    TopicConfig,
)

DAY_MS = 86_400_000


class Log:
    """Feeds commands to a state, as the metadata group does."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self.index = 0
        self.now_ms = 1_000

    def apply(self, command: pb.MetadataCommand) -> pb.MetadataResult:
        self.index += 1
        command.stamp_ms = self.now_ms
        return pb.MetadataResult.FromString(
            self.state.apply(self.index, command.SerializeToString())
        )

    def register(self, node_id: int, address: str = "h:1") -> pb.MetadataResult:
        return self.apply(
            pb.MetadataCommand(register_node=pb.RegisterNode(node_id=node_id, address=address))
        )

    def create(self, name: str, placements=((1, 2, 3),), **config) -> pb.MetadataResult:
        return self.apply(
            pb.MetadataCommand(
                create_topic=pb.CreateTopic(
                    name=name,
                    placements=[pb.Placement(replicas=nodes) for nodes in placements],
                    config=TopicConfig(**config),
                )
            )
        )

    def delete(self, name: str) -> pb.MetadataResult:
        return self.apply(pb.MetadataCommand(delete_topic=pb.DeleteTopic(name=name)))

    def alter(self, name: str, set_expected_offsets=False, **config) -> pb.MetadataResult:
        return self.apply(
            pb.MetadataCommand(
                alter_topic=pb.AlterTopic(
                    name=name,
                    config=TopicConfig(**config),
                    set_expected_offsets=set_expected_offsets,
                )
            )
        )

    def allocate(self, count=100, node_id=1) -> pb.MetadataResult:
        return self.apply(
            pb.MetadataCommand(
                allocate_producer_ids=pb.AllocateProducerIds(node_id=node_id, count=count)
            )
        )

    def rejected(self, result: pb.MetadataResult, before: bytes) -> str:
        assert result.error
        assert self.state.dump() == before, "a rejected command changes nothing"
        assert self.state.take_events() == []
        return f"{result.error} {result.message}"


@pytest.fixture
def log() -> Log:
    log = Log()
    for node_id in (1, 2, 3):
        assert not log.register(node_id, f"host{node_id}:1").error
    log.state.take_events()
    return log


def test_a_new_state_is_empty():
    state = MetadataState()
    assert dict(state.nodes) == {}
    assert state.topics() == []
    assert state.names() == []
    assert state.next_producer_id == 1
    assert not state.is_issued(1)


def test_register_node_reports_changes_only(log):
    log.register(4, "a:1")
    log.register(4, "a:1")
    log.register(4, "b:1")
    assert log.state.take_events() == [LayoutChanged(), LayoutChanged()]
    assert log.state.nodes[4] == "b:1"


def test_the_address_for_kafkas_clients_is_registered_once_all_nodes_know_of_it(log):
    command = pb.MetadataCommand(
        register_node=pb.RegisterNode(node_id=4, address="a:1", kafka_address="a:9")
    )
    before = log.state.dump()
    assert "kafka_address" in log.rejected(log.apply(command), before)
    log.state.tables.finalized = Finalized(3, frozenset({KAFKA}))
    log.apply(command)
    assert log.state.membership.kafka == {4: "a:9"}
    copy = MetadataState()
    copy.load(log.state.dump())
    assert copy.membership.kafka == {4: "a:9"}
    log.register(4, "a:1")
    assert not log.state.membership.kafka, "a node that no longer serves them"


def test_labels_are_registered_once_all_nodes_know_of_them(log):
    node = pb.RegisterNode(node_id=4, address="a:1", rack="r", machine="m")
    command, before = pb.MetadataCommand(register_node=node), log.state.dump()
    assert "rack: needs the feature 'places'" in log.rejected(log.apply(command), before)
    log.state.tables.finalized = Finalized(3, frozenset({PLACES}))
    log.apply(command)
    log.apply(command)
    assert log.state.take_events() == [LayoutChanged()]
    assert log.state.membership.places == {4: NodePlace("r", "m")}
    copy, before = MetadataState(), log.state.dump()
    copy.load(before)
    assert copy.membership.places == {4: NodePlace("r", "m")} and copy.dump() == before
    command.register_node.machine = "m" * 65
    assert "machine: must have ..64 char" in log.rejected(log.apply(command), before)
    log.register(4, "a:1")
    assert not log.state.membership.places, "a node that lost its labels"


@pytest.mark.parametrize(
    ("node_id", "address", "field"),
    [(0, "a:1", "node_id"), (-1, "a:1", "node_id"), (4, "", "address"), (4, "x" * 256, "address")],
)
def test_bad_nodes_are_rejected(log, node_id, address, field):
    before = log.state.dump()
    text = log.rejected(log.register(node_id, address), before)
    assert text.startswith(f"INVALID_REQUEST {field}: ")


def test_the_number_of_nodes_is_limited(log):
    for node_id in range(4, 65):
        assert not log.register(node_id).error
    log.state.take_events()
    before = log.state.dump()
    assert "64 nodes" in log.rejected(log.register(65), before)
    assert not log.register(64, "moved:1").error


def test_formats_need_their_feature_and_can_only_grow(log):
    def fresh() -> bytes:
        log.state.take_events()
        dump: bytes = log.state.dump()
        return dump

    before = fresh()
    for formats in (TOPIC_FORMATS_KAFKA, TOPIC_FORMATS_BOTH):
        text = log.rejected(log.create("a", formats=formats), before)
        assert text.startswith("NOT_SUPPORTED formats: "), text
    assert not log.create("columnar", formats=TOPIC_FORMATS_COLUMNAR).error
    assert not log.alter("columnar", formats=TOPIC_FORMATS_COLUMNAR).error
    before = fresh()
    log.rejected(log.alter("columnar", formats=TOPIC_FORMATS_BOTH), before)
    # A state without the setting has the bytes of a release before it.
    assert not log.state.topic("columnar").config.HasField("formats")
    log.state.tables.finalized = Finalized(3, frozenset({KAFKA}))
    assert not log.create("kafka", formats=TOPIC_FORMATS_KAFKA).error
    before = fresh()
    wrong: Any = (("kafka", 0), ("columnar", 1), ("kafka", 3))
    for name, formats in wrong:
        assert "INVALID_REQUEST formats: " in log.rejected(log.alter(name, formats=formats), before)
    for name in ("kafka", "columnar"):
        assert not log.alter(name, formats=TOPIC_FORMATS_BOTH).error
        assert log.state.topic(name).config.formats == TOPIC_FORMATS_BOTH
        before = fresh()
        assert "formats" in log.rejected(log.alter(name, formats=TOPIC_FORMATS_COLUMNAR), before)
    other = MetadataState()
    other.load(log.state.dump())
    assert other.dump() == log.state.dump()
    loaded = other.topic("kafka")
    assert loaded is not None and loaded.settings.formats == TOPIC_FORMATS_BOTH


def test_compaction_needs_its_feature(log):
    compact: Any = {"cleanup_policy": CLEANUP_POLICY_COMPACT}
    log.state.take_events()
    before: Any = log.state.dump()
    for config in (compact, {"delete_retention_ms": 1}, {"min_cleanable_dirty_ratio": 0.1}):
        text = log.rejected(log.create("a", **config), before)
        assert text.startswith("NOT_SUPPORTED cleanup_policy: "), text
    assert not log.create("plain", cleanup_policy=CLEANUP_POLICY_DELETE).error
    # A state without the settings has the bytes of a release before them.
    assert not log.state.topic("plain").config.HasField("cleanup_policy")
    log.state.take_events()
    log.rejected(log.alter("plain", **compact), log.state.dump())
    log.state.tables.finalized = Finalized(3, frozenset({COMPACTION}))
    assert not log.alter("plain", **compact, min_compaction_lag_ms=5).error
    assert not log.create("b", cleanup_policy=2, max_compaction_lag_ms=7).error
    other = MetadataState()
    other.load(log.state.dump())
    assert other.dump() == log.state.dump()
    assert [topic.settings for topic in reversed(other.topics())] == [
        TopicSettings(cleanup_policy=1, min_compaction_lag_ms=5),
        TopicSettings(cleanup_policy=2, max_compaction_lag_ms=7),
    ]
    assert not log.alter("b", cleanup_policy=CLEANUP_POLICY_DELETE, max_compaction_lag_ms=-1).error
    assert log.state.topic("b").settings == TopicSettings()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"cleanup_policy": 3}, "cleanup_policy: 3 must be 0 (delete), 1 (compact) or 2"),
        ({"min_compaction_lag_ms": -1}, "min_compaction_lag_ms: -1 must be 0.."),
        ({"max_compaction_lag_ms": 0}, "max_compaction_lag_ms: 0 must be 1.."),
        (
            {"min_compaction_lag_ms": 9, "max_compaction_lag_ms": 8},
            "max_compaction_lag_ms: 8 must be at least min_compaction_lag_ms, 9",
        ),
        ({"delete_retention_ms": -1}, "delete_retention_ms: -1 must be 0.."),
        ({"min_cleanable_dirty_ratio": 1.01}, "min_cleanable_dirty_ratio: 1.01 must be 0..1"),
        ({"min_cleanable_dirty_ratio": float("nan")}, "min_cleanable_dirty_ratio: nan must be"),
    ],
)
def test_settings_of_compaction_have_limits(log, config, text):
    log.state.tables.finalized = Finalized(3, frozenset({COMPACTION}))
    before = log.state.dump()
    assert text in log.rejected(log.create("a", **config), before)


def test_create_topic_fills_in_the_defaults(log):
    log.now_ms = 5_000
    result = log.create("orders", [(1, 2, 3), (2, 3, 1)])
    assert not result.error
    assert result.stamp_ms == 5_000
    assert result.applied_index == log.index
    topic = log.state.topic("orders")
    assert log.state.take_events() == [LayoutChanged()]
    assert (topic.topic_id, topic.created_ms) == (1, 5_000)
    assert [p.replicas for p in topic.partitions] == [(1, 2, 3), (2, 3, 1)]
    assert [p.group_id for p in topic.partitions] == [
        FIRST_PARTITION_GROUP_ID,
        FIRST_PARTITION_GROUP_ID + 1,
    ]
    assert topic.config == TopicConfig(
        retention_ms=7 * DAY_MS,
        retention_bytes=-1,
        max_batch_bytes=4 * 2**20,
        expected_offsets=ExpectedOffsets.EXPECTED_OFFSETS_CHECKED,
    )


def test_queries_by_group_partition_and_node(log):
    log.create("a", [(1,), (2,)])
    log.create("b", [(2,)])
    first = FIRST_PARTITION_GROUP_ID
    topic, number, partition = log.state.partition(first + 1)
    assert (topic.name, number, partition.replicas) == ("a", 1, (2,))
    assert log.state.partition(first + 3) is None
    assert log.state.group_of("b", 0) == first + 2
    assert log.state.group_of("a", 2) is None
    assert log.state.group_of("a", -1) is None
    assert log.state.group_of("c", 0) is None
    assert log.state.partition_count == 3


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "ä", "a/b", "a\n", "__internal", "x" * 250, "a:b"]
)
def test_bad_topic_names_are_rejected(log, name):
    before = log.state.dump()
    assert log.rejected(log.create(name), before).startswith("INVALID_REQUEST name: ")


@pytest.mark.parametrize("name", ["a", "x" * 249, "A.b_c-9", "_a", "...", "a__b"])
def test_good_topic_names(log, name):
    assert not log.create(name).error


@pytest.mark.parametrize(
    ("placements", "text"),
    [
        ([], "partitions: 0 must be 1..1000"),
        ([(1,)] * 1001, "partitions: 1001 must be 1..1000"),
        ([()], "replicas: 0 must be 1..9"),
        ([tuple(range(1, 11))], "replicas: 10 must be 1..9"),
        ([(1, 2), (1,)], "placements: partition 1 has 1 replicas, partition 0 has 2"),
        ([(1, 1)], "placements: partition 0 names a node twice"),
        ([(1, 2), (1, 4)], "placements: partition 1 names node 4"),
    ],
)
def test_bad_placements_are_rejected(log, placements, text):
    before = log.state.dump()
    assert text in log.rejected(log.create("a", placements), before)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"retention_ms": 0}, "retention_ms: 0 must be 1.."),
        ({"retention_ms": -2}, "retention_ms: -2 must be 1.."),
        ({"retention_ms": 2**62}, "retention_ms: "),
        ({"retention_bytes": 0}, "retention_bytes: 0 must be 1.."),
        ({"retention_bytes": -2}, "or -1 for no limit"),
        ({"max_batch_bytes": 1023}, "max_batch_bytes: 1023 must be 1024..67108864"),
        ({"max_batch_bytes": 64 * 2**20 + 1}, "max_batch_bytes: "),
        ({"max_batch_bytes": -1}, "max_batch_bytes: "),
        ({"expected_offsets": 3}, "expected_offsets: 3 must be 0 (checked)"),
    ],
)
def test_bad_configs_are_rejected_at_create_and_alter(log, config, text):
    before = log.state.dump()
    assert text in log.rejected(log.create("a", **config), before)
    log.create("a")
    log.state.take_events()
    before = log.state.dump()
    assert text in log.rejected(log.alter("a", set_expected_offsets=True, **config), before)


def test_a_topic_exists_once(log):
    log.create("a")
    log.state.take_events()
    before = log.state.dump()
    assert log.rejected(log.create("a", [(2,)]), before).startswith("TOPIC_ALREADY_EXISTS")


def test_deleted_topics_ids_are_not_used_again(log):
    log.create("a")
    old = log.state.topic("a")
    assert not log.delete("a").error
    assert log.state.topic("a") is None
    group = old.partitions[0].group_id
    assert log.state.partition(group) is None
    assert log.state.is_deleted(group)
    log.create("a")
    new = log.state.topic("a")
    next_one = new.partitions[0].group_id + 1
    assert not any(map(log.state.is_deleted, (METADATA_GROUP, next_one - 1, next_one)))
    assert new.topic_id > old.topic_id
    assert new.partitions[0].group_id > old.partitions[0].group_id
    assert log.state.take_events() == [LayoutChanged()] * 3


def test_unknown_topics_are_not_deleted_or_altered(log):
    before = log.state.dump()
    assert log.rejected(log.delete("a"), before).startswith("UNKNOWN_TOPIC_OR_PARTITION")
    assert log.rejected(log.alter("a"), before).startswith("UNKNOWN_TOPIC_OR_PARTITION")


def test_alter_changes_the_fields_that_are_set(log):
    log.create("a", retention_ms=7, expected_offsets=ExpectedOffsets.EXPECTED_OFFSETS_REQUIRED)
    log.state.take_events()
    log.alter("a", retention_bytes=10)
    config = log.state.topic("a").config
    assert (config.retention_ms, config.retention_bytes) == (7, 10)
    assert config.expected_offsets == ExpectedOffsets.EXPECTED_OFFSETS_REQUIRED
    log.alter("a", set_expected_offsets=True)
    assert log.state.topic("a").settings.expected_offsets == 0
    assert [type(event) for event in log.state.take_events()] == [TopicAltered, TopicAltered]
    log.alter("a", retention_bytes=10)
    assert log.state.take_events() == [], "nothing changed"


def test_topics_and_partitions_are_limited(log):
    for i in range(MAX_PARTITIONS // 1000):
        assert not log.create(f"t{i}", [(1,)] * 1000).error
    log.state.take_events()
    before = log.state.dump()
    text = log.rejected(log.create("more", [(1,)]), before)
    assert f"the cluster has {MAX_PARTITIONS}, its limit" in text
    log.delete("t0")
    for i in range(1000):
        assert not log.create(f"s{i}", [(1,)]).error
    for i in range(MAX_PARTITIONS // 1000 - 1):
        log.delete(f"t{i + 1}")
    for i in range(1000, MAX_TOPICS):
        assert not log.create(f"s{i}", [(1,)]).error
    log.state.take_events()
    before = log.state.dump()
    assert f"{MAX_TOPICS} topics" in log.rejected(log.create("more", [(1,)]), before)


def test_the_clock_is_the_highest_stamp_and_ignores_rejected_commands(log):
    log.now_ms = 9_000
    log.create("a")
    log.now_ms = 8_000
    assert log.create("b").stamp_ms == 9_000
    assert log.state.topic("b").created_ms == 9_000
    log.now_ms = 10_000
    assert log.create("b").stamp_ms == 9_000
    assert log.state.clock_ms == 9_000


def test_a_command_of_a_newer_version_is_rejected(log):
    before = log.state.dump()
    assert log.rejected(log.apply(pb.MetadataCommand()), before).startswith("NOT_SUPPORTED")


def test_bytes_that_are_no_command_stop_the_replica(log):
    with pytest.raises(MetadataCorruptError, match="index 99"):
        log.state.apply(99, b"\xff\xff\xff")


def test_entries_are_applied_once_and_in_order(log):
    with pytest.raises(AssertionError):
        log.state.apply(log.index, b"")


def test_snapshot_brings_everything_back(log):
    log.create("a", [(1, 2), (3, 1)], retention_ms=5)
    log.create("b", retention_bytes=1)
    log.delete("a")
    log.allocate()
    log.apply(pb.MetadataCommand(lease_name=pb.LeaseName(name="n", nonce=5)))
    data = log.state.dump()
    other = MetadataState()
    other.load(data, index=log.index)
    assert other.dump() == data
    assert other.applied_index == log.index
    assert other.topics() == log.state.topics()
    assert other.names() == log.state.names()
    assert other.nodes == log.state.nodes
    assert other.next_producer_id == 102


def test_load_reports_what_is_different(log):
    log.create("altered")
    log.create("remade")
    behind = MetadataState()
    behind.load(log.state.dump())
    assert behind.take_events() == [LayoutChanged()]
    behind.load(log.state.dump())
    assert behind.take_events() == []
    log.alter("altered", retention_ms=5)
    behind.load(log.state.dump())
    assert behind.take_events() == [TopicAltered(log.state.topic("altered"))]
    for change in (
        lambda: log.delete("remade"),
        lambda: log.create("remade"),
        lambda: (log.delete("remade"), log.create("remade")),
        lambda: log.register(2, "moved:1"),
    ):
        change()
        behind.load(log.state.dump())
        assert behind.take_events() == [LayoutChanged()]


def test_a_load_keeps_events_that_nobody_took(log):
    log.create("a")
    log.state.load(MetadataState().dump())
    assert log.state.take_events() == [LayoutChanged(), LayoutChanged()]
    assert log.state.dump() == MetadataState().dump()
    assert log.state.applied_index == 0


def _broken(change) -> bytes:
    log = Log()
    for node_id in (1, 2, 3):
        log.register(node_id)
    log.create("a")
    log.create("b")
    log.allocate(50)
    log.now_ms += DAY_MS // 2
    log.allocate(50)
    for name in ("n", "m"):
        log.now_ms += 1
        log.apply(pb.MetadataCommand(lease_name=pb.LeaseName(name=name)))
    snapshot = pb.MetadataSnapshot.FromString(log.state.dump())
    change(snapshot)
    return snapshot.SerializeToString()


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.nodes.append(s.nodes[0]),
        lambda s: setattr(s.topics[1], "name", "a"),
        lambda s: setattr(s.topics[1], "name", ""),
        lambda s: setattr(s.topics[1], "topic_id", 1),
        lambda s: setattr(s.topics[1].partitions[0], "group_id", FIRST_PARTITION_GROUP_ID),
        lambda s: s.topics[1].ClearField("partitions"),
        lambda s: s.topics[1].partitions[0].ClearField("replicas"),
        lambda s: setattr(s, "next_topic_id", 2),
        lambda s: setattr(s, "next_group_id", FIRST_PARTITION_GROUP_ID),
        lambda s: setattr(s, "next_producer_id", 0),
        lambda s: setattr(s, "next_producer_id", 52),
        lambda s: setattr(s.names[1], "name", s.names[0].name),
        lambda s: setattr(s.names[1], "producer_id", s.names[0].producer_id),
        lambda s: setattr(s.names[1], "last_lease_ms", 1),
        lambda s: setattr(s.blocks[1], "first_producer_id", 1),
        lambda s: setattr(s.blocks[1], "issued_ms", 0),
    ],
)
def test_a_snapshot_that_does_not_hold_together_is_refused(log, change):
    data = _broken(change)
    assert data != _broken(lambda s: None)
    before = log.state.dump()
    with pytest.raises(MetadataCorruptError, match="index 7"):
        log.state.load(data, index=7)
    assert log.state.dump() == before
    assert log.state.take_events() == []
    log.state.load(_broken(lambda s: None))


def test_bytes_that_are_no_snapshot_are_refused(log):
    with pytest.raises(MetadataCorruptError):
        log.state.load(b"\xff\xff\xff")
    with pytest.raises(MetadataCorruptError):
        log.state.load(b"")


def test_a_node_keeps_its_data_directory() -> None:
    """A node that comes back with another directory has forgotten its promises."""
    state = MetadataState()

    def register(index: int, directory_id: int) -> pb.MetadataResult:
        record = pb.RegisterNode(node_id=1, address="a:1", directory_id=directory_id)
        command = pb.MetadataCommand(register_node=record).SerializeToString()
        return pb.MetadataResult.FromString(state.apply(index, command))

    assert register(1, 77).error == ""
    before = state.dump()
    refused = register(2, 78)
    assert refused.error == "INVALID_REQUEST"
    assert "node 1 is registered with another data directory" in refused.message
    assert state.dump() == before
    assert register(3, 77).error == ""
    copy = MetadataState()
    copy.load(state.dump(), 3)
    assert copy.directory_of(1) == 77
    assert copy.directory_of(2) == 0
