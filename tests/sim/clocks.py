"""Directed schedules for wall clocks that are wrong: nothing is deleted or refused for it."""

from __future__ import annotations

from cluster.dedup.verdict import Kind
from cluster.metadata.tables import METADATA_GROUP
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.clock import EPOCH_MS
from tests.sim.cluster import Cluster
from tests.sim.node import Node, Settings
from tests.sim.schedules import schedule
from tests.sim.stage import GID, Stage

DAY_MS = 24 * 3600 * 1000
LEASE_MS = 60_000
PROMPTLY = 3.0  # seconds; by then a leader with a wrong clock has handed over


def retained(stage: Stage) -> list[int]:
    """Returns the first offset that each node keeps."""
    return [node.partitions[GID].log_start_offset for node in stage.cluster.live()]


def leader(stage: Stage) -> Node:
    found = stage.cluster.leader(GID)
    assert found is not None
    return found


@schedule
def a_jump_of_the_leaders_clock_deletes_nothing() -> None:
    stage = Stage(retention_ms=7 * DAY_MS)
    stage.elect(1)
    stage.produce(1, 6)
    stage.node(1).wall_skew_ms = 8 * DAY_MS
    stage.node(1).compact()
    stage.run(PROMPTLY)
    if retained(stage) != [0, 0, 0]:
        raise Violation("a wrong clock deleted records")
    for node in stage.cluster.live():
        node.compact()
    stage.run(1.0)
    if retained(stage) != [0, 0, 0]:
        raise Violation("a wrong clock deleted records")
    assert leader(stage) is not stage.node(1)
    stage.produce(leader(stage).id)
    stage.finish()


@schedule
def a_jump_of_the_leaders_clock_expires_no_producer() -> None:
    stage = Stage(lease_ms=LEASE_MS)
    stage.cluster.lease()
    stage.cluster.grants[-1] = (*stage.cluster.grants[-1][:3], False)  # no name holds it
    stage.elect(1)
    stage.produce(1, 2)
    stage.node(1).wall_skew_ms = LEASE_MS + 1000
    first, again = stage.batch(), stage.batch()
    replies = [stage.send(1, first), stage.send(1, again, head=False)]
    stage.run(PROMPTLY)
    if any(reply.kind is Kind.PRODUCER_EXPIRED for reply in replies):
        raise Violation("a wrong clock ended a lease")
    new = leader(stage)
    assert new is not stage.node(1)
    for batch in (first, again):
        reply = stage.send(new.id, batch)
        stage.run(0.5)
        assert reply.kind in (Kind.APPENDED, Kind.DUPLICATE), reply.answer
    ahead_ms = new.partitions[GID].machine.clock_ms - EPOCH_MS - stage.cluster.scheduler.now * 1000
    if ahead_ms > stage.cluster.settings.clock_bound_ms:
        raise Violation("a wrong clock is in the log's time")
    stage.finish()


@schedule
def a_node_with_a_wrong_clock_does_not_lead() -> None:
    """The node does not stand or take leadership; with a right clock it may."""
    stage = Stage()
    stage.elect(1)
    stage.node(3).wall_skew_ms = -DAY_MS
    stage.run(1.0)
    stage.group(1).transfer(3)
    stage.node(1).driver.touch(GID)
    stage.run(PROMPTLY)
    assert stage.group(1).is_leader
    stage.crash(1)
    stage.run(PROMPTLY)
    for _ in range(10):
        stage.campaign(3)
        if stage.group(3).core.is_leader:
            raise Violation("a node with a wrong clock leads")
    stage.node(3).wall_skew_ms = 0
    stage.run(1.0)
    stage.elect(3)
    stage.produce(3)
    stage.finish()


@schedule
def a_node_that_starts_compares_before_it_leads() -> None:
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.crash(1, 2, 3)
    stage.node(1).wall_skew_ms = 8 * DAY_MS
    stage.start(1, 2, 3)
    for _ in range(10):
        stage.campaign(1)
        if stage.group(1).core.is_leader:
            raise Violation("a node that began with a wrong clock leads")
    stage.elect(2)
    stage.produce(2)
    stage.finish()


@schedule
def clocks_that_were_all_wrong_are_put_right() -> None:
    """Nobody leads while no two agree; log time never goes back, and writes go on."""
    stage = Stage()
    stage.elect(1)
    for node in stage.cluster.live():
        node.wall_skew_ms = node.id * DAY_MS
    stage.run(PROMPTLY)
    refused = stage.send(1, stage.batch())
    stage.run(0.5)
    assert refused.kind is Kind.NOT_READY, refused.answer
    for node in stage.cluster.live():  # all the same, and a year ahead
        node.wall_skew_ms = 365 * DAY_MS
    stage.run(PROMPTLY)
    again = stage.send(leader(stage).id, refused.batch)
    stage.run(0.5)
    assert again.kind is Kind.APPENDED, again.answer
    for node in stage.cluster.live():
        node.wall_skew_ms = 0
        stage.run(1.0)
    stage.run(PROMPTLY)
    stage.produce(leader(stage).id, 2)
    stage.finish()


@schedule
def a_node_cut_off_goes_on_with_its_clock() -> None:
    """The others are silent: nothing says that its clock is wrong, until it jumps."""
    stage = Stage()
    stage.elect(1)
    stage.isolate(1)
    stage.run(30.0)
    assert stage.node(1).running.clocks.agreed
    clocks = stage.node(1).running.clocks
    before = clocks.now_ms()
    stage.node(1).wall_skew_ms = DAY_MS
    assert clocks.now_ms() - before < 1000
    assert not clocks.agreed
    stage.drop()
    stage.finish()


@schedule
def a_jump_of_the_metadata_leaders_clock_ends_no_name() -> None:
    cluster = Cluster(Settings(metadata=True, lease_ms=LEASE_MS), seed=1)
    cluster.start()
    scheduler = cluster.scheduler
    scheduler.run_until(5.0)

    def lease(name: str) -> None:
        results: list[bytes] = []
        end = scheduler.now + 20.0
        while not results and scheduler.now < end:
            command = mpb.LeaseName(name=name, nonce=1)
            cluster.command(mpb.MetadataCommand(lease_name=command), results.append)
            scheduler.run_until(scheduler.now + 0.5)
        assert not mpb.MetadataResult.FromString(results[0]).error

    lease("stays")
    jumped = cluster.leader(METADATA_GROUP)
    assert jumped is not None
    jumped.wall_skew_ms = 8 * DAY_MS
    lease("other")
    scheduler.run_until(scheduler.now + PROMPTLY)
    assert cluster.leader(METADATA_GROUP) is not jumped
    for node in cluster.live():
        if {one.name for one in node.running.state.names()} != {"stays", "other"}:
            raise Violation("a wrong clock ended a producer's name")
