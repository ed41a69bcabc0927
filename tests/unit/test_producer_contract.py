"""Names, leases and log time over real partitions and metadata, with clocks of our own.

Two replicas of one partition apply one log at once; each node has a copy of the
metadata that follows when the test says so. What takes days in a cluster is a
line here; the same rules over real nodes are tested in tests/integration.
"""

from __future__ import annotations

import pytest

from cluster.consensus.proposals import Applied
from cluster.dedup.in_flight import BatchMeta, Kind
from cluster.metadata.state import MetadataState
from cluster.partition.replica import Answer, AppendRequest, Partition
from cluster.partition.types import Policy
from cluster.v1 import metadata_pb2 as pb
from storage.offset_index import OffsetIndex
from tests.sim.disk import Disk

HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_000 * DAY


class OneLog:
    """The group as a node's partition sees it: what it proposes is committed at once."""

    failed = None

    def __init__(self, world: World, node: int) -> None:
        self._world, self._node = world, node

    @property
    def is_leader(self) -> bool:
        return self._world.leader == self._node

    is_ready = is_leader

    @property
    def leader_id(self) -> int:
        return self._world.leader

    def propose(self, data, done):
        done(self._world.commit(self._node, data))

    def confirm(self, done):
        done(Applied(0, None))


class World:
    """Nodes 1 and 2: the metadata log, the partition's log, one clock for each node."""

    def __init__(self, lifetime_ms: int = DAY, expiry_ms: int = 7 * DAY, capacity: int = 100):
        self.now = {1: START, 2: START}
        self.terms = {"lease_lifetime_ms": lifetime_ms, "producer_name_expiry_ms": expiry_ms}
        self.commands: list[bytes] = []
        self.metadata = {node: MetadataState() for node in (1, 2)}
        self.index = 1
        self.disks = {node: Disk() for node in (1, 2)}
        self.leader = 0
        self.parts = {node: self._partition(node, capacity) for node in (1, 2)}
        self.lead(1)

    def _partition(self, node: int, capacity: int) -> Partition:
        metadata = self.metadata[node]

        def expired_below() -> int:
            return metadata.expired_below(self.now[node], metadata.lease_lifetime_ms)

        policy = Policy(
            lease_lifetime_ms=self.terms["lease_lifetime_ms"],
            expired_below=expired_below,
            names=metadata,
        )
        partition = Partition(
            "t",
            0,
            OffsetIndex(self.disks[node], 16),
            policy,
            now_ms=lambda: self.now[node],
            touch=lambda: None,
            capacity=capacity,
        )
        partition.group = OneLog(self, node)  # type: ignore[assignment]
        return partition

    def lead(self, node: int) -> None:
        for other, partition in self.parts.items():
            self.leader = node
            partition.on_role(leader=other == node, ready=other == node, term=self.index)

    def commit(self, node: int, data: bytes) -> Applied:
        self.index += 1
        results = {}
        for other, partition in self.parts.items():
            batch = self.disks[other].batch()
            results[other] = partition.apply(self.index, 1, data, batch)
            self.disks[other].write(batch)
        assert results[1] == results[2]
        assert self.parts[1].dump() == self.parts[2].dump()
        return Applied(self.index, results[node])

    def passes(self, ms: int) -> None:
        for node in self.now:
            self.now[node] += ms

    # -- metadata

    def command(self, command: pb.MetadataCommand, *nodes: int) -> pb.MetadataResult:
        """Commits; the given nodes (all, if none) have applied it when this returns."""
        command.stamp_ms = self.now[1]
        command.lease_lifetime_ms = self.terms["lease_lifetime_ms"]
        command.producer_name_expiry_ms = self.terms["producer_name_expiry_ms"]
        self.commands.append(command.SerializeToString())
        results = [self.catch_up(node) for node in nodes or (1, 2)]
        return results[-1]

    def catch_up(self, node: int) -> pb.MetadataResult:
        state, answer = self.metadata[node], b""
        while state.applied_index < len(self.commands):
            answer = state.apply(state.applied_index + 1, self.commands[state.applied_index])
        return pb.MetadataResult.FromString(answer)

    def fresh(self) -> int:
        command = pb.AllocateProducerIds(node_id=1, count=1)
        return self.command(pb.MetadataCommand(allocate_producer_ids=command)).first_producer_id

    def lease(self, name: str, *nodes: int, fence: bool = False) -> tuple[int, int]:
        command = pb.LeaseName(name=name, fence_only=fence)
        result = self.command(pb.MetadataCommand(lease_name=command), *nodes)
        assert not result.error, result
        return result.producer_id, result.epoch

    # -- the partition's leader

    def send(self, pid: int, epoch: int, sequence: int, prev: int | None = None) -> Answer:
        answers: list[Answer] = []
        payload = b"%d/%d" % (pid, sequence)
        meta = BatchMeta(
            pid, epoch, sequence, sequence, sequence - 1 if prev is None else prev, 1, sequence
        )
        request = AppendRequest(meta, 0, 0, 0, payload)
        self.parts[self.leader].append(request, answers.append)
        (answer,) = answers
        return answer

    def kind(self, pid: int, epoch: int, sequence: int, **more: int) -> str:
        return self.send(pid, epoch, sequence, **more).verdict.kind.name

    def open(self, pid: int, epoch: int) -> Answer:
        answers: list[Answer] = []
        self.parts[self.leader].open_producer(pid, epoch, answers.append)
        (answer,) = answers
        return answer

    def duty(self) -> None:
        self.parts[self.leader].look_after_producers()


