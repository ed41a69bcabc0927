"""Carried batches: the judgement on each, their rows, the log that is kept, answers behind them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import crc32c
import pytest

from cluster.consensus.proposals import Applied, Done
from cluster.dedup.last_seen import KAFKA_LIFETIME_MS
from cluster.dedup.verdict import BatchMeta
from cluster.entries import KAFKA_V2, CarriedEntry, LogStartEntry, pack_carried, pack_log_start
from cluster.features import COMPACTION, Features, Finalized
from cluster.kafka import ids
from cluster.partition import batch_index
from cluster.partition import carried as carried_ranges
from cluster.partition.batch_index import BatchIndex
from cluster.partition.carried import CarriedRange, CarriedRanges
from cluster.partition.lookup import Miss, find_batch
from cluster.partition.reader import OffsetOutOfRangeError
from cluster.partition.types import Answer, AppendRequest
from cluster.services.log import fetch
from cluster.services.log.resolve import Resolver
from oncelog.v1 import log_pb2
from storage.errors import CorruptionError
from tests.unit.kafka.test_produce import kafka_node
from tests.unit.partition.replica_world import World
from tests.unit.partition.test_staged_partition import Replica
from tests.unit.services import log_rig
from tests.unit.services.log_rig import PAYLOAD, SECRET, TOPIC, LogNode, header, serving

NEWEST = 1 << 40


def carried(base: int, count: int, guard: int = NEWEST, freed: int = 0, **fields: Any) -> bytes:
    payload = b"%d+%d" % (base, count)
    crc, stamp_ms = crc32c.crc32c(payload), fields.get("stamp_ms", 1)
    blanks = fields.get("blanks", 0)
    entry = CarriedEntry(0, count, crc, base, guard, freed, 1, 1, stamp_ms, (), blanks)
    return pack_carried(entry, payload)


# -- the judgement ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "count", "guard", "replaces"),
    [
        (10, 10, 5, True),  # exactly the log's part that nobody carried
        (20, 10, 7, True),  # exactly one that was carried
        (10, 30, 9, True),  # all of it
        (50, 10, 1, True),
        (20, 10, 6, False),  # carried by a newer entry than its cleaner read
        (10, 30, 8, False),  # one of them was
        (9, 5, 99, False),  # below the log's start
        (55, 6, 99, False),  # above the log's end
        (10, 0, 99, False),
        (15, 10, 99, False),  # the end cuts a carried batch
        (25, 10, 99, False),  # both ends do
        (22, 2, 99, False),  # inside
        (35, 10, 99, False),  # the begin does
    ],
)
def test_a_carried_batch_replaces_what_its_cleaner_read(
    base: int, count: int, guard: int, replaces: bool
) -> None:
    ranges = CarriedRanges([CarriedRange(20, 10, 7), CarriedRange(30, 10, 9)])
    entry = CarriedEntry(0, count, 0, base, guard, 0, 0, 0, 0)
    assert ranges.judge(entry, 10, 60) == replaces


def test_carried_ranges_of_a_partition_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound only such carried batches count that take the place of others."""
    monkeypatch.setattr(carried_ranges, "MAX_RANGES", 2)
    ranges = CarriedRanges([CarriedRange(20, 10, 7), CarriedRange(30, 10, 9)])
    entry = CarriedEntry(0, 10, 0, 40, 9, 0, 0, 0, 0)
    assert not ranges.judge(entry, 10, 60)
    assert ranges.judge(entry._replace(base_offset=30), 10, 60)
    assert ranges.judge(entry._replace(base_offset=30, record_count=20), 10, 60)


def test_ranges_by_offset() -> None:
    ranges = CarriedRanges([CarriedRange(20, 10, 7), CarriedRange(30, 10, 9)])
    assert [ranges.is_cut_at(offset) for offset in (19, 20, 21, 29, 30, 39, 40)] == [
        False, False, True, True, False, True, False,
    ]  # fmt: skip
    assert [ranges.end_from(offset) for offset in (19, 20, 35, 40)] == [19, 40, 40, 40]
    assert (ranges.oldest_index(5), CarriedRanges().oldest_index(5)) == (7, 5)
    ranges.put(CarriedRange(10, 25 - 5, 12))
    assert (
        ranges.dump() == CarriedRanges([CarriedRange(10, 20, 12), CarriedRange(30, 10, 9)]).dump()
    )
    ranges.trim_below(30, 10)
    assert (len(ranges), ranges.oldest_index(100)) == (1, 9)


# -- rows and reads --------------------------------------------------------------------------------


