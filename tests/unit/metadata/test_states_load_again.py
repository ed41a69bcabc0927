"""Every state that commands can reach loads again, gives the same bytes, and goes on alike.

Random commands with small limits. Two copies of the state apply them: one lives on, the other
is saved and loaded after each command. Their answers and their bytes must stay equal.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cluster.features import COMMANDS
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import PartitionState
from cluster.partition.group_offsets import OffsetsTable
from cluster.partition.machine import PartitionMachine
from cluster.partition.types import Answer
from cluster.transactions.coordinator import Coordinator
from cluster.v1 import metadata_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb
from storage.offset_index import OffsetIndex
from tests.sim.disk import Disk
from tests.unit.metadata import metadata_walk
from tests.unit.partition import partition_walk

SEEDS, STEPS = range(8), 500
# A partition's verdicts, and the types of other answers.
ANSWERS = {
    "APPENDED", "STAGED", "FENCED", "OUT_OF_ORDER", "PRODUCER_EXPIRED", "TRANSACTION_ABORTED",
    "TRANSACTION_CONFLICT", "TRANSACTION_ENDED", "STAGED_DUPLICATE", "Marked", "CommitResult",
    "list", "bool", "str", "NoneType",
}  # fmt: skip


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for where, name, value in metadata_walk.SMALL_LIMITS:
        monkeypatch.setattr(where, name, value)
    defaults = {"max_open": 6, "max_behind": 30}
    monkeypatch.setattr(Coordinator.__init__, "__kwdefaults__", defaults)


def partitions_of(state: MetadataState) -> dict[int, PartitionState]:
    return {one.group_id: one for topic in state.topics() for one in topic.partitions}


def counted(state: MetadataState) -> list[Counter[Any]]:
    """Replicas on each node: counted as commands came, or at once by a load."""
    loads = state.tables.loads
    return [+loads.replicas, +loads.leaders, +loads.shared]


def walk_metadata(seed: int, done: Counter[str]) -> None:
    lives, loaded = MetadataState(), MetadataState()
    walk = metadata_walk.Walk(seed, lives)
    commands = walk.beginning()
    for index in range(1, STEPS):
        command = next(commands, None) or walk.next()
        parsed = pb.MetadataCommand.FromString(command)
        which = parsed.WhichOneof("command")
        assert which is not None
        about = (seed, index, parsed)
        is_upgrade = which == "finalize_upgrade"
        before = partitions_of(lives)
        answer = lives.apply(index, command, upgrade=is_upgrade)
        after = partitions_of(lives)
        changed = {gid for gid in before.keys() | after if before.get(gid) != after.get(gid)}
        assert changed <= {*lives.tables.take_touched()}, about
        assert loaded.apply(index, command, upgrade=is_upgrade) == answer, about
        saved = lives.dump()
        assert loaded.dump() == saved, about
        loaded = MetadataState()
        loaded.load(saved, index)
        assert loaded.dump() == saved, about
        assert counted(lives) == counted(loaded), about
        if not pb.MetadataResult.FromString(answer).error:
            done[parsed.transaction.WhichOneof("what") or which] += 1


@pytest.mark.usefixtures("small_limits")
def test_metadata() -> None:
    done: Counter[str] = Counter()
    for seed in SEEDS:
        walk_metadata(seed, done)
    whats = {field.name for field in tpb.TransactionCommand.DESCRIPTOR.fields}
    missing = (COMMANDS.keys() - {"transaction"} | whats) - done.keys()
    assert not missing, f"never accepted: {missing} of {done}"


class Replica:
    """A partition's machine over rows of its own."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.machine = PartitionMachine(OffsetIndex(self.disk, 16), capacity=4, listeners=set())
        self.machine.group_offsets = OffsetsTable(max_groups=1, max_offsets=3, max_bytes=2000)

    def apply(self, index: int, entry: bytes) -> object:
        batch = self.disk.batch()
        result = self.machine.apply(index, entry, batch)
        self.disk.write(batch)
        return result

    def dump(self) -> bytes:
        return b"".join(self.machine.pieces())


def walk_partition(seed: int, done: Counter[str]) -> None:
    lives, loaded = Replica(), Replica()
    walk = partition_walk.Walk(seed, lives.machine)
    for index in range(1, STEPS):
        entry = walk.next()
        answer = lives.apply(index, entry)
        assert repr(loaded.apply(index, entry)) == repr(answer), (seed, index, entry)
        saved = lives.dump()
        assert loaded.dump() == saved, (seed, index, entry)
        loaded.machine.restore(loaded.machine.load(saved))
        loaded.machine.group_offsets._limits = lives.machine.group_offsets._limits
        assert loaded.dump() == saved, (seed, index, entry)
        name = answer.verdict.kind.name if isinstance(answer, Answer) else type(answer).__name__
        done[name] += 1


def test_partitions_and_groups() -> None:
    done: Counter[str] = Counter()
    for seed in SEEDS:
        walk_partition(seed, done)
    assert done.keys() >= ANSWERS, f"never answered: {ANSWERS - done.keys()}"
