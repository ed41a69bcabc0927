"""One seed, one run: producers and their successors, faults, then healing and the checks."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cluster.consensus.proposals import Abandoned, Done, Outcome
from cluster.entries import METADATA as METADATA_ENTRY
from cluster.v1 import metadata_pb2 as pb
from tests.sim.transactions.checker import Checker
from tests.sim.transactions.clients import Producer, command
from tests.sim.transactions.commands import topic_of
from tests.sim.transactions.kafka import KafkaProducer
from tests.sim.transactions.leaders import MetadataLeader, PartitionLeader
from tests.sim.transactions.machines import metadata_of, partition_of
from tests.sim.transactions.offsets import OffsetsLeader
from tests.sim.transactions.pipeline import Worker
from tests.sim.transactions.sink import Sink
from tests.sim.transactions.world import METADATA, Faults, Group, World

STEPS = 700
HEALED_STEPS = 40_000
KAFKA_EVERY = 3  # of these seeds one has producers of Kafka's protocol


@dataclass
class Result:
    """A run's results; `error` is empty if every check held."""

    seed: int
    error: str = ""
    counts: Counter[str] = field(default_factory=Counter)


def make_world(seed: int) -> tuple[World, Checker]:
    """A metadata group and no partitions, calm."""
    checker = Checker()
    world = World(random.Random(seed), checker.observe, checker.answered)
    world.groups[METADATA] = Group(world, METADATA, metadata_of, MetadataLeader)
    return world, checker


def propose(world: World, done: Done, **command: Any) -> None:
    group = world.groups[METADATA]
    data = pb.MetadataCommand(**command).SerializeToString()
    group.seats[group.lead].propose(bytes((METADATA_ENTRY,)) + data, done)


def add_partition(world: World, leader: type[PartitionLeader] = PartitionLeader) -> int:
    """A new partition, known to the metadata; they number the partitions alike."""
    number = max(world.groups) + 1
    world.groups[number] = Group(world, number, partition_of, leader)
    create = pb.CreateTopic(name=topic_of(number, leader is OffsetsLeader))
    create.placements.add(replicas=[1])

    def again(outcome: Outcome) -> None:
        if isinstance(outcome, Abandoned):
            propose(world, again, create_topic=create)

    propose(world, again, create_topic=create)
    return number


def drop_partition(world: World, number: int) -> None:
    """Deletes a partition in the metadata; its replicas are closed after that, as on a node."""

    def dropped(outcome: Outcome) -> None:
        if world.groups[METADATA].machine.state.partition(number) is None:
            world.groups[number].close()

    propose(world, dropped, delete_topic=pb.DeleteTopic(name=topic_of(number, offsets=False)))


