"""Directed schedules of the node's cleaner: passes that end early, dead leaders, followers away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster.cleaning import passes
from cluster.consensus.proposals import Outcome
from cluster.node.cleaning import reading
from cluster.node.cleaning.cleaner import Cleaner
from cluster.partition.replica import Partition
from tests.sim.checker import Violation
from tests.sim.compaction.keyed import DELETE_RETENTION_MS, KeyedModel
from tests.sim.compaction.sweeper import carried, rows_of
from tests.sim.compaction.worker import SimulatedWorker
from tests.sim.schedules import schedule
from tests.sim.stage import GID, Stage

STEP = 0.005
PASS = 20.0  # seconds in which any pass ends
SMALL = ((passes, "GROUP_BYTES", 400), (reading, "CHUNK_BYTES", 900), (reading, "CHUNK_BATCHES", 5))


@contextmanager
def small_steps() -> Iterator[None]:
    """Has passes read a few batches at a time, and carry less at once."""
    before = [getattr(module, name) for module, name, _ in SMALL]
    for module, name, value in SMALL:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(SMALL, before, strict=True):
            setattr(module, name, value)


class KeyedStage(Stage):
    """A stage with a compacted topic; nodes clean it when the schedule says so."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(keyed=True, checkpoint_entries=2, **settings)

    @property
    def model(self) -> KeyedModel:
        found = self.cluster.checker.models[GID]
        assert isinstance(found, KeyedModel)
        return found

    def partition(self, node: int) -> Partition:
        return self.node(node).partitions[GID]

    def cleaner(self, node: int) -> Cleaner:
        return self.node(node).running.cleaner

    def worker(self, node: int) -> SimulatedWorker:
        return self.node(node).running.worker

    def look(self, node: int) -> None:
        """Has a node begin a pass if one is due."""
        self.node(node).compact()

    def clean(self, node: int) -> None:
        """Has a leader clean until nothing is due."""
        counters, end = self.cleaner(node).counters, self.cluster.scheduler.now + PASS
        before = counters.broken_off
        self.look(node)
        while self.cleaner(node).is_cleaning:
            if self.cluster.scheduler.now > end:
                raise Violation(f"a cleaning does not end: {counters}")
            self.run(STEP)
        if counters.broken_off > before:
            raise Violation(f"a cleaning broke off: {counters}")

    def run_until_asked(self, node: int, kind: int) -> None:
        """Runs until a pass has sent its worker a request of this kind."""
        end = self.cluster.scheduler.now + PASS
        while self.worker(node).asked != kind:
            if self.cluster.scheduler.now > end:
                raise Violation(f"no request of kind {kind}")
            self.run(STEP)

    def log_time_passes(self, node: int, milliseconds: int) -> None:
        self.run(milliseconds / 1000)
        self.produce(node)


@schedule
def a_topic_is_cleaned_by_key() -> None:
    """Its keys are overwritten again and again; the log becomes short."""
    with small_steps():
        stage = KeyedStage()
        stage.elect(1)
        base = stage.group(1).journal.base_index
        stage.produce(1, 15)
        for _ in range(9):
            stage.produce(1, 5)
            stage.clean(1)
        stage.node(1).checkpoint()
        stage.look(1)
        stage.run(1.0)
        assert stage.group(1).journal.base_index > base + 40, "the old entries are gone"
        stage.finish()
    if stage.model.blanks < 40:
        raise Violation(f"{stage.model.blanks} records were cleaned")


