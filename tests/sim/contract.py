"""Directed schedules for cases of the producer contract that broke other systems."""

from __future__ import annotations

from cluster.dedup.verdict import Kind
from tests.sim.schedules import schedule
from tests.sim.stage import Stage


@schedule
def a_batch_that_failed_leaves_no_trace() -> None:
    """State changed before the append failed: the retry must be new, not a duplicate or a gap."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1, 2)
    stage.run(1.0)
    stage.isolate(1)
    # In node 1's log and in its overlay, and never anywhere else.
    failed = [stage.send(1, stage.batch(), head=n == 0) for n in range(3)]
    stage.run(3.0)
    assert [reply.kind for reply in failed] == [Kind.NOT_LEADER] * 3
    stage.elect(2)
    for place, reply in enumerate(failed, 2):
        again = stage.send(2, reply.batch)
        stage.run(0.1)
        assert again.answer is not None
        assert (again.kind, again.answer.verdict.base_offset) == (Kind.APPENDED, place)
    stage.drop()
    stage.run(2.0)
    stage.transfer(2, 1)
    for place, reply in enumerate(failed, 2):
        again = stage.send(1, reply.batch)
        stage.run(0.1)
        assert again.answer is not None
        assert (again.kind, again.answer.verdict.base_offset) == (Kind.DUPLICATE, place)
    stage.produce(1)
    stage.finish()


@schedule
def a_full_disk_refuses_and_remembers_nothing() -> None:
    """A batch that was rejected for want of space is new when there is space again."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1, 2)
    stage.node(1).disk.full = True
    waiting = stage.send(1, stage.batch())  # taken before the disk was seen to be full
    stage.run(0.1)
    refused = stage.send(1, stage.batch(), head=False)
    stage.run(0.1)
    assert waiting.kind is None
    assert refused.kind is Kind.STORAGE_FULL, refused.answer
    stage.node(1).disk.full = False
    stage.elect(1)
    stage.run(1.0)
    first = stage.send(1, waiting.batch)
    stage.run(0.5)
    assert first.kind in (Kind.APPENDED, Kind.DUPLICATE), first.answer
    second = stage.send(1, refused.batch)
    stage.run(0.5)
    assert second.kind is Kind.APPENDED, second.answer
    stage.finish()


@schedule
def the_same_sequence_in_two_epochs_in_flight() -> None:
    """Two epochs begin at sequence 0, uncommitted: two batches, and the old one is fenced."""
    stage = Stage()
    stage.elect(1)
    stage.run(0.5)
    stage.hold(lambda sender, receiver, message: receiver == 1)  # nothing commits
    old = stage.send(1, stage.batch(epoch=0))
    stage.run(0.05)
    new = stage.send(1, stage.batch(epoch=1))
    stage.run(0.05)
    # Repeats of both, while both are in flight.
    old_again = stage.send(1, old.batch)
    new_again = stage.send(1, new.batch)
    stage.run(0.05)
    assert [r.kind for r in (old, new, new_again)] == [None, None, None]
    stage.release()
    stage.run(1.0)
    assert old.answer is not None and new.answer is not None and new_again.answer is not None
    assert (old.kind, old.answer.verdict.base_offset) == (Kind.APPENDED, 0)
    assert (new.kind, new.answer.verdict.base_offset) == (Kind.APPENDED, 1)
    assert (new_again.kind, new_again.answer.verdict.base_offset) == (Kind.DUPLICATE, 1)
    assert old_again.kind is Kind.FENCED, old_again.answer
    following = stage.send(1, stage.batch(epoch=0))
    stage.run(0.5)
    assert following.kind is Kind.FENCED, following.answer
    stage.finish()
