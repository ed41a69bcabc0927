"""The gate: listed features, a release's part in them, obstacles to an upgrade."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from cluster import entries
from cluster.consensus.message import NODE_MESSAGES, Message
from cluster.errors import FeatureOffError
from cluster.features import (
    BEFORE_THE_GATE,
    CLUSTER_SETTINGS,
    CLUSTER_VERSIONS,
    COMMANDS,
    COMPACTION,
    ENTRIES,
    FEATURES,
    GROUPS,
    KAFKA,
    PERMISSIONS,
    PLACES,
    QUOTAS,
    REPLICA_CHANGES,
    THIS_RELEASE,
    TRANSACTIONS,
    Features,
    Finalized,
    Release,
    Versions,
)
from cluster.metadata.topics import as_known
from cluster.metadata.upgrade import plan
from cluster.transport.versions import MESSAGES, PROTOCOL, REQUESTS
from cluster.v1 import metadata_pb2, offsets_pb2, peer_pb2
from oncelog.v1.cluster_pb2 import TopicConfig

NOT_KINDS = {"VERSION", "HELD", "HEADER_BYTES", "KAFKA_V2"}
OLD = Release()
NEW = Release("2.0", Versions(1, 2), frozenset({"a", "b"}))


# --- new fields and features are listed ---------------------------------------------------

# The fields of replicated commands in version 1. A new field stops replicas that do not know it:
# list it with the feature or version that lets writers set it.
FIELDS_OF_VERSION_1 = """
    AllocateProducerIds: count node_id
    AlterTopic: config name set_expected_offsets
    CommitGroupOffsets: group offsets
    CreateLeaseSecret: secret
    CreateTopic: config name placements
    DeleteGroupOffsets: group
    DeleteTopic: name
    FinalizeUpgrade: features nodes version
    LeaseName: fence_only held_epoch held_producer_id name nonce
    MetadataCommand: allocate_producer_ids alter_topic create_lease_secret create_topic
        delete_topic finalize_upgrade lease_lifetime_ms lease_name producer_name_expiry_ms
        register_node stamp_ms
    NodeRelease: features newest_version node_id oldest_version release
    OffsetRecord: commit_ms epoch metadata offset partition producer_id sequence topic topic_id
    OffsetsCommand: commit delete stamp_ms
    Placement: replicas
    RegisterNode: address directory_id node_id
    TopicConfig: expected_offsets max_batch_bytes retention_bytes retention_ms
