"""Metadata of Kafka's transactions: names, their epochs and times, the rest of aborted ones."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.metadata.producer_names import MAX_KAFKA_EPOCH, NameState
from cluster.transactions.types import Holder
from cluster.v1 import metadata_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb
from tests.unit.metadata.test_transactions import ask, do, state
from tests.unit.small_node import Node

TIMEOUT = 3000


@pytest.fixture
def node() -> Node:
    node = Node()
    node.register(1, 2, 3)
    do(node, finalize_upgrade=pb.FinalizeUpgrade(version=3, features=["kafka", "transactions"]))
    placements = [pb.Placement(replicas=[1, 2, 3])] * 2
    do(node, create_topic=pb.CreateTopic(name="t", placements=placements))
    return node


def lease(node: Node, nonce: int, timeout_ms: int = TIMEOUT, **more: Any) -> Holder:
    command = pb.LeaseName(name="k", nonce=nonce, transaction_timeout_ms=timeout_ms, **more)
    result = do(node, lease_name=command)
    assert not result.error, result
    return Holder(result.producer_id, result.epoch)


def begin(node: Node, holder: Holder, nonce: int) -> pb.MetadataResult:
    command = tpb.BeginTransaction(
        producer_name="k", producer_id=holder.producer_id, epoch=holder.epoch, nonce=nonce,
        groups=[16], kafka=True,
    )  # fmt: skip
    return ask(node, begin=command)


def abort(node: Node, number: int, holder: Holder | None) -> pb.MetadataResult:
    command = tpb.AbortTransaction(transaction_id=number, reason="expired")
    if holder is not None:
        command = tpb.AbortTransaction(
            transaction_id=number, producer_id=holder.producer_id, epoch=holder.epoch,
            reason="owner", kafka=True,
        )  # fmt: skip
    return ask(node, abort=command)


def test_the_times_are_those_of_the_lease(node: Node) -> None:
    holder = lease(node, 1)
    record = begin(node, holder, 1).transaction
    assert (record.idle_ms, record.total_ms) == (TIMEOUT, TIMEOUT)
    saved = node.metadata.dump()
    node.metadata.load(saved, 99)
    assert node.metadata.dump() == saved
    name = node.metadata.name("k")
    assert name is not None and name.transaction_timeout_ms == TIMEOUT


def test_nothing_of_it_before_the_upgrade() -> None:
    node = Node()
    command = pb.LeaseName(name="k", nonce=1, transaction_timeout_ms=TIMEOUT)
    assert do(node, lease_name=command).error == "NOT_SUPPORTED"


def test_nothing_begins_behind_an_abort_of_another(node: Node) -> None:
    """Until the holder aborts it, too, or leases again."""
    holder = lease(node, 1)
    begin(node, holder, 1)
    abort(node, 1, None)
    assert begin(node, holder, 2).error == "TRANSACTION_ABORTED"
    assert state(node, 1)[1] == "expired"
    assert abort(node, 1, holder).transaction_id == 1
    assert state(node, 1)[1] == "owner"
    assert begin(node, holder, 2).transaction.transaction_id == 2
    abort(node, 2, None)
    assert begin(node, lease(node, 2), 1).transaction.transaction_id == 3


def test_the_result_names_the_last_one_of_the_owner(node: Node) -> None:
    holder = lease(node, 1)
    begin(node, holder, 1)
    assert abort(node, 1, holder).transaction_id == 1
    begin(node, holder, 2)
    assert abort(node, 1, holder).transaction_id == 2


def at_epoch(node: Node, epoch: int, timeout_ms: int) -> None:
    """The name has that epoch, as after many leases."""
    names = node.metadata.tables.names
    known = names.get("k")
    assert known is not None
    names._put(
        NameState("k", known.producer_id, epoch, known.last_lease_ms, False, 9, 0, timeout_ms)
    )


def test_epochs_of_kafka_end_at_16_bits(node: Node) -> None:
    first = lease(node, 1)
    at_epoch(node, MAX_KAFKA_EPOCH - 1, TIMEOUT)
    last = lease(node, 2)
    assert last == (first.producer_id, MAX_KAFKA_EPOCH)
    fresh = lease(node, 3, held_producer_id=last.producer_id, held_epoch=last.epoch)
    assert fresh.producer_id > last.producer_id and fresh.epoch == 0
    assert lease(node, 3) == fresh, "a repeat"


def test_epochs_of_others_go_on(node: Node) -> None:
    first = lease(node, 1, timeout_ms=0)
    at_epoch(node, MAX_KAFKA_EPOCH, 0)
    assert lease(node, 2, timeout_ms=0) == (first.producer_id, MAX_KAFKA_EPOCH + 1)
    fresh = lease(node, 3)
    assert fresh.producer_id > first.producer_id and fresh.epoch == 0


def test_a_name_in_use_does_not_expire(node: Node) -> None:
    """Its client leases it once. Each transaction counts."""
    holder = lease(node, 1)
    expiry = node.metadata.name_expiry_ms
    for nonce in range(1, 4):
        node.now_ms += expiry - 1
        number = begin(node, holder, nonce).transaction.transaction_id
        assert number == nonce
        abort(node, number, holder)
    node.now_ms += expiry
    do(node)
    node.now_ms += 1
    lease_of_another = pb.LeaseName(name="q", nonce=1)
    do(node, lease_name=lease_of_another)
    assert begin(node, holder, 4).error == "FENCED"