class Run:
    """A random schedule."""

    def __init__(self, seed: int) -> None:
        self.world, self.checker = make_world(seed)
        self.rng = self.world.rng
        self.counts: Counter[str] = Counter()
        self.producers: list[Producer | KafkaProducer | Sink] = []
        self.groups = [add_partition(self.world) for _ in range(self.rng.randint(1, 3))]
        self.nonce = self.sinks = self.offsets = 0
        if self.rng.random() < 0.4:
            self.offsets = add_partition(self.world, OffsetsLeader)
        self.world.settle()
        self.world.shuffled = self.rng.random() < 0.9
        self.world.faults = Faults(*(self.rng.choice((0.0, 0.02, 0.1)) for _ in range(3)))
        for name in range(self.rng.randint(1, 2)):
            self._start(f"p{name}")
        if self.rng.random() < 0.3:
            self._start_sink()
        if seed % KAFKA_EVERY == 0:
            for name in range(self.rng.randint(1, 2)):
                self._start_kafka(f"k{name}")
        self.by_members = self.rng.random() < 0.7
        if self.offsets:
            for partition in range(self.rng.randint(1, 2)):
                self._start_worker(partition)

    def _start_worker(self, partition: int) -> None:
        self.nonce += 1
        member = f"member {self.nonce}" if self.by_members else ""
        worker = Worker(
            self.world, self.checker, self.rng, self.nonce, partition, self.offsets, member=member
        )
        self.producers.append(worker)
        self.world.spawn(worker.live(list(self.groups), self.rng.randint(2, 6)))

    def _start(self, name: str) -> None:
        self.nonce += 1
        producer = Producer(self.world, self.checker, self.rng, name, self.nonce)
        self.producers.append(producer)
        self.world.spawn(producer.live(list(self.groups), self.rng.randint(2, 8)))

    def _start_kafka(self, name: str) -> None:
        self.nonce += 1
        producer = KafkaProducer(self.world, self.checker, self.rng, name, self.nonce)
        self.producers.append(producer)
        self.world.spawn(producer.live(list(self.groups), self.rng.randint(2, 8)))

    def _start_sink(self) -> None:
        self.sinks += 1
        sink = Sink(self.world, self.checker, self.rng, f"run {self.sinks}")
        self.producers.append(sink)
        self.world.spawn(sink.live(list(self.groups), self.rng.randint(1, 4)))

    def run(self) -> None:
        for _ in range(self.rng.randint(STEPS // 4, STEPS)):
            self._step()
        self._heal()
        self.checker.finish(self.world.groups)

    def _step(self) -> None:
        world, rng = self.world, self.rng
        chance = rng.random()
        if chance < 0.60:
            if not world.deliver_one() and not self._commit():
                world.wake()
        elif chance < 0.90:
            self._commit()
        elif chance < 0.93:
            world.wake()
        elif chance < 0.96:
            world.deliver_late()
        else:
            self._fault()

    def _commit(self) -> bool:
        waiting = [group for group in self.world.groups.values() if group.pending]
        if waiting:
            group = self.rng.choice(waiting)
            group.commit(self.rng.randint(1, len(group.pending)))
        return bool(waiting)

    def _fault(self) -> None:
        rng, world = self.rng, self.world
        group = rng.choice([group for group in world.groups.values() if not group.gone])
        replica = rng.randrange(len(group.machines))
        fault = rng.choice(
            ("elect", "elect", "follow", "save", "restart", "install", "expire", "successor",
             "drop", "operator", "clock")
        )  # fmt: skip
        self.counts[fault] += 1
        if fault == "elect":
            group.change_leader(rng.randint(0, len(group.pending)))
        elif fault == "follow":
            group.follow(replica)
        elif fault == "save":
            group.save(replica)
        elif fault == "restart":
            group.restart(replica)
        elif fault == "install":
            group.install(replica)
        elif fault == "expire":
            world.now += rng.choice((1.0, 1900.0, 4000.0))
        elif fault == "clock":
            world.wall_ms = rng.randrange(10**9)
        elif fault == "successor" and len(self.producers) < (8 if self.offsets else 5):
            known = rng.choice(self.producers)
            if isinstance(known, Worker):
                self._start_worker(known.partition)
            elif isinstance(known, KafkaProducer):
                self._start_kafka(known.name)
            elif isinstance(known, Producer):
                self._start(known.name)
            else:
                self._start_sink()
        elif fault == "drop" and rng.random() < 0.3 and group.number in self.groups and self._drops:
            drop_partition(world, group.number)
            self.groups.append(add_partition(world))
        elif fault == "operator":
            self._operator()

    @property
    def _drops(self) -> bool:
        """Tells whether topics are deleted: sinks and workers keep the topics they began with."""
        return not (self.sinks or self.offsets)

    def _operator(self) -> None:
        coordinator = self.world.groups[METADATA].machine.state.coordinator
        for row in list(coordinator.unfinished())[:1]:
            call = command(
                "abort", transaction_id=row.transaction_id, holder=None, reason="operator"
            )
            self.world.call(call, lambda answer: None)

    def _heal(self) -> None:
        """Ends all faults: every process finishes, and transactions without an owner expire."""
        world = self.world
        world.faults = Faults()
        if self.rng.random() < 0.5:
            world.groups[METADATA].change_leader(0)
        for producer in self.producers:
            producer.stopped = True
        for step in range(HEALED_STEPS):
            if not world.deliver_one() or step % 20 == 0:
                world.wake()
            for group in list(world.groups.values()):
                group.commit(len(group.pending))
            if all(producer.done for producer in self.producers) and not world.queue:
                break
        else:
            stuck = [producer.name for producer in self.producers if not producer.done]
            self.checker.fail(f"producers do not come to an end: {stuck}")
        while world.late:
            world.deliver_late()
        world.settle()
        for _ in range(3):
            world.now += 100_000.0
            world.settle()


def run_seed(seed: int) -> Result:
    """Runs one seed; equal seeds give equal runs until the code changes."""
    result = Result(seed)
    run: Run | None = None
    try:
        run = Run(seed)
        run.run()
    except Exception as error:  # noqa: BLE001 - any error is the run's result
        result.error = f"{type(error).__name__}: {error}"
    if run is not None:
        result.counts = run.counts
        result.counts["committed"] = sum(run.checker.decided.values())
        result.counts["aborted"] = len(run.checker.decided) - result.counts["committed"]
        result.counts["records"] = sum(map(len, run.checker.readable.values()))
    return result
