"""Directed schedules: bits that flip on their way and in memory, states that do not load."""

from __future__ import annotations

from cluster.consensus.state_check import StateDivergedError
from cluster.dedup.record import RECORD_BYTES
from cluster.partition.machine import Loaded
from cluster.partition.replica import Partition
from storage.errors import CorruptionError
from tests.sim.checker import Violation
from tests.sim.schedules import limited, schedule
from tests.sim.stage import GID, Stage


@schedule
def a_flipped_bit_on_its_way_changes_nothing() -> None:
    """A bit of a batch's header flips on its way to nodes 2 and 3; node 2 leads afterwards."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    batch = stage.batch()
    flips = 2

    def damage(frame: bytes) -> bytes:
        nonlocal flips
        at = frame.find(batch.payload) - 60  # inside the header
        if flips == 0 or at < 0:
            return frame
        flips -= 1
        return frame[:at] + bytes([frame[at] ^ 4]) + frame[at + 1 :]

    stage.cluster.network.damage = damage
    stage.send(1, batch)
    stage.run(3.0)
    assert flips == 0
    stage.transfer(1, 2)
    stage.produce(2, pid=5)
    stage.finish()


@schedule
def a_follower_whose_map_is_damaged_stops() -> None:
    _one_map_is_damaged(3)


@schedule
def a_leader_whose_map_is_damaged_stops() -> None:
    _one_map_is_damaged(1)


def _one_map_is_damaged(node_id: int) -> None:
    """Node 1 leads; a bit flips in a node's memory. A restart applies its entries again."""
    stage = Stage(checkpoint_entries=8)
    stage.elect(1)
    stage.produce(1, 3)
    stage.cluster.checker.damaged.add((node_id, GID))
    found = stage.node(node_id).partitions[GID].last_seen._table.find(1)
    assert found is not None
    chunk, row = found
    chunk.records[row * RECORD_BYTES] ^= 1
    damaged = stage.group(node_id)
    for pid in range(11, 21):
        stage.send(1, stage.batch(pid))
        stage.run(0.1)
    if not isinstance(damaged.failed, StateDivergedError):
        raise Violation(f"a damaged state is not found: {damaged.failed}")
    leader = 3 - node_id if node_id == 1 else 1
    stage.run(3.0)
    stage.elect(leader)
    stage.produce(leader, pid=31)
    stage.crash(node_id)
    stage.cluster.checker.damaged.clear()
    stage.start(node_id)
    stage.finish()


@schedule
def a_state_that_does_not_load_is_never_the_only_one() -> None:
    """The loader or the writer of the state has a fault. A restart begins at an older state."""

    def refused(self: Partition, state: bytes) -> Loaded:
        loaded = self.machine.load(state)
        if 6 <= loaded.next_offset < 20:
            raise CorruptionError("a state that does not load")
        return loaded

    with limited(Partition, "load", refused):
        _states_do_not_load_for_a_while()


def _states_do_not_load_for_a_while() -> None:
    stage = Stage(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1, 4)
    _compact(stage)
    before = [stage.group(node).journal.base_index for node in (1, 2, 3)]
    stage.produce(1, 12)
    _compact(stage)
    stage.crash(2)
    stage.start(2)
    stage.run(1.0)
    _compact(stage)
    kept = [stage.group(node).journal.base_index for node in (1, 2, 3)]
    if kept != before:
        raise Violation(f"logs begin at {kept}, not at the last states that load, {before}")
    stage.produce(1, 8)
    _compact(stage)
    if min(stage.group(node).journal.base_index for node in (1, 2, 3)) <= max(before):
        raise Violation("a state that loads does not let the log's head go")
    stage.finish()


def _compact(stage: Stage) -> None:
    """Removes all batches; each node trims its own log as far as it may."""
    for _ in range(3):
        for node_id in (1, 2, 3):
            stage.node(node_id).compact()
        stage.run(0.5)
