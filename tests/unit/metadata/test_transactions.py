"""The coordinator as a part of the metadata: rights to begin, effects of leases and deletions."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.metadata.state import MetadataState
from cluster.v1 import metadata_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb
from tests.unit.small_node import Node


@pytest.fixture
def node() -> Node:
    """With a topic of two partitions, groups 16 and 17, and the name "p"."""
    node = Node()
    node.register(1, 2, 3)
    do(node, finalize_upgrade=pb.FinalizeUpgrade(version=2, features=["transactions"]))
    placements = [pb.Placement(replicas=[1, 2, 3])] * 2
    do(node, create_topic=pb.CreateTopic(name="t", placements=placements))
    lease(node)
    return node


def do(node: Node, **command: Any) -> pb.MetadataResult:
    return node.apply(pb.MetadataCommand(**command))


def lease(node: Node, nonce: int = 1, **more: Any) -> tuple[int, int]:
    result = do(node, lease_name=pb.LeaseName(name="p", nonce=nonce, **more))
    return result.producer_id, result.epoch


def ask(node: Node, **command: Any) -> pb.MetadataResult:
    return do(node, transaction=tpb.TransactionCommand(**command))


def begin(node: Node, nonce: int = 1, epoch: int = 0, name: str = "p") -> pb.MetadataResult:
    held = node.metadata.name("p")
    assert held is not None
    command = tpb.BeginTransaction(
        producer_name=name, producer_id=held.producer_id, epoch=epoch, nonce=nonce,
        idle_ms=1000, total_ms=2000,
    )  # fmt: skip
    return ask(node, begin=command)


def register(node: Node, number: int, *groups: int) -> pb.MetadataResult:
    held = node.metadata.name("p")
    assert held is not None
    command = tpb.RegisterTransaction(
        transaction_id=number, producer_id=held.producer_id, epoch=held.epoch, groups=groups
    )
    return ask(node, register=command)


def state(node: Node, number: int) -> tuple[str, str]:
    row = node.metadata.coordinator.get(number)
    assert row is not None
    return row.state.name, row.reason


def test_partitions_are_registered_as_it_begins(node: Node) -> None:
    held = node.metadata.name("p")
    assert held is not None
    command = tpb.BeginTransaction(
        producer_name="p", producer_id=held.producer_id, nonce=1, idle_ms=1000, total_ms=2000,
        groups=[17, 99, 16],
    )  # fmt: skip
    assert ask(node, begin=command).transaction.transaction_id == 1
    row = node.metadata.coordinator.get(1)
    assert row is not None and list(row.parts) == [16, 17], "what is not there is left out"
    ask(node, begin=command)
    assert list(row.parts) == [16, 17]


def test_only_the_holder_of_the_name_begins(node: Node) -> None:
    assert begin(node, epoch=1).error == "FENCED"
    assert begin(node, name="q").error == "FENCED"
    assert begin(node).transaction.transaction_id == 1
    assert begin(node).transaction.transaction_id == 1, "a repeat"
    assert begin(node, 2).error == "TRANSACTION_OPEN"


def commit_and_begin(node: Node, number: int, nonce: int) -> pb.MetadataResult:
    held = node.metadata.name("p")
    assert held is not None
    row = node.metadata.coordinator.get(number)
    assert row is not None
    commit = tpb.CommitTransaction(
        transaction_id=number,
        producer_id=held.producer_id,
        epoch=held.epoch,
        checked=len(row.parts),
    )
    commit.next.CopyFrom(tpb.BeginTransaction(nonce=nonce, idle_ms=1000, total_ms=2000))
    commit.next.groups.extend((17, 99))
    return ask(node, commit=commit)


def test_a_commit_begins_the_next_one(node: Node) -> None:
    begin(node)
    for _ in range(2):  # its answer was lost
        result = commit_and_begin(node, 1, 2)
        assert result.next_transaction.transaction_id == 2
        assert result.next_transaction.idle_ms == 1000
    row = node.metadata.coordinator.get(2)
    assert row is not None and list(row.parts) == [17]
    assert state(node, 1) == ("COMMITTED", "") and state(node, 2) == ("OPEN", "")
    saved = node.metadata.dump()
    node.metadata.load(saved, 99)
    assert commit_and_begin(node, 1, 2).next_transaction.transaction_id == 2, "after a restart"
    assert commit_and_begin(node, 2, 3).next_transaction.transaction_id == 3
    assert node.metadata.coordinator.get(1) is None


def test_a_commit_stands_where_the_next_one_cannot_begin(node: Node) -> None:
    begin(node, 5)
    result = commit_and_begin(node, 1, 4)
    assert not result.error and not result.HasField("next_transaction")
    assert state(node, 1) == ("COMMITTED", "")


def test_nothing_happens_while_the_feature_is_off() -> None:
    node = Node()
    node.register(1)
    lease(node)
    assert begin(node).error == "NOT_SUPPORTED"
    assert node.metadata.coordinator.is_new
    assert b"coordinator" not in node.metadata.dump()


@pytest.mark.parametrize("fence_only", [False, True])
def test_a_lease_or_a_fence_aborts_what_is_open(node: Node, fence_only: bool) -> None:
    begin(node)
    register(node, 1, 16)
    lease(node, 2, fence_only=fence_only)
    assert state(node, 1) == ("ABORTING", "fenced")
    assert register(node, 1, 17).error == "TRANSACTION_ABORTED"


def test_unknown_partitions_are_refused(node: Node) -> None:
    begin(node)
    assert register(node, 1, 16, 99).error == "UNKNOWN_TOPIC_OR_PARTITION"
    row = node.metadata.coordinator.get(1)
    assert row is not None and not row.parts


def test_a_deleted_topic_ends_it(node: Node) -> None:
    begin(node)
    register(node, 1, 16)
    do(node, delete_topic=pb.DeleteTopic(name="t"))
    result = ask(node, commit=tpb.CommitTransaction(transaction_id=1, checked=1))
    assert not result.error
    assert state(node, 1) == ("ABORTED", "topic gone")


def test_a_snapshot_has_the_transactions(node: Node) -> None:
    begin(node)
    register(node, 1, 16, 17)
    other = MetadataState()
    other.load(node.metadata.dump(), node.metadata.applied_index)
    assert other.dump() == node.metadata.dump()
    whole = pb.MetadataSnapshot.FromString(other.dump())
    assert whole.SerializeToString(deterministic=True) == other.dump(), "its pieces are one message"
    row = other.coordinator.get(1)
    assert row is not None and list(row.parts) == [16, 17]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ({"begin": {"idle_ms": 5000, "total_ms": 2000}}, "INVALID_REQUEST"),
        ({"abort": {"transaction_id": 9}}, "UNKNOWN_TRANSACTION"),
        ({"commit": {"transaction_id": 1, "checked": 3}}, "CHECK_AGAIN"),
        ({}, "NOT_SUPPORTED"),
    ],
)
def test_what_is_refused_has_a_reason(node: Node, command: Any, reason: str) -> None:
    begin(node)
    held = node.metadata.name("p")
    assert held is not None
    if "begin" in command:
        ask(node, abort={"transaction_id": 1})
        command["begin"] |= {"producer_name": "p", "producer_id": held.producer_id, "nonce": 2}
    assert ask(node, **command).error == reason


@pytest.mark.parametrize("order", [(16, 17), (17, 16)])
def test_a_repeated_commit_names_its_runs_in_any_order(node: Node, order: tuple[int, int]) -> None:
    held = node.metadata.name("p")
    assert held is not None

    def commit(groups: tuple[int, ...], records: int = 2) -> str:
        runs = [
            tpb.ExpectedRun(group_id=group, producer_id=held.producer_id, records=records)
            for group in groups
        ]
        command = tpb.CommitTransaction(
            transaction_id=1, producer_id=held.producer_id, expected=runs, checked=2
        )
        return ask(node, commit=command).error

    begin(node)
    register(node, 1, 16, 17)
    assert commit((16, 17)) == ""
    assert commit(order) == ""
    assert commit(order, records=3) == commit(order[:1]) == commit((16, 16)) == "COMMIT_DIFFERS"


def test_a_forgotten_name_takes_its_transactions_along(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names come and go by the thousand; the coordinator keeps none that the metadata forgot."""
    begin(node)
    register(node, 1, 16)
    monkeypatch.setattr(node.metadata.tables.names, "_limit", 1)
    node.now_ms += 2 * node.metadata.name_expiry_ms
    for number in range(2, 9):
        name = f"q{number}"
        held = do(node, lease_name=pb.LeaseName(name=name, nonce=1))
        assert not held.error
        command = tpb.BeginTransaction(
            producer_name=name, producer_id=held.producer_id, nonce=1, idle_ms=1000, total_ms=2000
        )
        assert ask(node, begin=command).transaction.transaction_id == number
        node.now_ms += 2 * node.metadata.name_expiry_ms
    assert [row.owner for row in node.metadata.coordinator.unfinished()] == ["p", "q8"]
    assert state(node, 1) == ("ABORTING", "fenced"), "its partition waits for the marker"
    saved = node.metadata.dump()
    node.metadata.load(saved, 99)
    assert node.metadata.dump() == saved
