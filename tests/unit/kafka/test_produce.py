"""Produce requests into a real partition: order, waits, deadlines, error numbers, bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from cluster.access.budget import Budget
from cluster.access.gate import Gate
from cluster.consensus.proposals import Abandoned
from cluster.dedup.verdict import Formats
from cluster.features import KAFKA, Features, Finalized
from cluster.kafka import ids, produce
from cluster.kafka.codec import Source
from cluster.kafka.errors import Error
from cluster.kafka.frames import Exchange, Parts
from cluster.kafka.messages import PRODUCE
from cluster.kafka.needs import Rights
from cluster.kafka.produce import Producing
from cluster.kafka.produce_wire import PartitionData, Result, produce_answer, read_produce
from cluster.kafka.sent import Sent
from cluster.kafka.versions import Head
from cluster.partition import leader
from cluster.security.caller import Caller
from cluster.services.fair_turns import SLICE_BYTES
from cluster.services.log.lease_checks import Leases
from tests.unit.kafka.kafka_bytes import batch
from tests.unit.services.log_rig import GROUP, SECRET, TOPIC, LogNode

PID = ids.made(SECRET, 1)
VERSIONS = range(PRODUCE.oldest, PRODUCE.newest + 1)


def head(version: int = 9, correlation: int = 5) -> Head:
    return Head(PRODUCE, version, correlation, "test", True)


def request(
    *records: bytes,
    version: int = 9,
    acks: int = -1,
    timeout_ms: int = 5000,
    topic: str = TOPIC,
    index: int = 0,
) -> bytes:
    topics = ProduceRequest.TopicProduceData
    partitions = topics.PartitionProduceData
    data = [partitions(index=index, records=one) for one in records]
    made = ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=timeout_ms,
        topic_data=[topics(name=topic, partition_data=data)], version=version,
    )  # fmt: skip
    made._header = None
    return bytes(made.encode(version=version))


def answer_in(parts: Parts, version: int = 9) -> list[Any]:
    """The partitions of an answer, behind its correlation id."""
    data = b"".join(bytes(part) for part in parts)
    skipped = 4 + (version >= PRODUCE.flexible)
    found = ProduceResponse.decode(data[skipped:], version=version)
    return [one for topic in found.responses for one in topic.partition_responses]


class Answers:
    """The connection of the exchanges: keeps each answer."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.address = "client"
        self.closed = False
        self._news = asyncio.Event()

    def exchange(self) -> Exchange:
        made = Exchange(self, memoryview(b""))  # type: ignore[arg-type]
        self.exchanges.append(made)
        return made

    def send_soon(self) -> None:
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    async def end(self) -> None:
        """Wait until the connection is closed."""
        async with asyncio.timeout(10):
            while not self.closed:
                await self._news.wait()
                self._news.clear()

    async def all(self) -> list[list[Any]]:
        async with asyncio.timeout(10):
            while any(one.parts is None for one in self.exchanges):
                self._news.clear()
                await self._news.wait()
        return [answer_in(one.parts) if one.parts else [] for one in self.exchanges]


def kafka_node(**policy: Any) -> LogNode:
    """A node that leads a topic for both formats."""
    node = LogNode(**({"formats": Formats.BOTH} | policy))
    on = Features(lambda: Finalized(3, frozenset({KAFKA})))
    node.part._node = replace(node.part._node, features=on)
    node.part.on_role(leader=True, ready=True, term=1)
    return node