"""
# Feature, or version -> the fields that its writers may set, once it is on.
LATER_FIELDS: dict[str | int, str] = {
    CLUSTER_SETTINGS: """
        MetadataCommand: found_cluster_settings set_cluster_setting
        FoundClusterSettings: settings
        SetClusterSetting: setting
        ClusterSetting: name value
    """,
    GROUPS: """
        OffsetsCommand: change_owners claim_instance remove_member
        CommitGroupOffsets: member number ownerships
        ChangeOwners: changes epoch group terms
        ClaimInstance: expected group instance member
        GroupTerms: assignor processing_timeout_ms revoke_timeout_ms session_timeout_ms
        OwnerChange: expected member partition topic_id
        RemoveMember: group member
    """,
    REPLICA_CHANGES: """
        MetadataCommand: change_balance change_node join_node set_replicas report_replicas
            repair_replica add_partitions set_topic_replicas
        AddPartitions: expected_partitions name placements topic_id
        SetTopicReplicas: name topic_id partitions
        ChangeBalance: balancing expected_layout
        ChangeNode: accept_loss action directory_id node_id
        JoinNode: address addresses_only directory_id node_id peer_address
        RegisterNode: incarnation known_registration registration
        RepairReplica: group_id instance marked_ms node_id sound
        SetReplicas: group_id replicas expected_version for_balance
        ReportReplicas: group_id version index index_term voters learners instances
    """,
    TRANSACTIONS: """
        AbortTransaction: epoch producer_id reason transaction_id
        BeginTransaction: epoch groups idle_ms nonce producer_id producer_name total_ms
        BeginBatch: batch jobs query reset run sink ticket total_ms
        CommitTransaction: checked digest epoch expected next producer_id transaction_id
        ExpectedRun: bytes consumer_group group_id last_sequence max_timestamp_us producer_id
            records
        MarkedParts: parts transaction_id
        MarkersDone: transactions
        MetadataCommand: transaction
        OffsetsCommand: stage
        StageOffsets: group member number offsets ownerships transaction_id
        PartRecord: done gone group_id runs
        PublishedRun: base_offset epoch first_sequence last_sequence producer_id records
        RegisterTransaction: epoch groups producer_id transaction_id
        DrawTicket: jobs sink
        ResetSink: sink
        TransactionCommand: abort begin commit markers_done register
        TransactionCommand: begin_batch draw_ticket reset_sink
    """,
    COMPACTION: """
        TopicConfig: cleanup_policy delete_retention_ms max_compaction_lag_ms
            min_cleanable_dirty_ratio min_compaction_lag_ms
    """,
    KAFKA: """
        AbortTransaction: kafka
        BeginTransaction: kafka
        LeaseName: transaction_timeout_ms
        RegisterNode: kafka_address
        TopicConfig: formats
        OffsetsCommand: delete_offsets rebalance
        CommitGroupOffsets: classic
        StageOffsets: classic
        ClassicCaller: generation instance member
        ClassicGroup: generation group leader members protocol protocol_type
        ClassicMember: assignment client_host client_id instance member metadata
            rebalance_timeout_ms session_timeout_ms
        DeleteOffsets: group offsets
        OffsetKey: partition topic
    """,
    PERMISSIONS: """
        MetadataCommand: alter_permissions rules_version
        AlterPermissions: add remove
        PermissionRule: principal kind name prefix operations deny
    """,
    PLACES: """
        RegisterNode: machine rack
    """,
    QUOTAS: """
        MetadataCommand: alter_quotas
        AlterQuotas: remove set
        Quota: name principal value
        QuotaKey: name principal
    """,
}


def fields_of(descriptor: Any, found: set[str]) -> set[str]:
    """All fields of a message and of its nested messages, as "Message.field"."""
    for field in descriptor.fields:
        name = f"{descriptor.name}.{field.name}"
        if name not in found:
            found.add(name)
            if field.message_type is not None:
                fields_of(field.message_type, found)
    return found


def listed_fields() -> dict[str, str | int]:
    """Each listed field, as "Message.field", with its feature or version."""
    found, message = dict[str, str | int](), ""
    for since, text in ((1, FIELDS_OF_VERSION_1), *LATER_FIELDS.items()):
        for word in text.split():
            if word.endswith(":"):
                message = word[:-1]
            else:
                found[f"{message}.{word}"] = since
    return found


def test_every_kind_of_entry_is_listed() -> None:
    kinds = {
        value
        for name, value in vars(entries).items()
        if name.isupper() and not name.startswith("_") and name not in NOT_KINDS
    }
    assert kinds == set(ENTRIES)


def test_every_metadata_command_is_listed() -> None:
    command = metadata_pb2.MetadataCommand.DESCRIPTOR.oneofs_by_name["command"]
    assert {field.name for field in command.fields} == set(COMMANDS)


def test_every_field_of_a_replicated_command_is_listed() -> None:
    found = fields_of(metadata_pb2.MetadataCommand.DESCRIPTOR, set())
    fields_of(offsets_pb2.OffsetsCommand.DESCRIPTOR, found)
    assert found == listed_fields().keys(), "list the new, and ask the gate before they are set"


@pytest.mark.parametrize("off", sorted(FEATURES))
def test_a_clients_message_in_a_command_has_no_field_of_a_feature_that_is_off(off: str) -> None:
    """Commands take messages of clients as they are: topics' settings after `as_known`."""
    listed = listed_fields()
    full: dict[str, Any] = {field.name: 1 for field in TopicConfig.DESCRIPTOR.fields}
    known = as_known(
        TopicConfig(**full), Finalized(CLUSTER_VERSIONS.newest, frozenset(FEATURES) - {off})
    )
    names = {f"TopicConfig.{field.name}" for field, _ in known.ListFields()}
    of_topics = {name for name in listed if name.startswith("TopicConfig.")}
    assert names == {name for name in of_topics if listed[name] != off}
    for other, since in (("PermissionRule", PERMISSIONS), ("Quota", QUOTAS), ("QuotaKey", QUOTAS)):
        later = {listed[name] for name in listed if name.startswith(f"{other}.")}
        assert later == {since}, "fields of a later feature are to be taken out, too"


