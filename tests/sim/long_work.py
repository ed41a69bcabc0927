"""Directed schedules for work that takes long: the node's loop, and other groups, go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import storage.pieces as pieces_module
from cluster.consensus import checkpoints
from cluster.dedup.verdict import Kind
from tests.sim.checker import Violation
from tests.sim.schedules import limited, schedule
from tests.sim.stage import Stage


@schedule
def a_follower_far_behind_costs_others_nothing() -> None:
    """The follower's entries are on the leader's disk only; each read there takes five seconds."""
    stage = Stage(tail_bytes=0)
    stage.elect(1)
    stage.crash(3)
    stage.produce(1, 8)
    stage.node(1).read_time = 5.0
    stage.start(3)
    stage.run(1.0)
    replies = stage.produce(1, 4)
    assert all(reply.kind is Kind.APPENDED for reply in replies)
    behind = stage.group(3).journal.last_index
    if behind >= stage.group(1).journal.last_index - 4:
        raise Violation("entries of the disk came without a read")
    stage.run(20.0)
    assert stage.group(3).applied_index == stage.group(1).applied_index
    stage.node(1).read_time = 0.004
    stage.finish()


@schedule
def what_was_read_for_a_follower_is_not_used_in_another_term() -> None:
    """Leadership goes, and comes back, while the read is in progress."""
    stage = Stage(tail_bytes=0)
    stage.elect(1)
    stage.crash(3)
    stage.produce(1, 8)
    stage.node(1).read_time = 3.0
    stage.start(3)
    stage.run(0.5)
    stage.transfer(1, 2)
    stage.transfer(2, 1)
    stage.node(1).read_time = 0.004
    stage.produce(1, 3)
    stage.run(8.0)
    assert stage.group(3).applied_index == stage.group(1).applied_index
    stage.finish()


@schedule
def what_a_restart_applies_again_is_read_elsewhere() -> None:
    """Slow reads of one group's entries; the node follows its leader meanwhile."""
    stage = Stage(tail_bytes=0, checkpoint_entries=1000)
    stage.elect(1)
    stage.produce(1, 12)
    stage.crash(3)
    stage.node(3).read_time = 2.0
    stage.start(3)
    stage.produce(1, 3)
    assert stage.group(3).applied_index < stage.group(1).applied_index
    assert stage.group(3).journal.last_index == stage.group(1).journal.last_index
    stage.run(15.0)
    assert stage.group(3).applied_index == stage.group(1).applied_index
    stage.node(3).read_time = 0.004
    stage.finish()


@schedule
def a_large_state_is_saved_while_the_node_goes_on() -> None:
    """The state's pieces take many rounds; entries committed meanwhile are applied after that."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1, 5)
    taken: list[tuple[float, int]] = []  # time, and the applied index by then
    group = stage.group(1)
    made = group._raft.checkpoints._pieces

    def watched() -> Iterator[bytes]:
        for piece in made():
            taken.append((stage.cluster.scheduler.now, group.applied_index))
            yield piece

    with ExitStack() as limits:
        limits.enter_context(limited(checkpoints, "SLICE_PIECES", 1))
        limits.enter_context(limited(pieces_module, "PIECE_BYTES", 1))
        limits.enter_context(limited(group._raft.checkpoints, "_pieces", watched))
        stage.hold(lambda sender, receiver, message: receiver == 1)
        reply = stage.send(1, stage.batch())
        stage.run(0.1)
        at = group.applied_index
        group.checkpoints.save()
        stage.release()  # the batch is committed at once
        stage.run(1.0)
    if len({when for when, _ in taken}) < len(taken) - 1 or len(taken) < 4:
        raise Violation(f"the loop stands still while a state is saved: {taken}")
    if {index for _, index in taken} != {at}:
        raise Violation(f"the state moved on while it was saved: {taken}")
    assert reply.kind is Kind.APPENDED and group.applied_index > at
    stage.produce(1)  # its fsync is the checkpoint's, too
    stage.crash(1)
    stage.start(1)
    assert stage.group(1).applied_index >= at
    stage.finish()


@schedule
def a_snapshot_is_read_elsewhere() -> None:
    """A follower is behind the log's begin; the leader's disk is slow."""
    stage = Stage(retention_bytes=0, checkpoint_entries=4)
    stage.elect(1)
    stage.crash(3)
    stage.produce(1, 12)
    for _ in range(2):
        stage.node(1).compact()
        stage.run(1.0)
    stage.node(1).read_time = 4.0
    stage.start(3)
    stage.run(1.0)
    stage.produce(1, 3)
    behind = stage.group(3).applied_index
    if behind >= stage.group(1).journal.base_index:
        raise Violation("a snapshot came without a read")
    stage.run(12.0)
    assert stage.group(3).applied_index == stage.group(1).applied_index
    assert stage.cluster.installs == 1
    stage.node(1).read_time = 0.004
    stage.finish()


@schedule
def the_log_moves_on_while_a_snapshot_is_loaded() -> None:
    """A snapshot comes twice, and the second is loaded late: the log holds more by then, or the
    leader is another one.
    """
    for moved in (False, True):
        stage = Stage(retention_bytes=0, checkpoint_entries=4)
        stage.elect(1)
        stage.crash(3)
        stage.produce(1, 12)
        for _ in range(2):
            stage.node(1).compact()
            stage.run(1.0)
        stage.cluster.network.links[1, 3].blocked = True  # for the leader's own snapshot, too
        stage.start(3)
        answers: list[bool] = []
        stage.node(3).read_time = 30.0
        stage.node(3).install(1, stage.group(1).base_reading(3)(), answers.append)
        stage.node(3).read_time = 0.004
        stage.cluster.heal()
        stage.run(8.0)
        if stage.cluster.installs != 1:
            raise Violation("a load holds up the node")
        if moved:
            stage.transfer(1, 2)
        stage.produce(2 if moved else 1, 3)
        last = stage.group(3).journal.last_index
        assert not answers and last == stage.group(1).journal.last_index
        stage.run(45.0)
        if stage.group(3).journal.last_index < last:
            raise Violation("a snapshot took acknowledged entries away")
        assert answers == [not moved] and stage.cluster.installs == 1
        stage.finish()
