"""Directed schedules: a replica, disk or loop that is ill does not keep its group from working."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.consensus import driver, replication
from cluster.consensus.message import Append, AppendReply
from cluster.transport import send_queue
from tests.sim.checker import Violation
from tests.sim.disk import PlantedDamage
from tests.sim.schedules import limited, schedule
from tests.sim.stage import GID, Stage


@schedule
def a_leader_that_fails_at_rest_is_replaced() -> None:
    """The leader's node saves early, finds its state damaged, and has nothing else to do."""
    stage = Stage(checkpoint_entries=1000)
    stage.elect(1)
    stage.produce(1)
    stage.run(2.0)
    assert stage.group(1).is_quiescent
    node = stage.node(1)

    def damaged() -> Iterator[bytes]:
        yield b"the state begins well"
        raise PlantedDamage("a damaged map")

    stage.group(1)._raft.checkpoints._pieces = damaged
    node.driver.replay.limit = node.driver.replay._look_above = 1
    node.wake()
    stage.free = True
    for other in (2, 3):
        stage.group(other).core.election_deadline = stage.node(other).clock() + 1.0
        stage.node(other).driver.touch(GID)
    stage.run(10.0)
    assert type(stage.group(1).failed) is PlantedDamage
    if stage.cluster.leader(GID) is None:
        raise Violation("nobody leads in the place of a replica that has stopped")
    stage.crash(1)
    stage.start(1)
    stage.finish()


@schedule
def a_leader_whose_links_break_before_it_rests_steps_down() -> None:
    """Found by a slow machine: with nobody in reach it took its last heartbeat for answered."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    leader, scheduler = stage.group(1), stage.cluster.scheduler
    assert leader._leading is not None
    stage.hold(lambda sender, receiver, message: isinstance(message, AppendReply))
    while not leader._leading.quiescence.is_quiet:
        scheduler.run_until(scheduler.now + 1e-4)
    assert not leader.is_quiescent
    stage.drop()
    for peer in (2, 3):
        stage.node(1).link_changed(peer, False)
    stage.isolate(1)
    stage.node(1).driver.touch(GID)  # as an answer does that came before its link broke
    stage.run(4.0)
    if leader.is_leader:
        raise Violation("a leader that hears nobody believes in itself for ever")
    for peer in (2, 3):
        stage.node(1).link_changed(peer, True)
    stage.finish()


@schedule
def a_slice_says_nothing_that_an_earlier_one_wrote_before_the_fsync() -> None:
    """Two messages of a new term, and a slice takes one: the term is not durable yet."""
    stage = Stage()
    term, early = stage.group(2).term + 1, list[AppendReply]()

    def note(sender: int, receiver: int, message: object) -> bool:
        if sender == 2 and isinstance(message, AppendReply) and stage.node(2).disk.unsynced:
            early.append(message)
        return False

    stage.hold(note)
    leader_lives = Append(GID, term, 0, 0, 0)
    with limited(driver, "SLICE_OPERATIONS", 1):
        stage.deliver(3, 2, leader_lives, leader_lives)
    assert stage.group(2).term == term
    if early:
        raise Violation(f"said before it is durable: {early}")
    stage.finish()


@schedule
def a_sick_preferred_leader_is_not_asked_for_ever() -> None:
    """The node looks well as a follower, and stands still each time that it leads."""
    stage = Stage(preferred_leader_delay=1.0)
    stage.elect(1)
    stage.produce(1)
    stage.free = True
    for _ in range(240):
        node = stage.node(1)
        if stage.group(1).is_ready and node.paused_until < stage.cluster.scheduler.now:
            node.paused_until = stage.cluster.scheduler.now + 4.0
        stage.run(0.25)
    led = [term for (gid, term), node_id in stage.cluster.checker.leaders.items() if node_id == 1]
    if len(led) > 6:  # the first, then after 1, 2, 4, 8 and 16 seconds
        raise Violation(f"node 1 has lost the leadership of the terms {led} within a minute")
    assert len(led) > 3, "it must be asked again"
    stage.finish()


@schedule
def entries_of_one_group_do_not_unseat_the_leaders_of_others() -> None:
    """A slow link has ten seconds of one group's entries to carry."""
    stage = Stage(groups=2, streams=True)
    with limited(send_queue, "FRAME_BYTES", 1000), limited(replication, "MAX_MESSAGE_ENTRIES", 8):
        stage.elect(1)
        idle = stage.node(1).partitions[GID + 1].group
        while not idle.is_ready:
            idle.campaign()
            stage.node(1).driver.touch(GID + 1)
            stage.run(0.2)
        stage.free = True
        stage.run(4.0)
        terms = stage.group(1).term, idle.term
        stage.cluster.network.rate = 8000.0
        replies = [stage.send(1, stage.batch(), head=False) for _ in range(600)]
        stage.run(5.0)
        assert any(reply.kind is None for reply in replies), "the link must be busy"
        stage.run(10.0)
        if not (stage.group(1).is_ready and idle.is_ready):
            raise Violation("a leader was missed while its link was busy")
        if (stage.group(1).term, idle.term) != terms:
            raise Violation("a leader was replaced while its link was busy")
        stage.cluster.network.rate = 0.0
        stage.finish()


def at_rest_beside_work(sync_time: float) -> Stage:
    """Node 1 leads two groups, of which one rests; the other has to wait for its disk."""
    stage = Stage(groups=2)
    stage.elect(1)
    other = stage.node(1).partitions[GID + 1].group
    while not other.is_ready:
        other.campaign()
        stage.node(1).driver.touch(GID + 1)
        stage.run(0.2)
    stage.free = True
    stage.run(4.0)
    stage.slow_disk(1, sync_time)
    return stage


@schedule
def a_slow_fsync_costs_no_leadership() -> None:
    """A sync lasts up to two election timeouts; then the leader goes on."""
    stage = at_rest_beside_work(2.0)
    other = stage.node(1).partitions[GID + 1].group
    terms = stage.group(1).term, other.term
    for _ in range(4):
        reply = stage.send(1, stage.batch())
        stage.run(8.0)
        if reply.kind is None or (stage.group(1).term, other.term) != terms:
            raise Violation("a leader was replaced for a slow fsync")
    stage.finish()


@schedule
def a_disk_that_hangs_costs_the_leadership() -> None:
    """Others lead all groups, and take over the sick node's work."""
    stage = at_rest_beside_work(1000.0)
    stage.send(1, stage.batch())
    stage.run(10.0)
    for gid in (GID, GID + 1):
        leading = {
            node.id: group.term
            for node in stage.cluster.live()
            if (group := node.partitions[gid].group).is_ready
        }
        if max(leading, key=lambda node: leading[node]) == 1:
            raise Violation(f"group {gid} is still led by a node whose disk hangs")
    stage.crash(1)
    stage.slow_disk(1, 0.002)
    stage.start(1)
    stage.finish()