@schedule
def a_tombstone_goes_after_its_time() -> None:
    """It is carried again and again before that."""
    with small_steps():
        stage = KeyedStage()
        stage.elect(1)
        stage.produce(1, 8)
        for _ in range(8):
            stage.produce(1, 2)
            stage.clean(1)
            stage.log_time_passes(1, DELETE_RETENTION_MS // 2)
        stage.finish()
    if not stage.model.dropped:
        raise Violation(f"no tombstone went: {stage.model.marks}")


@schedule
def the_leader_is_killed_at_each_step_of_a_cleaning() -> None:
    """Another one goes on, and the killed one comes back."""
    with small_steps():
        for step in range(1, 15):
            stage = KeyedStage()
            stage.elect(1)
            stage.produce(1, 20)
            stage.look(1)
            while stage.worker(1).requests < step and stage.cleaner(1).is_cleaning:
                stage.run(STEP)
            stage.crash(1)
            stage.run(3.0)
            stage.elect(2)
            stage.produce(2, 10, pid=2)
            stage.clean(2)
            stage.start(1)
            stage.run(1.0)  # it gets a snapshot: the log begins after the cleaning
            stage.transfer(2, 1)
            stage.clean(1)
            stage.finish()
            if stage.model.blanks < 15:
                raise Violation(f"step {step}: {stage.model.blanks} records were cleaned")


@schedule
def a_follower_is_away_while_a_topic_is_cleaned() -> None:
    """It gets a snapshot from after the cleaning, and cleans when it leads."""
    with small_steps():
        stage = KeyedStage()
        stage.elect(1)
        stage.produce(1, 10)
        stage.crash(3)
        stage.produce(1, 20)
        stage.clean(1)
        stage.node(1).checkpoint()
        for _ in range(2):
            stage.look(1)
            stage.run(1.0)
        installs = stage.cluster.installs
        stage.start(3)
        stage.run(6.0)
        if stage.cluster.installs == installs:
            raise Violation("no snapshot was installed")
        stage.transfer(1, 3)
        stage.produce(3, 20)
        stage.clean(3)
        stage.finish()


@schedule
def a_cleaning_ends_at_a_batch_that_was_not_carried() -> None:
    """Another batch was carried where it read: older records of a key stay there."""
    with small_steps():
        stage = KeyedStage()
        stage.elect(1)
        stage.produce(1, 20)
        stage.look(1)
        stage.run_until_asked(1, 2)
        partition, outcomes = stage.partition(1), list[Outcome]()
        data = carried(partition, rows_of(partition)[:3], keyed=True)
        assert partition.carry(data, outcomes.append) is None
        while stage.cleaner(1).is_cleaning:
            stage.run(STEP)
        assert len(outcomes) == 1
        stage.finish()
    if stage.cleaner(1).counters.broken_off != 1:
        raise Violation(f"the cleaning went on: {stage.cleaner(1).counters}")


@schedule
def a_cleaning_is_begun_anew_after_its_worker_died() -> None:
    with small_steps():
        stage = KeyedStage()
        stage.elect(1)
        stage.produce(1, 20)
        for kind in (0, 1, 2):
            stage.look(1)
            stage.run_until_asked(1, kind)
            stage.worker(1).close()
            while stage.cleaner(1).is_cleaning:
                stage.run(STEP)
        assert stage.cleaner(1).counters.broken_off == 3
        stage.look(1)
        stage.run(PASS)
        stage.finish()
    if not stage.cleaner(1).counters.passes or not stage.model.blanks:
        raise Violation(f"it is not cleaned: {stage.cleaner(1).counters}")


@schedule
def a_topic_that_is_overwritten_under_many_leaders_stays_short() -> None:
    """No leadership leaves entries in the log, nor batches that are never cleaned."""
    stage, kept = KeyedStage(), list[int]()
    stage.elect(1)
    for number in range(24):
        leader = 1 + number % 3
        stage.produce(leader, 2)
        stage.clean(leader)
        stage.node(leader).checkpoint()
        stage.look(leader)
        journal = stage.group(leader).journal
        kept.append(journal.last_index - journal.base_index)
        stage.transfer(leader, 1 + (number + 1) % 3)
    stage.finish()
    if max(kept[12:]) > max(kept[:12]):
        raise Violation(f"the log grows from leader to leader: {kept}")


@schedule
def the_log_knows_the_blanks_below_its_start() -> None:
    """A follower learns of them by a snapshot, and one that starts again by its state."""
    with small_steps():
        stage, holes = KeyedStage(), list[int]()
        stage.elect(1)
        for batches in (14, 20):
            stage.produce(1, batches)
            stage.clean(1)
            first = stage.partition(1).machine.stored.index.at(stage.model.log_start)
            assert first is not None
            stage.partition(1).delete_below(first.last_offset + 1, lambda outcome: None)
            stage.run(0.5)
            holes.append(stage.partition(1).blanks_below_start)
            if holes[-1] != stage.model.hole:
                raise Violation(f"a hole of {holes[-1]}, not {stage.model.hole}")
        assert holes[0] == 0 < holes[1], "records went first, then nothing but blanks"
        stage.crash(3)
        stage.produce(1, 4)
        for _ in range(2):
            stage.node(1).checkpoint()
            stage.look(1)
            stage.run(1.0)
        stage.start(3)
        stage.crash(2)
        stage.start(2)
        stage.run(3.0)
        stage.finish()
