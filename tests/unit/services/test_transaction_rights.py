"""Rights to a transaction that a request names by its number."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.security.caller import CALLER, Caller
from cluster.security.permissions import Authorizer, Rule
from cluster.services.transactions.permissions import TransactionRights
from cluster.services.transactions.service import TransactionService
from oncelog.errors import NotAuthorizedError, OncelogError
from oncelog.v1 import transaction_pb2
from tests.unit.metadata.test_transactions import ask, begin, node
from tests.unit.small_node import Node

__all__ = ["node"]

NOBODY: Any = None


def rights(node: Node, *rules: Rule) -> TransactionRights:
    CALLER.set(Caller("bob"))
    return TransactionRights(node, Authorizer(lambda: rules))


async def test_the_name_of_its_own_producer_counts(node: Node) -> None:
    number = begin(node).transaction.transaction_id
    await rights(node, Rule("bob", "producer", "p", ("write",))).check("write", number)
    for rule in (
        Rule("bob", "producer", "q", ("write",)),
        Rule("bob", "producer", "p", ("describe",)),
        Rule("bob", "sink", "p", ("write",)),
    ):
        with pytest.raises(NotAuthorizedError) as raised:
            await rights(node, rule).check("write", number)
        assert "'p'" not in raised.value.message, "whose it is, is not told"
    await TransactionRights(node, None).check("write", number)


async def test_what_was_never_begun_needs_a_right_on_all(node: Node) -> None:
    """The transaction may begin before the call about it is decided."""
    number = begin(node).transaction.transaction_id + 1
    with pytest.raises(NotAuthorizedError):
        await rights(node, Rule("bob", "producer", "p", ("write",))).check("write", number)
    await rights(node, Rule("bob", "producer", "*", ("write",))).check("write", number)


async def test_a_number_that_is_made_up_waits_for_the_newest_metadata_once(node: Node) -> None:
    """Each wait is a command of the metadata, with an fsync."""
    asks = rights(node, Rule("bob", "producer", "*", ("describe",)))
    service = TransactionService(node, NOBODY, asks, now_ms=lambda: node.now_ms)
    request = transaction_pb2.DescribeTransactionRequest(transaction_id=1 << 40)
    proposed = node.proposed
    with pytest.raises(OncelogError, match="not known"):
        await service.DescribeTransaction(request)
    assert node.proposed == proposed + 1


async def test_what_is_forgotten_is_free(node: Node) -> None:
    number = begin(node).transaction.transaction_id
    ask(node, abort={"transaction_id": number, "reason": "operator"})
    begin(node, 2)
    assert node.metadata.coordinator.is_forgotten(number)
    proposed = node.proposed
    await rights(node).check("write", number)
    service = TransactionService(node, NOBODY, rights(node), now_ms=lambda: node.now_ms)
    request = transaction_pb2.DescribeTransactionRequest(transaction_id=number)
    with pytest.raises(OncelogError, match="not any more"):
        await service.DescribeTransaction(request)
    assert node.proposed == proposed, "no node knows more of it"


async def test_transactions_of_one_call_cost_one_command(node: Node) -> None:
    """Before, one that a caller without rights made up cost one each: 10,000 in a call."""
    numbers = list[int]()
    for nonce in (1, 2, 3):
        numbers.append(begin(node, nonce).transaction.transaction_id)
        ask(node, abort={"transaction_id": numbers[-1], "reason": "operator"})
    begin(node, 4)
    coordinator, proposed = node.metadata.coordinator, node.proposed
    assert all(map(coordinator.is_forgotten, numbers))
    await rights(node).check("write", *numbers)
    assert node.proposed == proposed
    with pytest.raises(NotAuthorizedError, match=f"transaction {numbers[-1] + 2}"):
        await rights(node).check("write", *numbers, numbers[-1] + 2, numbers[-1] + 3)
