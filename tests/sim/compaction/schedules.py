"""Directed schedules for carried batches: their effect, and the log that is kept for them."""

from __future__ import annotations

from typing import Any

from cluster.consensus.proposals import Outcome
from cluster.dedup.verdict import Kind
from cluster.partition.replica import Partition
from tests.sim.checker import Violation
from tests.sim.compaction.sweeper import carried, rows_of
from tests.sim.schedules import is_entries, schedule
from tests.sim.stage import GID, Stage


class CleanedStage(Stage):
    """A stage with leaders that carry batches when the schedule says so."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(compaction=True, checkpoint_entries=2, **settings)
        self.outcomes: list[Any] = []

    def partition(self, node: int) -> Partition:
        return self.node(node).partitions[GID]

    def cleaned(self, node: int, first: int, after: int) -> bytes:
        """Returns a carried batch in place of some of the batches that the node has now."""
        return carried(self.partition(node), rows_of(self.partition(node))[first:after])

    def carry(self, node: int, data: bytes) -> None:
        def done(outcome: Outcome) -> None:
            self.outcomes.append(getattr(outcome, "result", None))

        assert self.partition(node).carry(data, done) is None
        self.run(0.3)

    def trim(self, node: int) -> None:
        """Lets a replica drop the head of its log; it has a checkpoint at its newest entry."""
        self.node(node).checkpoint()
        for _ in range(2):
            self.node(node).compact()
            self.run(1.0)


@schedule
def a_cleaning_that_is_out_of_date_changes_nothing() -> None:
    """Two cleaners have read the same batches; the second one's holds those of the first."""
    stage = CleanedStage()
    stage.elect(1)
    stage.produce(1, 6)
    first, second = stage.cleaned(1, 1, 4), stage.cleaned(1, 0, 6)
    partly = stage.cleaned(1, 3, 5)
    for data in (first, second, partly, first):
        stage.carry(1, data)
    assert stage.outcomes == [True, False, False, False]
    stage.carry(1, stage.cleaned(1, 0, 4))
    stage.finish()
    assert stage.outcomes[-1] and len(rows_of(stage.partition(1))) == 2, "and the last batch's"


@schedule
def the_log_is_kept_for_a_carried_batch() -> None:
    """All batches are carried, and others follow."""
    stage = CleanedStage()
    stage.elect(1)
    stage.produce(1, 8)
    base = stage.group(1).journal.base_index
    stage.carry(1, stage.cleaned(1, 0, 8))
    stage.node(1).checkpoint()
    stage.produce(1, 4)
    stage.trim(1)
    assert stage.group(1).journal.base_index > base, "the old entries are gone"
    stage.finish()


@schedule
def the_log_is_kept_for_batches_behind_a_carried_one() -> None:
    """The first batches are carried late: their entry is newer than those of the others."""
    stage = CleanedStage()
    stage.elect(1)
    stage.produce(1, 8)
    stage.carry(1, stage.cleaned(1, 0, 3))
    stage.produce(1, 2)
    stage.trim(1)
    stage.finish()


@schedule
def a_replica_that_starts_again_keeps_its_log() -> None:
    """Its rows are ahead of its checkpoint: they show a batch that it has not carried yet."""
    stage = CleanedStage()
    stage.elect(1)
    stage.produce(1, 6)
    stage.run(1.0)
    stage.node(2).checkpoint()
    stage.carry(1, stage.cleaned(1, 0, 3))
    stage.run(1.0)
    stage.crash(2)
    stage.hold(lambda sender, receiver, message: receiver == 2)
    stage.start(2)
    for _ in range(2):
        stage.node(2).compact()
        stage.run(1.0)
    stage.release()
    stage.finish()


@schedule
def a_follower_that_was_away_gets_what_was_carried() -> None:
    """Its snapshot is older than some carried batches and newer than others."""
    stage = CleanedStage()
    stage.elect(1)
    stage.produce(1, 2)
    stage.crash(3)
    stage.produce(1, 8)
    stage.carry(1, stage.cleaned(1, 0, 5))
    stage.carry(1, stage.cleaned(1, 0, 6))
    stage.trim(1)
    installs = stage.cluster.installs
    # Of the whole: its state lies before this.
    stage.carry(1, stage.cleaned(1, 0, 3))
    stage.produce(1, 2)
    stage.start(3)
    stage.run(6.0)
    stage.finish()
    if stage.cluster.installs == installs:
        raise Violation("no snapshot was installed")
    assert all(stage.outcomes)


@schedule
def a_deposed_leader_carries_nothing() -> None:
    """Its carried batch reaches nobody; the next leader carries some of the same batches."""
    stage = CleanedStage()
    stage.elect(1)
    stage.produce(1, 6)
    stage.run(0.5)
    lost = stage.cleaned(1, 0, 4)
    stage.hold(lambda sender, receiver, message: sender == 1 and is_entries(message))
    stage.carry(1, lost)
    stage.isolate(1)
    stage.run(3.0)
    stage.elect(2)
    stage.carry(2, stage.cleaned(2, 2, 6))
    stage.carry(2, lost)
    stage.finish()
    assert stage.outcomes[-2:] == [True, False] or stage.outcomes == [None, True, False]


@schedule
def the_log_start_waits_for_a_carried_batch() -> None:
    """Retention asks for a new start while a carried batch across it is on its way."""
    stage = CleanedStage(retention_bytes=600)
    stage.elect(1)
    stage.produce(1, 8)
    stage.hold(lambda sender, receiver, message: is_entries(message))
    stage.carry(1, stage.cleaned(1, 0, 6))
    stage.node(1).compact()
    ended: list[Outcome] = []
    stage.partition(1).delete_below(4, ended.append)
    stage.run(0.2)
    stage.release()
    stage.run(1.0)
    stage.finish()
    assert stage.outcomes == [True] and len(ended) == 1


@schedule
def what_was_carried_is_a_duplicate_under_the_next_leader() -> None:
    """All batches of a producer are carried; it sends each of them again."""
    stage = CleanedStage()
    stage.elect(1)
    batches = []
    for _ in range(8):
        batches.append(stage.batch())
        stage.send(1, batches[-1])
        stage.run(0.1)
    stage.carry(1, stage.cleaned(1, 0, 5))
    stage.carry(1, stage.cleaned(1, 0, 4))
    stage.trim(1)
    stage.crash(1)
    stage.run(3.0)
    stage.elect(2)
    for offset, batch in enumerate(batches):
        reply = stage.send(2, batch)
        stage.run(0.2)
        assert reply.answer is not None and reply.kind is Kind.DUPLICATE, reply.answer
        known = offset >= len(batches) - 5
        if reply.answer.verdict.base_offset != (offset if known else -1):
            raise Violation(f"the batch at {offset} is answered by {reply.answer}")
    stage.start(1)
    stage.finish()