@pytest.fixture(params=[16, 1], ids=["rows copied", "one row for the run"])
def replica(request: Any, monkeypatch: pytest.MonkeyPatch) -> Replica:
    monkeypatch.setattr(batch_index, "COPIED_BATCHES", request.param)
    return Replica()


def cleaned(replica: Replica) -> list[tuple[int, bytes]]:
    """Stores plain batches and a run, and carries some of them; returns the readable batches."""
    for first in range(0, 6, 2):
        replica.batch(first, 2, pid=2)
    for first in range(0, 6, 2):
        replica.batch(first, 2, number=5)
    replica.end(5, (1, 6, 5))
    for first in range(6, 10, 2):
        replica.batch(first, 2, pid=2)
    assert replica.put(carried(0, 4))
    assert replica.put(carried(4, 8))
    replica.batch(10, 2, pid=2)
    assert replica.put(carried(0, 14))
    assert not replica.put(carried(4, 8))
    return [(0, b"0+14"), (14, b"0/8"), (16, b"0/10")]


def test_carried_batches_are_read_at_their_offsets(replica: Replica) -> None:
    expected = cleaned(replica)
    assert replica.read() == expected
    assert replica.rows() == len(expected), "nothing is left of the run"
    for offset in range(18):
        base, data = replica.part.reading(offset, 1).run()[0]
        assert (base, data[96:]) == max(found for found in expected if found[0] <= offset)
    assert replica.part.high_watermark == 18


def test_a_carried_batch_counts_in_place_of_what_it_replaced(replica: Replica) -> None:
    for first in range(3):
        replica.batch(first)
    freed = sum(map(len, replica.log.entries[:2]))
    assert replica.put(carried(0, 2, freed=freed))
    stored = replica.part.machine.stored
    assert stored.stored_bytes == len(replica.log.entries[2]) + len(replica.log.entries[3])


@pytest.mark.parametrize("off_by", [1, -(1 << 40)])
def test_a_carried_batch_that_frees_what_is_not_there_changes_nothing(off_by: int) -> None:
    """The state could not be saved with less than nothing."""
    replica = Replica()
    for first in range(2):
        replica.batch(first)
    stored = replica.part.machine.stored
    assert not replica.put(carried(0, 2, freed=stored.stored_bytes + off_by))
    assert replica.put(carried(0, 2, freed=stored.stored_bytes))
    assert replica.part.dump()


def _fails_while_it_starts(replica: Replica, states: list[Any], end: int) -> list[tuple[int, int]]:
    """(checkpoint, offset) of reads that fail while a replica applies its log once more."""
    failed = []
    for applied, state in enumerate(states):
        if state is None or state[4] < 4:
            continue  # nothing was carried before
        replica.part = replica.open()
        machine = replica.part.machine
        machine.restore(machine.load(state))
        for index, data in list(enumerate(replica.log.entries, 1))[applied:]:
            batch = replica.disk.batch()
            replica.part.apply(index, 1, data, batch)
            replica.disk.write(batch)
            for offset in range(replica.part.high_watermark):
                try:
                    replica.part.reading(offset, 1).run()
                except OffsetOutOfRangeError:
                    failed.append((applied, offset))
        assert replica.part.high_watermark == end
    return failed


def _states(entries: list[bytes]) -> list[Any]:
    fresh, states = Replica(), list[Any]([None])
    for data in entries:
        fresh.put(data)
        states.append(fresh.part.dump())
    return states


def test_a_restart_at_any_checkpoint_shows_no_hole(replica: Replica) -> None:
    expected = cleaned(replica)
    states = _states(replica.log.entries)
    assert not _fails_while_it_starts(replica, states, 18)
    assert (replica.read(), replica.part.dump()) == (expected, states[-1])
    assert replica.rows() == len(expected)


