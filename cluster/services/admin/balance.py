"""BalanceCluster, and the progress of moving partitions: bytes copied, and why a move waits.

START, CANCEL --ChangeBalance--> metadata --> node/balancing.py
DESCRIBE, PLAN <-- this node's copy of the metadata, the sizes of each node's replicas
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from cluster.errors import ClusterError
from cluster.features import REPLICA_CHANGES
from cluster.metadata.balance import plan
from cluster.metadata.topics import PartitionState, Rejected, invalid
from cluster.services.admin import node_changes
from cluster.services.context import NodeContext
from cluster.services.errors import accepted
from cluster.services.requests import timeout_s
from cluster.services.slices import in_slices
from cluster.v1 import metadata_pb2 as meta
from oncelog.errors import OncelogError
from oncelog.v1 import cluster_pb2 as pb

log = logging.getLogger(__name__)

MAX_SHOWN = 1000  # moves in one answer
MAX_PROPOSED = 50  # at a time
ATTEMPTS = 3

Held = Mapping[int, Mapping[int, int]]  # node -> group -> bytes


async def answer(node: NodeContext, action: int) -> pb.BalanceClusterResponse:
    """Answer the request. Raises Rejected, and the errors of a proposal."""
    node.metadata.features.require(REPLICA_CHANGES)
    if action == pb.BALANCE_ACTION_PLAN:
        return await _planned(node)
    if action in (pb.BALANCE_ACTION_START, pb.BALANCE_ACTION_CANCEL):
        change = meta.ChangeBalance(balancing=action == pb.BALANCE_ACTION_START)
        command = meta.MetadataCommand(change_balance=change)
        accepted(await node.propose_metadata(command, timeout_s(0, node)))
        if action == pb.BALANCE_ACTION_CANCEL:
            await _take_back(node)
    elif action != pb.BALANCE_ACTION_DESCRIBE:
        raise invalid("action", f"{action} is not supported by this release")
    return await _described(node)


async def copied(node: NodeContext) -> dict[int, tuple[int, int]]:
    """Map each node to (total bytes, bytes so far) of the partitions that move to it."""
    held = await node.sizes.ask()
    found: dict[int, tuple[int, int]] = {}
    async for _, record in in_slices(node_changes.partitions(node)):
        for one in node_changes.coming_of(record):
            size, there = _progress(held, record, [one])
            before = found.get(one, (0, 0))
            found[one] = (before[0] + size, before[1] + there)
    return found


async def _planned(node: NodeContext) -> pb.BalanceClusterResponse:
    held = await node.sizes.ask()
    sizes = largest(held)
    names: dict[int, str] = {}
    records: list[PartitionState] = []
    async for name, record in in_slices(node_changes.partitions(node)):
        names[record.group_id] = name
        records.append(record)
    view = node.metadata.membership
    nodes = [one for one in view.holders() if node.alive(one)]
    # It may take a second with very many partitions.
    moves = await asyncio.to_thread(plan, records, nodes, sizes, MAX_SHOWN, view.spread)
    shown = []
    for record, target in moves:
        come = {*target} - {*record.replicas}
        size = len(come) * sizes.get(record.group_id, 0)
        shown.append(_move(names[record.group_id], record, target, (size, 0), ""))
    return _response(node, shown)


async def _described(node: NodeContext) -> pb.BalanceClusterResponse:
    held = await node.sizes.ask()
    moves = []
    async for name, record in in_slices(node_changes.partitions(node)):
        if record.target:
            come = sorted(node_changes.coming_of(record))
            why = node_changes.why(node, name, record, come[0] if come else 0)
            moves.append(_move(name, record, record.target, _progress(held, record, come), why))
    return _response(node, moves)


def _response(node: NodeContext, moves: Sequence[pb.PartitionMove]) -> pb.BalanceClusterResponse:
    return pb.BalanceClusterResponse(
        balancing=node.metadata.membership.balancing,
        moves=moves[:MAX_SHOWN],
        count=len(moves),
        bytes=sum(move.bytes for move in moves),
        copied=sum(move.copied for move in moves),
        waits_for=[
            f"node {one} does not answer: nothing is moved to it or from it"
            for one in sorted(node.metadata.membership.holders())
            if not node.alive(one)
        ],
    )


async def _take_back(node: NodeContext) -> None:
    """Cancel the balance's unfinished moves; finished moves stay."""
    for _ in range(ATTEMPTS):  # a step may be reported meanwhile
        begun = [record for _, record in node_changes.partitions(node) if record.before_balance]
        for first in range(0, len(begun), MAX_PROPOSED):
            some = begun[first : first + MAX_PROPOSED]
            await asyncio.gather(*(_take_one_back(node, record) for record in some))


async def _take_one_back(node: NodeContext, record: PartitionState) -> None:
    move = meta.SetReplicas(
        group_id=record.group_id,
        replicas=record.before_balance,
        expected_version=record.version,
    )
    command = meta.MetadataCommand(set_replicas=move)
    try:
        accepted(await node.propose_metadata(command, timeout_s(0, node)))
    except (ClusterError, OncelogError, Rejected) as error:
        log.info("group %d was not taken back: %s", record.group_id, error)


def _progress(held: Held, record: PartitionState, come: Sequence[int]) -> tuple[int, int]:
    """Return (total bytes, bytes so far) of the partition at the nodes it moves to."""
    group = record.group_id
    whole = max((sizes.get(group, 0) for sizes in held.values()), default=0)
    there = sum(min(whole, held.get(one, {}).get(group, 0)) for one in come)
    return whole * len(come), there


def _move(
    name: str, record: PartitionState, target: Sequence[int], progress: tuple[int, int], why: str
) -> pb.PartitionMove:
    topic, _, number = name.rpartition("-")
    return pb.PartitionMove(
        topic=topic,
        partition=int(number),
        replicas=record.replicas,
        target=target,
        bytes=progress[0],
        copied=progress[1],
        waits_for=why,
    )


def largest(held: Held) -> dict[int, int]:
    """Map each group to the bytes of its fullest replica."""
    groups = {group for sizes in held.values() for group in sizes}
    return {group: max(sizes.get(group, 0) for sizes in held.values()) for group in groups}