class Rig:
    """A session's produce side on such a node."""

    def __init__(self, **policy: Any) -> None:
        self.node = kafka_node(**policy)
        self.held: list[Callable[[], None]] = []
        self.answers = Answers()
        self.producing = self.made()

    def made(self) -> Producing:
        rights = Rights(Gate(None, None, None), Caller(), Sent(1))
        return Producing(self.node, rights, Leases(self.node))

    def begin(self, *records: bytes, **fields: Any) -> None:
        source = Source(memoryview(request(*records, **fields)))
        self.producing.begin(head(), source, self.answers.exchange())

    def hold(self) -> None:
        """Keep proposals from being committed until `release`."""
        propose = self.node.log.propose
        self.node.log.propose = lambda data, done, **_: self.held.append(  # type: ignore[method-assign]
            lambda: propose(data, done)
        )

    def release(self) -> None:
        del self.node.log.propose
        for commit in self.held:
            commit()

    @property
    def stored(self) -> list[bytes]:
        """The values' first byte of each stored batch."""
        return [entry[96 + 40 + 6 :][:1] for entry in self.node.log.entries]


async def test_batches_are_appended_and_answered() -> None:
    rig = Rig()
    rig.begin(batch(3), batch(2))
    rig.begin(batch(1, pid=PID, epoch=0, sequence=0))
    rig.begin(batch(1, pid=PID, epoch=0, sequence=0))
    first, second, again = await rig.answers.all()
    assert [(one.error_code, one.base_offset) for one in first] == [(0, 0), (0, 3)]
    assert [(one.error_code, one.base_offset) for one in (*second, *again)] == [(0, 5), (0, 5)]
    assert first[0].log_start_offset == 0 and first[0].log_append_time_ms == -1
    assert len(rig.node.log.entries) == 3 and rig.node.memory.used == 0


async def test_a_full_partition_makes_a_connection_wait_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error would let a client without sequences send the next batch before this one."""
    monkeypatch.setattr(leader, "MAX_IN_FLIGHT_BYTES", 10)
    rig = Rig()
    rig.hold()
    for value in (b"a", b"b", b"c"):
        rig.begin(batch(1, value=value))
    await asyncio.sleep(0)
    assert len(rig.held) == 1, "the second batch waits for room, and the third behind it"
    rig.release()
    answers = await rig.answers.all()
    assert [(one.error_code, one.base_offset) for (one,) in answers] == [(0, 0), (0, 1), (0, 2)]
    assert rig.stored == [b"a", b"b", b"c"]


async def test_connections_that_wait_for_their_turn_get_it() -> None:
    """A turn counts although others wait: else each gives it up for the next, for ever."""
    rig = Rig()
    others = [
        Producing(
            rig.node, Rights(Gate(None, None, None), Caller(address=f"client{n}"), Sent(1)),
            Leases(rig.node),
        )
        for n in range(3)
    ]  # fmt: skip
    rig.node.turns.spend(SLICE_BYTES)
    for producing in (rig.producing, *others):
        for _ in range(2):
            source = Source(memoryview(request(batch(1))))
            producing.begin(head(), source, rig.answers.exchange())
    assert not rig.node.log.entries, "the slice is used up"
    answers = await rig.answers.all()
    assert sorted(one.base_offset for (one,) in answers) == list(range(8))


async def test_batches_that_fail_while_they_wait_end_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection seemed to wait for its turn ever after, and answered nothing more."""

    async def fail(client: str) -> None:
        raise RuntimeError("planted")

    rig = Rig()
    rig.node.turns.spend(SLICE_BYTES)
    monkeypatch.setattr(rig.node.turns, "take", fail)
    rig.begin(batch(1))
    await rig.answers.end()
    assert not rig.node.log.entries


async def test_a_partition_that_stays_full_is_an_error_only_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader, "MAX_IN_FLIGHT_BYTES", 10)
    monkeypatch.setattr(produce, "LOOK_AGAIN", 0.01)
    rig = Rig()
    rig.hold()
    rig.begin(batch(1))
    rig.begin(batch(1), timeout_ms=30)
    rig.begin(batch(1), acks=7)
    async with asyncio.timeout(10):
        while rig.answers.exchanges[2].parts is None:
            rig.answers._news.clear()
            await rig.answers._news.wait()
    (late,) = answer_in(rig.answers.exchanges[1].parts or ())
    assert late.error_code == Error.NOT_ENOUGH_REPLICAS
    assert rig.answers.exchanges[0].parts is None
    rig.release()
    assert (await rig.answers.all())[0][0].error_code == 0


