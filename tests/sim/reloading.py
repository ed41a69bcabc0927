"""Every state that a simulation reaches loads again, and gives the same bytes.

    a replica's state --its real loader--> a fresh machine --pieces--> must be equal

In the cluster's runs each state is loaded once, whichever replica reaches it first, at the
indexes where the checker compares replicas anyway. The pure simulations load each state, or
every EVERY-th where a command costs less than that.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.features import Release
from cluster.groups.classic_table import ClassicTable
from cluster.groups.ownership import GroupOwnership
from cluster.groups.table import OwnershipTable
from cluster.metadata.state import MetadataState
from cluster.partition.machine import PartitionMachine
from cluster.transactions.coordinator import Coordinator
from cluster.v1 import offsets_pb2
from storage.offset_index import OffsetIndex
from tests.sim.disk import Disk
from tests.sim.model import Violation

EVERY = 8


def check(saved: bytes, again: Callable[[bytes], bytes], what: str) -> None:
    """Raises Violation unless `again`, which loads and saves, gives the same bytes."""
    try:
        after = again(saved)
    except Exception as error:
        raise Violation(f"the state of {what} does not load: {error}") from error
    if after != saved:
        raise Violation(f"the state of {what} is another one after it was loaded")


def partition(saved: bytes) -> bytes:
    machine = PartitionMachine(OffsetIndex(Disk(), 16), capacity=1000, listeners=set())
    machine.restore(machine.load(saved))
    return b"".join(machine.pieces())


def metadata(release: Release) -> Callable[[bytes], bytes]:
    def again(saved: bytes) -> bytes:
        state = MetadataState(release=release)
        state.load(saved)
        return state.dump()

    return again


def coordinator(saved: bytes) -> bytes:
    made = Coordinator()
    made.load(saved)
    return b"".join(made.pieces())


def ownership(facts: GroupOwnership) -> None:
    """Raises Violation unless a group's facts are equal after they were saved and loaded."""
    table, loaded = OwnershipTable(), OwnershipTable()
    table._groups["g"] = facts
    records = list(table.records())
    loaded.load(records)
    if list(loaded.records()) != records or vars(loaded.of("g")) != vars(facts):
        raise Violation("the facts of a group are others after they were loaded")


def classic(table: ClassicTable) -> None:
    """Raises Violation unless classic groups are equal after they were saved and loaded."""
    records, loaded = list(table.records()), ClassicTable()
    loaded.load(map(offsets_pb2.ClassicGroup.FromString, records))
    if list(loaded.records()) != records:
        raise Violation("the classic groups are others after they were loaded")
