"""Replicas of the groups: the product's own machines, over a log that the simulation keeps.

Leadership, MetadataProposer --propose, confirm--> Seat --entry--> Group --apply--> machine
"""

from __future__ import annotations

from typing import Any, cast

from cluster.consensus.group import Group as RaftGroup
from cluster.dedup.verdict import Formats
from cluster.features import FEATURES, Features, Finalized
from cluster.metadata.machine import MetadataMachine
from cluster.metadata.state import MetadataState
from cluster.partition.replica import Partition
from cluster.partition.types import NodeView, Policy
from storage.offset_index import IndexEntry, OffsetIndex
from tests.sim.transactions.world import METADATA, Seat

LIFETIME_MS = 10**14
FINALIZED = Finalized(2, frozenset(FEATURES))


class NoRows(OffsetIndex):
    """An index without rows: this simulation reads the log's entries, never a batch."""

    def __init__(self) -> None:
        """Has no disk."""

    def put(self, *row: Any) -> None: ...
    def staged(self, transaction_id: int, producer_id: int) -> list[IndexEntry]:
        return []

    put_staged = delete_staged = drop_staged = put_run = put  # type: ignore[assignment]


def partition_of(seat: Seat) -> Partition:
    world = seat.of.world
    return Partition(
        f"t{seat.of.number}",
        0,
        NoRows(),
        Policy(lease_lifetime_ms=LIFETIME_MS, formats=Formats.BOTH),
        NodeView(
            lambda: world.wall_ms,
            lambda: None,
            lambda: False,
            lambda: True,
            Features(lambda: FINALIZED),
        ),
        lambda machine: cast(RaftGroup, seat),
    )


def metadata_of(seat: Seat) -> MetadataMachine:
    """Returns a replica of the metadata. Its partitions' groups are numbered from 1."""
    state = MetadataState(lease_lifetime_ms=LIFETIME_MS, name_expiry_ms=LIFETIME_MS)
    state.tables.finalized, state.tables.next_group_id = FINALIZED, METADATA + 1
    state.tables.nodes[1] = "127.0.0.1:1"

    def applied(index: int) -> None:
        leader = seat.of.leader
        if seat.is_leader and leader is not None:
            leader.transactions.changed()

    return MetadataMachine(state, applied)