def test_a_restart_that_puts_old_rows_back_shows_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above finds holes."""
    replica = Replica()
    cleaned(replica)
    monkeypatch.setattr(BatchIndex, "_is_replaced", lambda self, place: False)
    assert _fails_while_it_starts(replica, _states(replica.log.entries), 18)


def test_a_replica_that_was_given_a_state_reads_all_once_it_has_the_log(replica: Replica) -> None:
    """The batches below the state are gone from the log: others carry them."""
    expected = cleaned(replica)
    states = _states(replica.log.entries)
    given = 6
    follower = Replica()
    follower.log.entries = list(replica.log.entries)
    follower.log.base_index = given
    follower.restart(states[given], given)
    assert (follower.read(), follower.part.dump()) == (expected, states[-1])


@pytest.mark.parametrize(
    "last", [carried(0, 8), pack_log_start(LogStartEntry(0, 8, 0, 1))], ids=["carried", "deleted"]
)
def test_rows_of_a_run_go_in_the_round_that_published_it(
    monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    """A replica that is behind applies both in one round: the run's row is not on the disk yet."""
    monkeypatch.setattr(batch_index, "COPIED_BATCHES", 1)
    replica, behind = Replica(), Replica()
    replica.batch(0, 2, pid=2)
    for first in range(0, 6, 2):
        replica.batch(first, 2, number=5)
    replica.end(5, (1, 6, 5))
    replica.put(last)
    batch = behind.disk.batch()
    for index, data in enumerate(replica.log.entries, 1):
        behind.part.apply(index, 1, data, batch)
    behind.disk.write(batch)
    assert behind.rows() == replica.rows() <= 1


def test_batches_are_found_backwards(replica: Replica) -> None:
    cleaned(replica)
    read = replica.part.reading_back(18, 10_000, 9).run()
    assert read is not None and [place.base_offset for place, _ in read] == [16, 14, 0]


def test_a_read_ends_where_a_batch_is_carried_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it holds some records twice."""
    monkeypatch.setattr(batch_index, "PAGE_ROWS", 2)
    replica = Replica()
    for first in range(4):
        replica.batch(first)
    reading = replica.part.reading(0, 10_000)
    assert replica.put(carried(0, 4))
    assert [base for base, _ in reading.run()] == [0, 1]
    assert [base for base, _ in replica.part.reading(2, 10_000).run()] == [0]


async def test_an_answer_holds_no_record_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of its slices a batch is carried."""
    monkeypatch.setattr(fetch, "SLICE_BATCHES", 1)
    node = LogNode()
    for _ in range(3):
        await node.send(header(), PAYLOAD)
    reading, asked = node.part.reading, list[int]()

    def after_a_slice(offset: int, *rest: int) -> Any:
        asked.append(offset)
        if asked == [0, 1]:
            node.log.propose(carried(0, 3), lambda outcome: None)
        return reading(offset, *rest)

    monkeypatch.setattr(node.part, "reading", after_a_slice)
    async with serving(node) as (stub, _):
        found = await stub.Fetch(log_rig.fetch())
    assert asked == [0, 1]
    (section,) = found.partitions
    assert [batch.base_offset for batch in section.batches] == [0]


# -- the log's start, and the log that is kept -----------------------------------------------------


def test_the_log_starts_at_no_offset_inside_a_carried_batch() -> None:
    replica = Replica()
    cleaned(replica)
    replica.put(pack_log_start(LogStartEntry(0, 8, 0, 1)))
    assert replica.part.log_start_offset == 0
    replica.put(pack_log_start(LogStartEntry(0, 14, 0, 1)))
    assert (replica.part.log_start_offset, replica.read(14)[0]) == (14, (14, b"0/8"))
    assert replica.part.dump()[4] == 3, "nothing carried is left, only the runs"


@pytest.mark.parametrize(
    ("blanks", "starts", "hole"),
    [
        ((0, 0), (8,), 0),
        ((0, 3), (8,), 3),  # behind the last record
        ((1, 4), (8,), 5),  # a batch of blanks, and the end of the one before it
        ((4, 4), (8,), 8),
        ((4, 4), (4, 8), 8),  # a hole goes on from one deletion to the next
        ((1, 2), (4, 8), 2),
        ((4, 4), (8, 12), 0),  # a batch that was not carried has records
    ],
)
def test_the_log_knows_whether_records_were_deleted(
    blanks: tuple[int, int], starts: tuple[int, ...], hole: int
) -> None:
    replica, start = Replica(), 0
    for first in range(0, 12, 4):
        replica.batch(first, 4)
    for first in range(12, 14):
        replica.batch(first)
    assert not replica.put(carried(0, 4, blanks=5)), "it has four"
    for base, count in zip((0, 4), blanks, strict=True):
        assert replica.put(carried(base, 4, blanks=count))
    for following in starts:
        replica.put(pack_log_start(LogStartEntry(start, following, 0, 1)))
        start = following
    assert (replica.part.log_start_offset, replica.part.blanks_below_start) == (start, hole)
    state = replica.part.dump()
    replica.part.restore(None, 0)
    assert replica.part.blanks_below_start == 0
    replica.part.restore(replica.part.load(state), len(replica.log.entries))
    assert (replica.part.blanks_below_start, replica.part.dump()) == (hole, state)