def test_every_message_between_nodes_is_listed() -> None:
    assert set(get_args(Message)) == set(MESSAGES) >= set(NODE_MESSAGES)
    assert len(peer_pb2.MessageType.values()) == len(MESSAGES) + 1, "and UNSPECIFIED"
    what = peer_pb2.Request.DESCRIPTOR.oneofs_by_name["what"]
    assert {field.name for field in what.fields} == set(REQUESTS)
    assert all(since in PROTOCOL for since in (*MESSAGES.values(), *REQUESTS.values()))


def test_what_is_listed_has_a_version() -> None:
    assert all(version in CLUSTER_VERSIONS for version in FEATURES.values())
    for since in (*ENTRIES.values(), *COMMANDS.values(), *LATER_FIELDS):
        assert since in FEATURES if isinstance(since, str) else since in CLUSTER_VERSIONS
    newest = Finalized(CLUSTER_VERSIONS.newest, frozenset(FEATURES))
    assert not THIS_RELEASE.lacks(newest)
    assert all(Features(lambda: newest).may_write(kind) for kind in ENTRIES)


# --- versions, releases -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [((3, 4), (3, 3), 3), ((3, 4), (4, 9), 4), ((3, 4), (5, 6), 0), ((1, 9), (2, 3), 3)],
)
def test_the_highest_common_version(one, other, common) -> None:
    assert Versions(*one).common(Versions(*other)) == common
    assert Versions(*other).common(Versions(*one)) == common


def test_what_a_release_lacks() -> None:
    assert not NEW.lacks(Finalized(2, frozenset({"a"})))
    assert NEW.lacks(Finalized(3)) == "release 2.0 takes part in versions 1 to 2, not in 3"
    assert NEW.lacks(Finalized(2, frozenset({"c", "a"}))) == "release 2.0 does not know c"
    assert OLD.lacks(Finalized(2)).startswith("a release from before cluster versions takes part")
    assert not OLD.lacks(Finalized())


def test_writers_ask_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEATURES, "a", 2)
    monkeypatch.setitem(ENTRIES, 0x7F, "a")
    monkeypatch.setitem(COMMANDS, "new", "a")
    agreed = Finalized()
    features = Features(lambda: agreed)
    assert not features.is_on("a") and not features.may_write(0x7F)
    assert features.may_write(entries.BATCH) and not features.may_write(0x7E), "unknown is not on"
    text = "feature 'a' comes with cluster version 2, and the upgrade from version 1"
    with pytest.raises(FeatureOffError, match=text):
        features.require("a")
    with pytest.raises(FeatureOffError, match="metadata command 'new' comes with"):
        features.require_command("new")
    features.require_command("register_node")
    agreed = Finalized(2)
    assert not features.may_write(0x7F), "a version without the feature"
    agreed = Finalized(2, frozenset({"a"}))
    assert features.is_on("a") and features.may_write(0x7F)
    features.require("a")
    features.require_command("new")


def test_without_a_cluster_nothing_is_on() -> None:
    assert Features().version == BEFORE_THE_GATE.newest
    assert not any(map(Features().is_on, FEATURES))


# --- plans --------------------------------------------------------------------------------


def test_an_upgrade_waits_for_every_node() -> None:
    assert not plan(Finalized(), {1: OLD, 2: OLD}).is_pending
    mixed = plan(Finalized(), {1: NEW, 2: OLD, 3: None})
    assert mixed.target == Finalized(2, frozenset({"a", "b"}))
    assert mixed.is_pending and not mixed.is_ready
    assert mixed.hindered == (
        "node 2: a release from before cluster versions takes part in versions 1 to 1, not in 2",
        "node 3 is unreachable: its release is not known",
    )
    assert plan(Finalized(), {1: NEW, 2: NEW}).is_ready


def test_a_feature_waits_for_every_node() -> None:
    """Two builds of one version: a feature that only one of them knows is not turned on."""
    less = Release("2.0-dev", Versions(1, 2), frozenset({"a"}))
    found = plan(Finalized(2, frozenset({"a"})), {1: NEW, 2: less})
    assert found.is_pending
    assert found.hindered == ("node 2: release 2.0-dev does not know b",)
    assert plan(Finalized(2, frozenset({"a"})), {1: NEW, 2: NEW}).is_ready


def test_nothing_is_pending_where_all_is_finalized() -> None:
    done = Finalized(2, frozenset({"a", "b"}))
    for nodes in ({1: NEW, 2: NEW}, {1: NEW, 2: None}, {}):
        found = plan(done, nodes)
        assert not found.is_pending and not found.hindered and found.target == done
