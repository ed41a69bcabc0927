"""Directed schedules: bits that flip on their way between nodes, and in a node's memory."""

from __future__ import annotations

from cluster.consensus.state_check import StateDivergedError
from cluster.dedup.record import RECORD_BYTES
from tests.sim.checker import Violation
from tests.sim.schedules import schedule
from tests.sim.stage import GID, Stage


@schedule
def a_flipped_bit_on_its_way_changes_nothing() -> None:
    """In the header of a batch, on its way to node 2 and node 3; node 2 leads afterwards."""
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
    """Node 1 leads; a bit flips in a node's memory. A restart applies again what it has."""
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