def test_a_state_that_carried_nothing_is_as_it_was() -> None:
    replica = Replica()
    replica.batch(0, 4)
    assert replica.part.dump()[4:6] == b"\x02\x00"
    assert replica.put(carried(0, 4))
    state = replica.part.dump()
    assert state[4:6] == b"\x04\x00"
    for damaged in (state[:-1], state + b"\0"):
        with pytest.raises(CorruptionError):
            replica.part.load(damaged)


@pytest.mark.parametrize(
    "ranges",
    [[(0, 5, 1)], [(0, 0, 1)], [(2, 2, 1), (1, 1, 2)], [(0, 2, 1), (1, 2, 2)], [(0, 2, 1, 3)]],
    ids=["above the end", "empty", "not in order", "one over the other", "more blanks than rows"],
)
def test_ranges_that_cannot_be_are_damage(ranges: list[tuple[int, ...]]) -> None:
    dump = CarriedRanges(CarriedRange(*one) for one in ranges).dump()
    with pytest.raises(ValueError, match=r"carried ranges|lies where"):
        CarriedRanges.load(dump, 0, 4)
    with pytest.raises(ValueError, match="a hole of 5 offsets"):
        CarriedRanges.load(CarriedRanges(hole=5).dump(), 4, 9)


def test_the_log_is_kept_for_the_lowest_index() -> None:
    replica, limits = Replica(), list[int]()
    checkpoints = SimpleNamespace(save=lambda: None, compact=limits.append)
    replica.log.__dict__.update(checkpoints=checkpoints)

    def kept_above() -> int:
        limits.clear()
        replica.log.__dict__["applied_index"] = len(replica.log.entries)
        replica.part.compact()
        return limits[0] if limits else 0

    for first in range(6):
        replica.batch(first)
    assert replica.put(carried(0, 2))  # entry 7
    assert kept_above() == 2, "the third batch is in entry 3"
    assert replica.put(carried(2, 4))
    replica.batch(6)
    assert kept_above() == 6, "entry 7 has the first two"
    assert replica.put(carried(0, 2))
    assert kept_above() == 7


# -- answers behind a carried batch ----------------------------------------------------------------


async def test_a_lookup_ends_at_a_carried_batch() -> None:
    replica = Replica()
    for first in range(10):
        replica.batch(first)
    assert await find_batch(replica.part, 7, 0, 0, below=10) is Miss.ABSENT
    assert replica.put(carried(2, 2))
    assert await find_batch(replica.part, 1, 0, 5, below=10) is not Miss.UNKNOWN
    assert await find_batch(replica.part, 1, 0, 1, below=10) is Miss.UNKNOWN
    assert await find_batch(replica.part, 7, 0, 0, below=10) is Miss.UNKNOWN


@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_a_lookup_that_begins_inside_a_carried_batch_ends_there(
    *, is_in_memory: bool
) -> None:
    """The map's oldest batch lies in it."""
    replica = Replica()
    for first in range(10):
        replica.batch(first)
    assert replica.put(carried(0, 8))
    if not is_in_memory:
        replica.part.machine.stored.index.forget_recent(has_carried=True)
    for below in (1, 5, 8):
        assert await find_batch(replica.part, 1, 0, 0, below=below) is Miss.UNKNOWN


async def test_no_record_behind_a_carried_batch_is_said_to_be_absent() -> None:
    """The producer's later epoch took the place of its first chain in the map."""
    node = LogNode()

    async def asked(epoch: int, sequence: int) -> str:
        request = log_pb2.ResolveSequenceRequest(
            topic=TOPIC, producer_id=1, epoch=epoch, sequence=sequence
        )
        found = await Resolver(node).answer(request)
        return log_pb2.Resolution.Name(found.resolution).removeprefix("RESOLUTION_")

    for epoch, sequence in ((0, 0), (0, 1), (1, 0)):
        sent = header(
            producer_id=1, epoch=epoch, base_sequence=sequence, prev_sequence=sequence - 1
        )
        answer = await node.send(sent, PAYLOAD)
        assert answer.verdict.base_offset >= 0
    assert [await asked(0, sequence) for sequence in (0, 1, 2)] == [
        "COMMITTED", "COMMITTED", "NEVER",
    ]  # fmt: skip
    node.log.propose(carried(0, 2), lambda outcome: None)
    assert {await asked(0, sequence) for sequence in (0, 1, 2)} == {"UNSPECIFIED"}
    assert await asked(1, 0) == "COMMITTED", "the map knows it"


