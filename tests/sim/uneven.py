"""Directed schedules: nodes that differ, loops that cost time, stores that are not there."""

from __future__ import annotations

from cluster.dedup.verdict import Kind
from tests.sim.checker import Violation
from tests.sim.schedules import schedule
from tests.sim.stage import GID, Stage

LEASE_MS = 4000


@schedule
def a_store_that_is_not_there_makes_no_new_voter() -> None:
    """Node 2 has acknowledged entries that node 3 never got; it comes back with an empty volume."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.isolate(3)
    stage.produce(1, 3)
    stage.crash(1, 2)
    stage.drop()
    node = stage.node(2)
    node.volume.unmount()
    node.start()
    if node.alive:
        raise Violation("a node whose store is gone starts as a new one")
    stage.run(3.0)
    stage.campaign(3)
    assert not stage.group(3).core.is_leader
    node.volume.mount()
    stage.start(1, 2)
    stage.finish()


@schedule
def a_backlog_is_applied_in_slices() -> None:
    """3000 entries are committed at once, and each takes two milliseconds to apply."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.free = True
    stage.run(4.0)
    node, term = stage.node(1), stage.group(1).term
    node.load.seconds = 0.002
    replies = [stage.send(1, stage.batch(), head=False) for _ in range(3000)]
    stage.run(15.0)
    if stage.group(1).term != term or not stage.group(1).is_ready:
        raise Violation("a leader was missed while it applied what was committed")
    assert all(reply.kind is Kind.APPENDED for reply in replies)
    node.load.seconds = 0.0
    stage.finish()


@schedule
def all_replicas_expire_by_the_lifetime_in_the_entry() -> None:
    """Nodes' own copies of the cluster's lifetime differ."""
    stage = Stage(lease_ms=LEASE_MS, varied=True)
    lifetimes = {node.partitions[GID].policy.lease_lifetime_ms for node in stage.cluster.live()}
    assert len(lifetimes) == 3
    stage.elect(1)
    for pid in range(1, 17):
        stage.cluster.lease()
        stage.cluster.grants[-1] = (*stage.cluster.grants[-1][:3], False)  # no name holds it
        stage.produce(1, pid=pid)
        stage.run(0.5)
    assert len(stage.node(1).partitions[GID].last_seen) < 16, "some have expired"
    stage.finish()


@schedule
def a_cut_frame_ends_its_stream() -> None:
    """Each message with entries to node 2 lacks some bytes, then it has some too many."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    batch, cut = stage.batch(), 0

    def damage(frame: bytes) -> bytes:
        nonlocal cut
        if batch.payload not in frame or cut == 6:
            return frame
        cut += 1
        return frame[: len(frame) - cut] if cut % 2 else frame + frame[:cut]

    stage.cluster.network.damage = damage
    reply = stage.send(1, batch)
    stage.run(8.0)
    assert cut == stage.cluster.network.refused == 6
    assert reply.kind is Kind.APPENDED
    stage.finish()
