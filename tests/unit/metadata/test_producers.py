"""Producer ids and names in the metadata state: never twice, fenced, expired, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cluster.metadata.producer_ids import BLOCKS_PER_LIFETIME, IssuedBlocks
from cluster.metadata.producer_names import MAX_EPOCH, ProducerNames
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import Rejected
from cluster.v1 import metadata_pb2 as pb

LIFETIME = 1_000
EXPIRY = 5_000


class Log:
    def __init__(self) -> None:
        self.state = MetadataState(lease_lifetime_ms=LIFETIME, name_expiry_ms=EXPIRY)
        self.index = 0
        self.now_ms = 10

    def apply(self, command: pb.MetadataCommand) -> pb.MetadataResult:
        self.index += 1
        command.stamp_ms = self.now_ms
        return pb.MetadataResult.FromString(
            self.state.apply(self.index, command.SerializeToString())
        )

    def allocate(self, count=100) -> pb.MetadataResult:
        return self.apply(
            pb.MetadataCommand(allocate_producer_ids=pb.AllocateProducerIds(node_id=1, count=count))
        )

    def lease(self, name: str, nonce=0, fence_only=False) -> tuple[int, int]:
        command = pb.LeaseName(name=name, nonce=nonce, fence_only=fence_only)
        result = self.apply(pb.MetadataCommand(lease_name=command))
        if result.error:
            raise Rejected(result.error, result.message)
        return result.producer_id, result.epoch

    def fence(self, name: str, nonce=0) -> tuple[int, int]:
        return self.lease(name, nonce, fence_only=True)

    def expired_below(self) -> int:
        return self.state.expired_below(self.now_ms, LIFETIME)


@pytest.fixture
def log() -> Log:
    return Log()


# --- blocks --------------------------------------------------------------------------


def test_blocks_follow_each_other(log):
    assert log.allocate(100).first_producer_id == 1
    assert log.allocate(5).first_producer_id == 101
    assert log.allocate(1).first_producer_id == 106
    assert log.state.is_issued(106)
    assert not log.state.is_issued(107)
    assert not log.state.is_issued(0)


@pytest.mark.parametrize("count", [0, -1, 100_001])
def test_block_size_is_limited(log, count):
    result = log.allocate(count)
    assert result.error == "INVALID_REQUEST"
    assert "count: " in result.message
    assert log.state.next_producer_id == 1


def test_ids_end_before_they_wrap(log):
    snapshot = pb.MetadataSnapshot.FromString(log.state.dump())
    snapshot.next_producer_id = 2**63 - 3
    log.state.load(snapshot.SerializeToString())
    assert log.allocate(3).error == "NOT_SUPPORTED"
    assert log.allocate(2).first_producer_id == 2**63 - 3
    assert log.allocate(1).error == "NOT_SUPPORTED"
    with pytest.raises(Rejected, match="producer ids"):
        log.lease("n")


def test_expiry_watermark_rises_block_by_block(log):
    assert log.expired_below() == 1, "nothing was issued"
    log.allocate(100)
    log.now_ms += 400
    log.allocate(100)
    log.now_ms += 599
    assert log.expired_below() == 1
    log.now_ms += 1
    assert log.expired_below() == 101, "a block is expired a lifetime after it was issued"
    log.now_ms += 400
    assert log.expired_below() == 201, "all that were issued are expired, no others"
    log.allocate(1)
    assert log.expired_below() == 201
    assert log.state.is_issued(201)


def test_lease_begins_when_the_block_was_issued(log):
    log.allocate(100)
    log.now_ms += 300
    log.allocate(100)
    assert log.state.issued_ms(1) == 10
    assert log.state.issued_ms(100) == 10
    assert log.state.issued_ms(101) == 310
    log.now_ms += LIFETIME - 100
    log.allocate(100)
    assert log.state.issued_ms(100) is None, "over and forgotten"
    assert log.state.issued_ms(101) == 310


def test_block_records_are_bounded():
    blocks = IssuedBlocks()
    lifetime = 86_400_000
    for i in range(20_000):
        now = i * 13_000
        blocks.add(1 + i * 100, now, 1, lifetime)
        blocks.forget(now, lifetime)
        assert len(blocks) <= BLOCKS_PER_LIFETIME + 2


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0, 1, 7, 19, 99, 100, 19_999]), st.integers(1, 5)),
        min_size=1,
        max_size=60,
    ),
    lifetime=st.sampled_from([100, 1_000, 20_000]),
)
def test_no_id_expires_early_and_none_much_too_late(steps, lifetime):
    """Against a list of every id with its issue time."""
    blocks = IssuedBlocks()
    issued: list[int] = []
    now = watermark = 0
    for wait, count in steps:
        now += wait
        blocks.add(len(issued) + 1, now, 1, lifetime)
        issued += [now] * count
        blocks.forget(now, lifetime)
        span = max(1, lifetime // BLOCKS_PER_LIFETIME)
        found = blocks.expired_below(now, lifetime, len(issued) + 1)
        assert found >= watermark, "the watermark must not fall"
        watermark = found
        for producer_id, at in enumerate(issued, start=1):
            if producer_id < watermark:
                assert at + lifetime <= now
            else:
                assert at + lifetime + span > now
                since = blocks.issued_ms(producer_id)
                assert since is not None
                assert at <= since < at + span


# --- names ---------------------------------------------------------------------------


def test_each_lease_raises_the_epoch(log):
    log.allocate(100)
    assert log.lease("a") == (101, 0)
    assert log.lease("a") == (101, 1)
    assert log.lease("b") == (102, 0)
    assert log.allocate().first_producer_id == 103
    assert [n.name for n in log.state.names()] == ["a", "b"]
    assert log.state.holder(101).name == "a"
    assert log.state.holder(103) is None


def test_a_repeat_with_the_same_nonce_is_one_lease(log):
    assert log.lease("a", nonce=7) == (1, 0)
    before = log.state.name("a")
    log.now_ms += 10
    assert log.lease("a", nonce=7) == (1, 0)
    assert log.state.name("a") == before
    assert log.lease("a", nonce=8) == (1, 1)
    assert log.lease("a", nonce=0) == (1, 2)
    assert log.lease("a", nonce=0) == (1, 3), "no nonce, no repeat"


def test_fencing_raises_the_epoch_for_nobody(log):
    log.lease("a")
    log.now_ms += 100
    assert log.fence("a", nonce=3) == (1, 1)
    assert log.fence("a", nonce=3) == (1, 1)
    assert log.state.name("a").last_lease_ms == 10, "fencing is not using"
    assert log.lease("a") == (1, 2)


def test_fencing_an_unknown_name(log):
    before = log.state.dump()
    with pytest.raises(Rejected, match="'a' is not known") as caught:
        log.fence("a")
    assert caught.value.reason == "PRODUCER_NAME_NOT_FOUND"
    assert log.state.dump() == before


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\x00", "\x7f"])
def test_bad_names(log, name):
    before = log.state.dump()
    for change in (log.lease, log.fence):
        with pytest.raises(Rejected, match="producer_name: ") as caught:
            change(name)
        assert caught.value.reason == "INVALID_REQUEST"
    assert log.state.dump() == before


def test_any_other_text_is_a_name(log):
    assert log.lease("payments / ä 🎈 " + "x" * 200)


def with_epoch(log: Log, epoch: int) -> None:
    snapshot = pb.MetadataSnapshot.FromString(log.state.dump())
    snapshot.names[0].epoch = epoch
    log.state.load(snapshot.SerializeToString(), log.index)


def test_the_last_epoch_is_followed_by_a_new_id(log):
    log.lease("a")
    with_epoch(log, MAX_EPOCH - 1)
    assert log.lease("a") == (1, MAX_EPOCH)
    assert log.lease("a") == (2, 0)
    assert log.state.holder(1) is None
    with_epoch(log, MAX_EPOCH)
    assert log.fence("a") == (3, 0)
    assert log.state.next_producer_id == 4


def test_an_idle_name_becomes_a_tombstone_and_comes_back_with_a_new_id(log):
    log.lease("a")
    log.lease("a")
    log.now_ms += EXPIRY - 1
    log.allocate(1)
    assert log.state.holder(1) is not None
    log.now_ms += 1
    log.allocate(1)
    tombstone = log.state.name("a")
    assert tombstone.tombstone
    assert (tombstone.producer_id, tombstone.epoch) == (1, 1)
    assert log.state.holder(1) is None
    assert log.state.names() == []
    assert log.expired_below() > 1
    with pytest.raises(Rejected, match="not known"):
        log.fence("a")
    assert log.lease("a") == (4, 2), "its old id may be forgotten where it wrote"
    assert not log.state.name("a").tombstone


def test_a_name_that_nobody_swept_yet_counts_as_expired(log):
    log.lease("a", nonce=9)
    log.now_ms += EXPIRY
    with pytest.raises(Rejected, match="not known"):
        log.fence("a")
    assert log.lease("a", nonce=9) == (2, 1), "not the dead lease once more"


def test_use_keeps_a_name(log):
    for epoch in range(10):
        assert log.lease("a") == (1, epoch)
        log.now_ms += EXPIRY - 1


def test_a_full_table_gives_up_tombstones_but_no_name_in_use():
    names = ProducerNames(limit=3)
    for i, name in enumerate("abc"):
        names.lease(name, 0, i, EXPIRY, 1 + i)
    with pytest.raises(Rejected, match="3 names are in use, which is the limit"):
        names.lease("d", 0, 10, EXPIRY, 4)
    assert [n.name for n in names] == ["a", "b", "c"]
    names.lease("a", 0, 10, EXPIRY, 4)
    names.lease("d", 0, EXPIRY + 2, EXPIRY, 4)
    assert [(n.name, n.tombstone) for n in names] == [("c", True), ("a", False), ("d", False)]
    assert len(names) == 3


# --- all together --------------------------------------------------------------------

NAMES = ("a", "b", "c")


class Replicas(RuleBasedStateMachine):
    """Random commands; one replica restarts from snapshots, one never does."""

    def __init__(self) -> None:
        super().__init__()
        self.steady = Log()
        self.restarted = MetadataState(lease_lifetime_ms=LIFETIME, name_expiry_ms=EXPIRY)
        self.issued: set[int] = set()
        self.leases: set[tuple[int, int]] = set()
        self.highest_epoch: dict[int, int] = {}
        self.watermark = 0

    def run(self, command: pb.MetadataCommand) -> pb.MetadataResult:
        before = self.steady.state.dump()
        result = self.steady.apply(command)
        answer = self.restarted.apply(self.steady.index, command.SerializeToString())
        assert pb.MetadataResult.FromString(answer) == result
        if result.error:
            assert self.steady.state.dump() == before
        return result

    @rule(wait=st.integers(0, EXPIRY))
    def time_passes(self, wait):
        self.steady.now_ms += wait

    @rule(back=st.integers(1, EXPIRY))
    def another_leader_is_slow(self, back):
        self.steady.now_ms = max(1, self.steady.now_ms - back)

    @rule(count=st.integers(-1, 300))
    def allocate(self, count):
        command = pb.AllocateProducerIds(node_id=1, count=count)
        result = self.run(pb.MetadataCommand(allocate_producer_ids=command))
        if not result.error:
            self.take(range(result.first_producer_id, result.first_producer_id + count))

    def take(self, ids):
        assert self.issued.isdisjoint(ids), "a producer id was issued twice"
        self.issued.update(ids)

    @rule(name=st.sampled_from(NAMES), nonce=st.integers(0, 3), fence=st.booleans())
    def lease(self, name, nonce, fence):
        known = self.steady.state.name(name)
        command = pb.LeaseName(name=name, nonce=nonce, fence_only=fence)
        result = self.run(pb.MetadataCommand(lease_name=command))
        if result.error:
            assert fence
            return
        pair = (result.producer_id, result.epoch)
        if known is not None and pair == (known.producer_id, known.epoch):
            assert nonce, "only a repeat may get the same lease"
            assert nonce == known.last_nonce
            return
        assert pair not in self.leases, "a (producer id, epoch) was leased twice"
        self.leases.add(pair)
        if result.producer_id not in self.highest_epoch:
            self.take([result.producer_id])
        else:
            assert result.epoch > self.highest_epoch[result.producer_id]
        self.highest_epoch[result.producer_id] = result.epoch
        holder = self.steady.state.holder(result.producer_id)
        assert holder is not None
        assert holder.name == name

    @rule(node_id=st.integers(0, 4), address=st.sampled_from(["", "a:1", "b:2"]))
    def register(self, node_id, address):
        command = pb.RegisterNode(node_id=node_id, address=address)
        self.run(pb.MetadataCommand(register_node=command))

    @rule(
        name=st.sampled_from(["t", "u", "__v"]),
        placements=st.lists(st.lists(st.integers(1, 4), max_size=3), max_size=3),
        retention=st.integers(-2, 2),
    )
    def create(self, name, placements, retention):
        command = pb.CreateTopic(
            name=name, placements=[pb.Placement(replicas=nodes) for nodes in placements]
        )
        command.config.retention_ms = retention
        self.run(pb.MetadataCommand(create_topic=command))

    @rule(name=st.sampled_from(["t", "u"]))
    def delete(self, name):
        self.run(pb.MetadataCommand(delete_topic=pb.DeleteTopic(name=name)))

    @rule()
    def restart_from_snapshot(self):
        data = self.restarted.dump()
        self.restarted = MetadataState(lease_lifetime_ms=LIFETIME, name_expiry_ms=EXPIRY)
        self.restarted.load(data, self.steady.index)

    @invariant()
    def replicas_are_equal(self):
        assert self.steady.state.dump() == self.restarted.dump()

    @invariant()
    def the_watermark_never_falls(self):
        watermark = self.steady.state.expired_below(self.steady.state.clock_ms, LIFETIME)
        assert watermark >= self.watermark
        assert watermark <= self.steady.state.next_producer_id
        self.watermark = watermark


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