async def test_a_forgotten_id_of_a_kafka_client_may_have_stored_what_was_carried() -> None:
    node, answers = kafka_node(), list[Answer]()
    made = ids.made(SECRET, 1)
    meta = BatchMeta(made, 0, 0, 2, -1, 3, crc32c.crc32c(b"three"), -1, True)
    node.part.append(AppendRequest(meta, KAFKA_V2, 0, 1, b"three"), answers.append)
    node.log.propose(carried(0, 3), lambda outcome: None)

    async def asked() -> int:
        request = log_pb2.ResolveSequenceRequest(topic=TOPIC, producer_id=made, sequence=1)
        return (await Resolver(node).answer(request)).resolution

    assert await asked() == log_pb2.RESOLUTION_COMMITTED
    node.part.last_seen.advance(10**15, lifetime_ms=KAFKA_LIFETIME_MS)
    assert await asked() == log_pb2.RESOLUTION_UNSPECIFIED, "it is not NOT_YET"


# -- the leader ------------------------------------------------------------------------------------


def test_a_leader_carries_when_all_nodes_know_how() -> None:
    world, results = World(), list[Any]()
    pid = world.fresh()
    for sequence in range(3):
        world.send(pid, 0, sequence)
    partition = world.parts[1]
    with pytest.raises(Exception, match="'compaction' comes with cluster version 3"):
        partition.carry(carried(0, 2), results.append)
    world.finalized = Finalized(3, frozenset({COMPACTION}))
    assert partition.carry(carried(0, 2), results.append) is None
    assert results[0].result is True
    assert world.kind(pid, 0, 1) == "DUPLICATE"
    other = world.parts[2].carry(carried(0, 2), results.append)
    assert other is not None and other.verdict.kind.name == "NOT_LEADER"


def leading(replica: Replica) -> Replica:
    on = Features(lambda: Finalized(3, frozenset({COMPACTION})))
    replica.part._node = replace(replica.part._node, features=on)
    replica.part.on_role(leader=True, ready=True, term=1)
    return replica


def test_retention_has_its_turn_between_carried_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner that always has a batch in flight would put it off for ever."""
    replica, confirms = leading(Replica()), list[Done]()
    for first in range(4):
        replica.batch(first)
    replica.part.alter(replace(replica.part.policy, retention_bytes=1))
    monkeypatch.setattr(replica.log, "confirm", confirms.append)
    assert replica.part.carry(carried(0, 2), lambda outcome: None) is None
    replica.part.retain()
    assert replica.part.log_start_offset == 0, "the row of the carried batch is not written"
    refused = replica.part.carry(carried(2, 2), lambda outcome: None)
    assert refused is not None and refused.verdict.kind.name == "NOT_READY"
    confirms.pop()(Applied(9, None))
    assert replica.part.log_start_offset > 0
    assert replica.part.carry(carried(3, 1), lambda outcome: None) is None


@pytest.mark.parametrize(("base", "count"), [(0, 4), (4, 2), (4, 4), (6, 4)])
def test_a_leader_carries_no_part_of_a_run_with_one_row(
    monkeypatch: pytest.MonkeyPatch, base: int, count: int
) -> None:
    """Its other batches would be lost, or come again."""
    monkeypatch.setattr(batch_index, "COPIED_BATCHES", 1)
    replica, results = leading(Replica()), list[Any]()
    replica.batch(0, 2, pid=2)
    for first in range(0, 6, 2):
        replica.batch(first, 2, number=5)
    replica.end(5, (1, 6, 5))
    replica.batch(2, 2, pid=2)
    before = replica.read()
    refused = replica.part.carry(carried(base, count), results.append)
    assert refused is not None and refused.verdict.kind.name == "INVALID_BATCH"
    assert replica.read() == before and not results
    replica.put(pack_log_start(LogStartEntry(0, 4, 0, 1)))
    assert replica.part.carry(carried(4, 4), results.append) is None
    assert results[0].result is True, "what lies below the log's start is gone anyway"
    assert replica.read(4) == [(4, b"4+4"), (8, b"0/2")]


async def test_the_log_start_waits_for_rows_that_the_disk_has_no_space_for() -> None:
    """An earlier leader's carried batch is applied, and its row may not be written."""
    node = LogNode(retention_bytes=0)
    for _ in range(3):
        await node.send(header(), PAYLOAD)
    node.log.propose(carried(0, 2), lambda outcome: None)
    node.storage_full = True
    node.part.retain()
    assert node.part.log_start_offset == 0
    node.storage_full = False
    node.part.retain()
    assert node.part.log_start_offset == 3