async def test_a_batch_that_is_not_committed_in_time_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce, "SWEEP", 0.01)
    rig = Rig()
    rig.hold()
    rig.begin(batch(1), timeout_ms=20)
    ((found,),) = await rig.answers.all()
    assert found.error_code == Error.REQUEST_TIMED_OUT
    rig.release()
    assert rig.stored, "and is committed later"


async def test_without_acknowledgements_nothing_is_sent() -> None:
    rig = Rig()
    rig.begin(batch(1), acks=0)
    rig.begin(batch(1), acks=1)
    assert [len(one) for one in await rig.answers.all()] == [0, 1]
    assert len(rig.node.log.entries) == 2 and not rig.answers.closed


async def test_without_acknowledgements_an_error_ends_the_connection() -> None:
    """Before, a client sent to a former leader for minutes, and nothing of it was stored."""
    rig = Rig()
    rig.node.part.on_role(leader=False, ready=False, term=2)
    rig.begin(batch(1), acks=0)
    assert await rig.answers.all() == [[]] and rig.answers.closed


async def test_without_acknowledgements_the_answers_behind_do_not_wait_for_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition without a majority held up the metadata that names other leaders."""
    monkeypatch.setattr(produce, "SWEEP", 0.01)
    rig, proposed = Rig(), list[Any]()
    rig.node.log.propose = lambda data, done, **_: proposed.append(done)  # type: ignore[method-assign]
    rig.begin(batch(1), acks=0)
    assert await rig.answers.all() == [[]] and not rig.answers.closed
    (done,) = proposed
    done(Abandoned(2, "no longer the leader", lost=True))
    assert rig.answers.closed, "its error is told all the same"


async def test_a_client_without_acknowledgements_has_its_share_of_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce, "SWEEP", 0.01)
    rig = Rig()
    rig.node.memory = Budget(1 << 30, 1)
    rig.producing = rig.made()
    rig.hold()
    for acks in (0, -1, 0):
        rig.begin(batch(1), acks=acks)
    await asyncio.sleep(0)
    assert len(rig.held) == 2, "the third is not handed over: the node holds much"
    rig.release()
    await rig.answers.all()
    assert len(rig.stored) == 3 and not rig.answers.closed


TABLE: list[tuple[str, bytes, dict[str, Any], Error]] = [
    ("magic", batch(magic=1), {}, Error.INVALID_RECORD),
    ("checksum", batch(crc=1), {}, Error.CORRUPT_MESSAGE),
    ("two batches", batch() + batch(), {}, Error.INVALID_RECORD),
    ("no records", b"", {}, Error.CORRUPT_MESSAGE),
    ("not in a transaction", batch(pid=PID, epoch=0, sequence=0, attributes=16), {},
     Error.UNKNOWN_PRODUCER_ID),
    ("unproven id", batch(pid=PID ^ 1, epoch=0, sequence=0), {}, Error.UNKNOWN_PRODUCER_ID),
    ("native id", batch(pid=7, epoch=0, sequence=0), {}, Error.UNKNOWN_PRODUCER_ID),
    ("forgotten id", batch(pid=PID, epoch=0, sequence=5), {}, Error.UNKNOWN_PRODUCER_ID),
    ("too large", batch(1, value=b"x" * 60), {"max_batch_bytes": 50}, Error.MESSAGE_TOO_LARGE),
    ("format", batch(), {"formats": Formats.COLUMNAR}, Error.UNSUPPORTED_FOR_MESSAGE_FORMAT),
]  # fmt: skip


@pytest.mark.parametrize(("records", "policy", "number"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
async def test_a_batch_that_cannot_be_is_refused(
    records: bytes, policy: dict[str, Any], number: Error
) -> None:
    rig = Rig(**policy)
    rig.begin(records)
    ((found,),) = await rig.answers.all()
    assert (found.error_code, found.base_offset) == (number, -1)
    assert found.error_message


async def test_a_partition_that_is_not_here_or_not_led_here() -> None:
    rig = Rig()
    rig.begin(batch(1), topic="elsewhere")
    rig.begin(batch(1), topic="__offsets")
    rig.begin(batch(1), index=1)
    rig.node.leaders[GROUP] = 2
    rig.begin(batch(1))
    found = [one.error_code for (one,) in await rig.answers.all()]
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [unknown, unknown, unknown, Error.NOT_LEADER_OR_FOLLOWER]


async def test_a_batch_behind_a_refused_one_is_refused_for_the_same_reason() -> None:
    """A client that pipelines would take the gap for the loss of its records."""
    rig = Rig()
    rig.begin(batch(1, pid=PID, epoch=0, sequence=0))
    rig.node.storage_full = True
    rig.begin(batch(1, pid=PID, epoch=0, sequence=1))
    rig.node.storage_full = False
    rig.begin(batch(1, pid=PID, epoch=0, sequence=2))
    rig.begin(batch(1, pid=PID, epoch=0, sequence=1))
    rig.begin(batch(1, pid=PID, epoch=0, sequence=2))
    full = Error.KAFKA_STORAGE_ERROR
    assert [one.error_code for (one,) in await rig.answers.all()] == [0, full, full, 0, 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_read_at_every_version(version: int) -> None:
    data = request(batch(1), b"", batch(2), version=version, acks=1, timeout_ms=77)
    source = Source(memoryview(data))
    found = read_produce(source, version, flexible=version >= PRODUCE.flexible)
    assert (found.acks, found.timeout_ms, source.left) == (1, 77, 0)
    assert [(one.topic, one.partition, bytes(one.records)) for one in found.partitions] == [
        (TOPIC, 0, batch(1)), (TOPIC, 0, b""), (TOPIC, 0, batch(2)),
    ]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_written_at_every_version(version: int) -> None:
    nothing = memoryview(b"")
    rows = [
        (PartitionData("a", 0, nothing), Result(0, 10, 4)),
        (PartitionData("a", 3, nothing), Result(3, message="none")),
        (PartitionData("b", 1, nothing), Result(0, 2**40)),
    ]
    found = answer_in((produce_answer(head(version), rows),), version)
    assert [(one.index, one.error_code, one.base_offset) for one in found] == [
        (0, 0, 10), (3, 3, -1), (1, 0, 2**40),
    ]  # fmt: skip
    if version >= 8:
        assert [one.error_message for one in found] == [None, "none", None]


async def test_a_connection_that_guesses_at_ids_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "MAX_UNKNOWN", 3)
    rig = Rig()
    for guess in range(1, 5):
        rig.begin(batch(1, pid=PID ^ guess, epoch=0, sequence=0))
        assert rig.answers.closed == (guess == 4)


async def test_a_client_goes_on_after_every_error_of_its_id() -> None:
    """By a higher epoch after an order that is wrong, by a new id after one that is not known."""
    rig = Rig()
    new = ids.made(SECRET, 2)
    for pid, epoch, sequence, number in (
        (PID, 0, 0, Error.NONE),
        (PID, 0, 5, Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (PID, 1, 0, Error.NONE),
        (PID, 0, 1, Error.INVALID_PRODUCER_EPOCH),
        (PID ^ 1, 0, 0, Error.UNKNOWN_PRODUCER_ID),
        (new, 0, 3, Error.UNKNOWN_PRODUCER_ID),
        (new, 0, 0, Error.NONE),
        (new, 0, 1, Error.NONE),
    ):
        rig.begin(batch(pid=pid, epoch=epoch, sequence=sequence))
        ((result,),) = (await rig.answers.all())[-1:]
        assert result.error_code == number, (pid, epoch, sequence)
