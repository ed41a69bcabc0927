"""Names, leases and log time over real partitions and metadata, with clocks of our own.

The same rules over real nodes are tested in tests/integration.
"""

from __future__ import annotations

import pytest

from cluster.consensus.proposals import Abandoned, Done
from cluster.dedup.verdict import Kind
from cluster.v1 import metadata_pb2 as pb
from tests.unit.partition.replica_world import DAY, START, World


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
    assert world.parts[1].high_watermark == 2
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
    assert world.parts[2].high_watermark == 1


def test_apply_refuses_an_open_by_metadata_older_than_a_release(world):
    """The leader's own check is early only: the entry may be older than the release."""
    pid, epoch = world.lease("n")
    held_back: list[tuple[bytes, Done]] = []
    group = world.parts[1].group
    group.propose = lambda data, done, **_: held_back.append((data, done))
    world.parts[1].open_producer(pid, epoch, lambda answer: None)
    del group.propose
    ((entry, done),) = held_back
    done(Abandoned(0, "its leader stepped down"))
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
    assert world.parts[2].machine.clock_ms == START + 2 * DAY


def test_time_passes_in_a_full_partition_where_nobody_can_write():
    world = World(capacity=3)
    for _ in range(3):
        assert world.kind(world.fresh(), 0, 0) == "APPENDED"
    late = world.fresh()
    assert world.kind(late, 0, 0) == "THROTTLED"
    assert world.open(late, 0).verdict.kind is Kind.THROTTLED
    assert world.parts[1].counters.producers_throttled == 2
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
        partition.restore(partition.load(state), small.index)
        assert partition.dump() == state
        assert partition.last_seen.capacity == 2