@pytest.fixture
def world() -> World:
    return World()


def test_a_fresh_producer_silent_for_eight_days_is_expired(world):
    pid = world.fresh()
    assert world.kind(pid, 0, 0) == "APPENDED"
    world.passes(DAY - 1)
    assert world.kind(pid, 0, 0) == "DUPLICATE"
    assert world.kind(pid, 0, 1) == "APPENDED", "its lease has a millisecond left"
    world.passes(7 * DAY)
    assert world.kind(pid, 0, 2) == "PRODUCER_EXPIRED"
    world.duty()
    for epoch in (0, 1):
        for sequence in (0, 1, 2):
            assert world.kind(pid, epoch, sequence) == "PRODUCER_EXPIRED"
    assert world.open(pid, 1).verdict.kind is Kind.PRODUCER_EXPIRED
    assert world.parts[1].next_offset == 2
    assert len(world.parts[2].last_seen) == 0


def test_a_name_that_is_leased_in_time_goes_on_after_eight_silent_days(world):
    pid, epoch = world.lease("n")
    for sequence in range(3):
        assert world.kind(pid, epoch, sequence) == "APPENDED"
    world.passes(4 * DAY)
    assert world.lease("n") == (pid, epoch + 1)
    world.passes(4 * DAY)
    other = world.fresh()
    assert world.kind(other, 0, 0) == "APPENDED", "and takes log time on"
    world.duty()
    assert world.kind(pid, epoch, 2) == "DUPLICATE", "never opened: pinned by its first batch"
    opened = world.open(pid, epoch + 1).verdict
    assert (opened.kind, opened.last_sequence, opened.base_offset) == (Kind.APPENDED, 2, 2)
    assert world.kind(pid, epoch, 3) == "FENCED"
    assert world.kind(pid, epoch + 1, 3) == "APPENDED"


def test_a_name_silent_for_eight_days_comes_back_as_another_producer(world):
    pid, epoch = world.lease("n")
    assert world.open(pid, epoch).verdict.kind is Kind.APPENDED
    assert world.kind(pid, epoch, 0) == "APPENDED"
    world.passes(8 * DAY)
    new, raised = world.lease("n")
    assert new > pid
    assert raised == epoch + 1
    # Nobody has released the old id yet; its zombies are stopped all the same.
    assert world.kind(pid, epoch, 1) == "PRODUCER_EXPIRED"
    assert world.kind(pid, epoch, 0) == "DUPLICATE"
    world.duty()
    assert world.parts[2].last_seen.describe(pid) is None
    for sequence in (0, 1):
        assert world.kind(pid, epoch, sequence) == "PRODUCER_EXPIRED"
    assert world.open(pid, raised).verdict.kind is Kind.PRODUCER_EXPIRED
    assert world.open(new, raised).verdict.last_sequence == -1
    assert world.kind(new, raised, 0) == "APPENDED"


def test_a_leader_whose_metadata_is_behind_cannot_bring_a_released_id_back(world):
    pid, epoch = world.lease("n")
    assert world.kind(pid, epoch, 0) == "APPENDED"
    world.passes(8 * DAY)
    world.command(
        pb.MetadataCommand(allocate_producer_ids=pb.AllocateProducerIds(node_id=1, count=1)), 1
    )
    assert world.metadata[1].holder(pid) is None
    assert world.metadata[2].holder(pid) is not None
    world.duty()
    assert world.parts[1].last_seen.describe(pid) is None
    world.lead(2)
    assert world.kind(pid, epoch, 0) == "PRODUCER_EXPIRED", "a retry must not be stored twice"
    assert world.open(pid, epoch).verdict.kind is Kind.NOT_READY
    assert world.open(pid, epoch + 1).verdict.kind is Kind.NOT_READY
    world.catch_up(2)
    assert world.open(pid, epoch + 1).verdict.kind is Kind.PRODUCER_EXPIRED
    assert world.parts[2].next_offset == 1


