"""Terms of leases and names: the log decides them, and takeovers of a name."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.metadata.state import MetadataState, TermsChanged
from cluster.metadata.topics import DAY_MS
from cluster.v1 import metadata_pb2 as pb

HOUR = 3_600_000


class Log:
    """The metadata log and two replicas, on nodes with different settings."""

    def __init__(self) -> None:
        self.states = [MetadataState(), MetadataState()]
        self.now_ms = 10
        self.index = 0

    @property
    def state(self) -> MetadataState:
        assert self.states[0].dump() == self.states[1].dump()
        return self.states[0]

    def apply(self, command: pb.MetadataCommand, lifetime=0, expiry=0) -> pb.MetadataResult:
        self.index += 1
        command.stamp_ms = self.now_ms
        command.lease_lifetime_ms, command.producer_name_expiry_ms = lifetime, expiry
        data = command.SerializeToString()
        first, second = (state.apply(self.index, data) for state in self.states)
        assert first == second
        return pb.MetadataResult.FromString(first)

    def allocate(self, lifetime=0, expiry=0) -> int:
        command = pb.AllocateProducerIds(node_id=1, count=100)
        return self.apply(
            pb.MetadataCommand(allocate_producer_ids=command), lifetime, expiry
        ).first_producer_id

    def lease(self, name: str, **fields: Any) -> pb.MetadataResult:
        return self.apply(pb.MetadataCommand(lease_name=pb.LeaseName(name=name, **fields)))

    def terms(self) -> tuple[int, int]:
        return self.state.lease_lifetime_ms, self.state.name_expiry_ms


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_shortest_ever_stamped_is_in_force(log):
    assert log.terms() == (DAY_MS, 7 * DAY_MS)
    log.allocate(2 * DAY_MS, 9 * DAY_MS)
    assert log.terms() == (2 * DAY_MS, 9 * DAY_MS), "a cluster may begin with longer ones"
    log.allocate(DAY_MS, 20 * DAY_MS)
    assert log.terms() == (DAY_MS, 9 * DAY_MS)
    log.allocate(3 * DAY_MS, 3 * DAY_MS)
    assert log.terms() == (DAY_MS, 3 * DAY_MS)
    log.allocate()
    assert log.terms() == (DAY_MS, 3 * DAY_MS)


def test_an_increase_does_not_make_forgotten_ids_valid(log):
    log.allocate(HOUR, 2 * HOUR)
    log.now_ms += HOUR
    assert log.allocate(HOUR, 2 * HOUR) == 101
    log.allocate(30 * DAY_MS, 60 * DAY_MS)
    assert log.state.expired_below(log.now_ms, log.state.lease_lifetime_ms) == 101
    assert log.state.issued_ms(1) is None
    loaded = MetadataState(lease_lifetime_ms=30 * DAY_MS, name_expiry_ms=60 * DAY_MS)
    loaded.load(log.state.dump(), log.index)
    assert (loaded.lease_lifetime_ms, loaded.name_expiry_ms) == (HOUR, 2 * HOUR)
    assert loaded.dump() == log.state.dump()


def test_a_rejected_command_changes_no_terms(log):
    before = log.state.dump()
    assert log.apply(pb.MetadataCommand(), HOUR, HOUR).error == "NOT_SUPPORTED"
    assert log.state.dump() == before
    assert log.terms() == (DAY_MS, 7 * DAY_MS)


def test_a_change_is_reported_once_and_after_a_load(log):
    log.allocate(HOUR, 2 * HOUR)
    log.allocate(HOUR, 2 * HOUR)
    assert log.state.take_events() == [TermsChanged()]
    fresh = MetadataState()
    fresh.load(log.state.dump(), log.index)
    assert fresh.take_events() == [TermsChanged()]


def test_a_name_never_expires_before_its_leases(log):
    log.allocate(HOUR, 2 * HOUR)
    log.allocate(0, HOUR // 2)
    assert log.terms() == (HOUR, HOUR)


def test_ten_thousand_attempts_of_one_start_raise_the_epoch_once(log):
    first = log.lease("n", nonce=1)
    for _ in range(10_000):
        log.now_ms += 1
        again = log.lease("n", nonce=2)
        assert (again.producer_id, again.epoch) == (first.producer_id, first.epoch + 1)
    assert log.state.next_producer_id == 2


def test_only_the_holder_renews(log):
    pid = log.lease("n").producer_id
    renewed = log.lease("n", held_producer_id=pid, held_epoch=0, nonce=5)
    assert (renewed.producer_id, renewed.epoch) == (pid, 1)
    again = log.lease("n", held_producer_id=pid, held_epoch=0, nonce=5)
    assert again.epoch == 1, "its own repeat"
    before = log.state.dump()
    for held in (0, 2):
        assert log.lease("n", held_producer_id=pid, held_epoch=held, nonce=6).error == "FENCED"
    assert log.lease("n", held_producer_id=pid + 1, held_epoch=1).error == "FENCED"
    assert log.state.dump() == before
    log.now_ms += 7 * DAY_MS
    late = log.lease("n", held_producer_id=pid, held_epoch=1)
    assert (late.error, late.epoch) == ("", 2), "nobody came in between"
    assert late.producer_id != pid


def test_internal_topics_are_made_by_the_nodes_only(log):
    log.apply(pb.MetadataCommand(register_node=pb.RegisterNode(node_id=1, address="a:1")))

    def create(name: str) -> str:
        command = pb.CreateTopic(name=name, placements=[pb.Placement(replicas=[1])])
        command.config.retention_ms = -1
        return str(log.apply(pb.MetadataCommand(create_topic=command)).error)

    assert create("__offsets") == ""
    assert create("__offsets") == "TOPIC_ALREADY_EXISTS"
    assert create("__other") == "INVALID_REQUEST"
    for command in (
        pb.MetadataCommand(delete_topic=pb.DeleteTopic(name="__offsets")),
        pb.MetadataCommand(alter_topic=pb.AlterTopic(name="__offsets")),
    ):
        assert log.apply(command).error == "INVALID_REQUEST"
    assert log.state.topic("__offsets") is not None