def test_apply_refuses_an_open_by_metadata_older_than_a_release(world):
    """The leader's own check is early only: the entry may be older than the release."""
    pid, epoch = world.lease("n")
    held_back: list[bytes] = []
    group = world.parts[1].group
    group.propose = lambda data, done: held_back.append(data)
    world.parts[1].open_producer(pid, epoch, lambda answer: None)
    del group.propose
    (entry,) = held_back
    world.parts[1].on_role(leader=True, ready=True, term=9)
    assert world.open(pid, epoch).verdict.kind is Kind.APPENDED
    world.passes(8 * DAY)
    world.fresh()
    world.duty()
    assert world.commit(1, entry).result.verdict.kind is Kind.NOT_READY
    assert world.parts[1].last_seen.describe(pid) is None


def test_a_leader_that_has_not_heard_of_a_name_does_not_release_it(world):
    pid, epoch = world.lease("n", 1)
    assert world.kind(pid, epoch, 0) == "APPENDED"
    assert world.metadata[2].holder(pid) is None
    world.lead(2)
    world.passes(2 * DAY)
    world.duty()
    assert world.parts[2].last_seen.describe(pid).pinned
    world.catch_up(2)
    world.duty()
    assert world.kind(pid, epoch, 0) == "DUPLICATE"
    assert world.kind(pid, epoch, 1) == "APPENDED"


def test_a_named_producer_of_many_days_opens_where_it_has_never_written(world):
    pid, epoch = world.lease("n")
    world.passes(2 * DAY)
    world.fresh()
    answer = world.send(pid, epoch, 0).verdict
    assert answer.kind is Kind.PRODUCER_EXPIRED
    assert "has to open the partition" in answer.message
    assert world.open(pid, epoch).verdict.kind is Kind.APPENDED
    assert world.kind(pid, epoch, 0) == "APPENDED"


def test_fencing_by_name_stops_what_nobody_opened(world):
    pid, epoch = world.lease("n")
    assert world.kind(pid, epoch, 0) == "APPENDED"
    assert world.lease("n") == (pid, epoch + 1)
    assert world.kind(pid, epoch, 1) == "APPENDED", "a lease alone fences nowhere"
    assert world.lease("n", fence=True) == (pid, epoch + 2)
    for old in (epoch, epoch + 1):
        answer = world.send(pid, old, 2).verdict
        assert (answer.kind, answer.current_epoch) == (Kind.FENCED, epoch + 2)
        assert world.open(pid, old).verdict.kind is Kind.FENCED
    assert world.lease("n") == (pid, epoch + 3)
    assert world.open(pid, epoch + 3).verdict.last_sequence == 1


def test_a_leader_with_a_slow_clock_does_not_turn_time_back(world):
    pid = world.fresh()
    assert world.kind(pid, 0, 0) == "APPENDED"
    world.passes(2 * DAY)
    world.duty()
    assert len(world.parts[1].last_seen) == 0
    world.now[2] -= 2 * DAY
    world.lead(2)
    assert world.kind(pid, 0, 0) == "PRODUCER_EXPIRED"
    assert world.kind(pid, 0, 1) == "PRODUCER_EXPIRED"
    assert world.parts[2].clock_ms == START + 2 * DAY


def test_time_passes_in_a_full_partition_where_nobody_can_write():
    world = World(capacity=3)
    for _ in range(3):
        assert world.kind(world.fresh(), 0, 0) == "APPENDED"
    late = world.fresh()
    assert world.kind(late, 0, 0) == "THROTTLED"
    assert world.open(late, 0).verdict.kind is Kind.THROTTLED
    assert world.parts[1].producers_throttled == 2
    world.passes(DAY)
    young = world.fresh()
    assert world.kind(young, 0, 0) == "THROTTLED"
    world.duty()
    assert world.kind(young, 0, 0) == "APPENDED"


def test_a_restored_replica_keeps_to_its_capacity(world):
    small = World(capacity=2)
    pid, epoch = small.lease("n")
    assert small.kind(pid, epoch, 0) == "APPENDED"
    assert small.kind(small.fresh(), 0, 0) == "APPENDED"
    small.passes(8 * DAY)
    small.fresh()
    small.duty()
    assert small.parts[1].names_index > 0
    for partition in small.parts.values():
        state = partition.dump()
        partition.restore(state, small.index)
        assert partition.dump() == state
        assert partition.last_seen.capacity == 2
