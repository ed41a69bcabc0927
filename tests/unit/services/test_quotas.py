"""Quotas: buckets, counts and their owners; and the guard's use of them on real calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from cluster.access import quotas as pacing
from cluster.features import THIS_RELEASE, Finalized
from cluster.metadata.quotas import read_quotas, write_quota
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import Tables
from cluster.metrics.page import Metrics
from cluster.rpc import quotas as limiting
from cluster.security.quotas import (
    ALL,
    CONNECTIONS,
    FRESH_S,
    IN_BYTES,
    LOOK_S,
    MAX_ENDED,
    MAX_TRACKED,
    NAMES,
    NEW_PRODUCERS,
    OUT_BYTES,
    PRODUCERS,
    RATES,
    REQUESTS,
    STAGED_BYTES,
    STREAMS,
    TRANSACTIONS,
    Bucket,
    ExceededError,
    QuotaRow,
    Quotas,
    fault,
)
from cluster.services.fair_turns import Turns
from cluster.v1 import metadata_pb2 as mpb
from oncelog import errors
from oncelog._engine.net.backoff import Backoff
from oncelog.v1 import group_pb2 as gpb
from oncelog.v1 import log_pb2 as lpb
from oncelog.v1 import security_pb2 as spb
from oncelog.v1 import sink_pb2 as kpb
from oncelog.v1 import transaction_pb2 as tpb
from oncelog.wire.status import from_status, to_status
from tests.unit.services import log_rig
from tests.unit.services.test_guarding import Guarded, guard, header

LEASE = "/oncelog.v1.ProducerService/LeaseProducer"
PRODUCE = "/oncelog.v1.LogService/Produce"
TOPICS = "/oncelog.v1.ClusterService/DescribeTopics"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """Quotas over rows and transactions that a test may change."""

    def __init__(self, *rows: QuotaRow) -> None:
        self.clock, self.rows = Clock(), rows
        self.open = set[int]()
        self.quotas = Quotas(lambda: self.rows, self.clock, self.open.__contains__, ["token:root"])

    def wait(self, who: str, *names: str) -> float:
        return self.quotas.usage(who).wait(names or RATES)[0]


# --- rates --------------------------------------------------------------------------------


def test_a_bucket_holds_a_second_and_may_be_overdrawn() -> None:
    bucket = Bucket(10, 0.0)
    bucket.take(10, 0.0)
    assert bucket.wait(0.0) == 0
    bucket.take(20, 0.0)
    assert bucket.wait(0.0) == 2.0
    assert bucket.wait(1.5) == 0.5
    assert bucket.wait(100.0) == 0
    bucket.take(10, 100.0)
    assert bucket.wait(100.0) == 0, "a second's worth was there"
    bucket.take(1, 100.0)
    assert bucket.wait(100.0) == pytest.approx(0.1), "and no more than that"


def test_a_rate_holds_over_time_whatever_the_size_of_messages() -> None:
    """At 1000 bytes a second, messages of any size pass at that rate at most."""
    for size in (1, 10, 999, 5000, 100_000):
        bucket, now, passed = Bucket(1000, 0.0), 0.0, 0
        while now < 1000.0:
            now += bucket.wait(now) + 1e-9
            if now < 1000.0:
                bucket.take(size, now)
                passed += size
            now += 0.0001
        assert passed <= 1000 * 1001 + size


def test_each_principal_has_its_own_and_else_what_stands_for_all() -> None:
    rig = Rig(QuotaRow(ALL, REQUESTS, 10), QuotaRow("a", REQUESTS, 100), QuotaRow("b", REQUESTS, 0))
    for who in ("a", "b", "c", "d", "token:root"):
        rig.quotas.usage(who).take(REQUESTS, 120)
    assert rig.wait("a") == pytest.approx(0.2)
    assert rig.wait("b") == 0, "0 is no limit"
    assert rig.wait("c") == rig.wait("d") == pytest.approx(11.0)
    assert rig.wait("token:root") == 0, "somebody can always take it back"


def test_a_changed_quota_is_in_force_at_once_and_no_way_out_of_a_debt() -> None:
    rig = Rig(QuotaRow("a", REQUESTS, 1))
    usage = rig.quotas.usage("a")
    usage.take(REQUESTS, 11)
    assert rig.wait("a") == 10
    rig.rows = (QuotaRow("a", REQUESTS, 1), QuotaRow("b", REQUESTS, 5))
    assert rig.wait("a") == 10, "another's change"
    rig.rows = ()
    assert rig.wait("a") == 0
    usage.take(REQUESTS, 1000)
    rig.rows = (QuotaRow("a", IN_BYTES, 1),)
    usage.limits()
    usage.take(IN_BYTES, 2)
    assert rig.wait("a", IN_BYTES) == 1, "a stream that was open before"


def test_who_is_idle_is_forgotten_and_who_owes_is_not() -> None:
    rig = Rig(QuotaRow(ALL, REQUESTS, 10))
    rig.quotas.usage("debtor").take(REQUESTS, 10_000_000)
    for number in range(3 * MAX_TRACKED):
        rig.quotas.usage(str(number))
    assert len(rig.quotas._usages) <= MAX_TRACKED
    assert rig.wait("debtor") > 0


# --- counts -------------------------------------------------------------------------------


def test_streams_and_connections_are_counted_while_they_are_there() -> None:
    rig = Rig(QuotaRow("a", STREAMS, 2), QuotaRow("a", CONNECTIONS, 2))
    usage = rig.quotas.usage("a")
    with usage.call("one", stream=True), usage.call("two", stream=True):
        with pytest.raises(ExceededError, match="streams of a: 2 are used, the limit is 2"):
            with usage.call("one", stream=True):
                pass
        with usage.call("one", stream=False):
            pass
        with pytest.raises(ExceededError, match="connections of a"):
            with usage.call("three", stream=False):
                pass
        with rig.quotas.usage("b").call("three", stream=True):
            pass
    with usage.call("three", stream=True):
        assert rig.quotas.refused[STREAMS] == rig.quotas.refused[CONNECTIONS] == 1


def test_transactions_are_counted_until_they_end() -> None:
    rig = Rig(QuotaRow("a", TRANSACTIONS, 2))
    usage = rig.quotas.usage("a")

    def begin(nonce: int, number: int) -> None:
        with usage.begin(nonce) as begun:
            rig.open.add(number)
            begun(number)

    begin(1, 10)
    with usage.begin(5):
        with pytest.raises(ExceededError):  # one transaction has not been answered yet
            begin(6, 60)
    begin(2, 20)
    begin(1, 10)  # its answer was lost
    with pytest.raises(ExceededError, match="open_transactions"):
        begin(3, 30)
    rig.open.discard(10)
    begin(3, 30)


async def test_two_producers_with_the_same_nonce_begin_two_transactions() -> None:
    rig = Rig(QuotaRow("a", TRANSACTIONS, 1))
    usage = rig.quotas.usage("a")
    limited = limiting.Limited("/oncelog.v1.TransactionService/BeginTransaction")

    async def begin(producer_id: int) -> None:
        async def call() -> Any:
            rig.open.add(producer_id)
            return tpb.BeginTransactionResponse(transaction_id=producer_id)

        request = tpb.BeginTransactionRequest(producer_id=producer_id, nonce=1)
        await limited.answer(usage, request, call)

    await begin(10)
    await begin(10)  # its answer was lost
    with pytest.raises(ExceededError, match="open_transactions"):
        await begin(20)


async def test_batches_of_sinks_count_as_transactions() -> None:
    rig = Rig(QuotaRow("a", TRANSACTIONS, 1))
    usage = rig.quotas.usage("a")
    limited = limiting.Limited("/oncelog.v1.SinkService/BeginBatch")

    async def begin(sink: str, number: int) -> None:
        async def call() -> Any:
            rig.open.add(number)
            return kpb.BeginBatchResponse(transaction_id=number)

        await limited.answer(usage, kpb.BeginBatchRequest(sink=sink), call)

    await begin("one", 10)
    await begin("one", 10)  # its answer was lost
    with pytest.raises(ExceededError, match="open_transactions"):
        await begin("two", 20)
    rig.open.discard(10)
    await begin("two", 20)


async def test_what_a_commit_begins_takes_the_place_of_what_it_ends() -> None:
    rig = Rig(QuotaRow("a", TRANSACTIONS, 1))
    usage = rig.quotas.usage("a")
    limited = limiting.Limited("/oncelog.v1.TransactionService/CommitTransaction")

    async def commit(number: int) -> int:
        request = tpb.CommitTransactionRequest(transaction_id=number)
        request.begin_next.nonce = number

        async def call() -> Any:
            rig.open.discard(number)
            answer = tpb.CommitTransactionResponse()
            if request.HasField("begin_next"):
                rig.open.add(number + 1)
                answer.next.transaction_id = number + 1
            return answer

        answer = await limited.answer(usage, request, call)
        return int(answer.next.transaction_id)

    with usage.begin(1) as begun:
        rig.open.add(10)
        begun(10)
    assert await commit(10) == 11
    assert await commit(11) == 12
    with pytest.raises(ExceededError), usage.begin(5):
        pass
    rig.open.add(20)
    usage.begun_next(20, 7)  # the limit was higher then
    assert await commit(12) == 0, "it is to be begun by a call, which is refused"


def test_staged_bytes_count_until_their_transaction_ends() -> None:
    rig = Rig(QuotaRow("a", STAGED_BYTES, 100))
    usage = rig.quotas.usage("a")
    rig.open |= {1, 2}
    for transaction in (1, 2):
        usage.check_staging()
        usage.staged(transaction, 60)
    with pytest.raises(ExceededError, match="staged_bytes"):
        usage.check_staging()
    rig.open.discard(1)
    with pytest.raises(ExceededError):  # the quota was looked at just now
        usage.check_staging()
    rig.clock.now += 2 * LOOK_S
    usage.check_staging()
    for transaction in range(10, 10 + 2 * MAX_ENDED):  # each of them ends at once
        rig.clock.now += 2 * LOOK_S
        usage.staged(transaction, 0)
    assert len(usage._staged) <= MAX_ENDED


def test_producer_ids_of_a_partition_are_not_put_out_to_make_room() -> None:
    rig = Rig(QuotaRow("a", PRODUCERS, 2))
    usage, known = rig.quotas.usage("a"), {1, 2}

    def check(group: int, pid: int) -> None:
        usage.check_producer(group, pid, known.__contains__)

    check(20, 1)
    check(20, 2)
    check(20, 1)
    check(21, 3)
    rig.clock.now += FRESH_S
    with pytest.raises(ExceededError, match="producer_ids of a: 2 are used"):
        check(20, 3)
    check(20, 2)
    known.discard(1)  # its lease is over, and the partition forgot it
    rig.clock.now += 2 * LOOK_S
    check(20, 3)
    rig.quotas.usage("b").check_producer(20, 9, known.__contains__)


# --- metadata -----------------------------------------------------------------------------


def alter(state: MetadataState, *rows: QuotaRow, remove: tuple[tuple[str, str], ...] = ()) -> Any:
    command = mpb.MetadataCommand(
        stamp_ms=1,
        alter_quotas=mpb.AlterQuotas(
            set=map(write_quota, rows),
            remove=[spb.QuotaKey(principal=who, name=name) for who, name in remove],
        ),
    )
    data = state.apply(state.applied_index + 1, command.SerializeToString())
    return mpb.MetadataResult.FromString(data)


@pytest.fixture
def state() -> MetadataState:
    state = MetadataState()
    newest = THIS_RELEASE.versions.newest
    tables = Tables(finalized=Finalized(newest, THIS_RELEASE.features))
    state.replace(tables, 0)
    return state


def test_quotas_are_metadata(state: MetadataState) -> None:
    assert not alter(state, QuotaRow("b", STREAMS, 1), QuotaRow("a", REQUESTS, 5)).error
    before = state.quotas
    assert list(before) == [QuotaRow("a", REQUESTS, 5), QuotaRow("b", STREAMS, 1)]
    assert not alter(state, QuotaRow("a", REQUESTS, 5)).error
    assert state.quotas is before, "nothing changed, and nobody works it out again"
    alter(state, QuotaRow("a", REQUESTS, 6), remove=(("b", ""), ("c", STREAMS)))
    assert list(state.quotas) == [QuotaRow("a", REQUESTS, 6)]
    other = MetadataState()
    other.load(state.dump())
    assert other.quotas == state.quotas and other.dump() == state.dump()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (QuotaRow("", STREAMS, 1), "principal: must have"),
        (QuotaRow("a\n", STREAMS, 1), "principal: must have"),
        (QuotaRow("a", "bytes", 1), "name: 'bytes' must be one of"),
        (QuotaRow("a", STREAMS, -1), "value: -1 must be 0"),
        (QuotaRow("a", STREAMS, 2**60), "value: "),
    ],
)
def test_a_wrong_quota_changes_nothing(state: MetadataState, wrong: QuotaRow, text: str) -> None:
    result = alter(state, QuotaRow("a", STREAMS, 1), wrong)
    assert result.error == "INVALID_REQUEST" and result.message.startswith(text)
    assert state.quotas == ()
    with pytest.raises(ValueError, match="a quota's"):
        read_quotas([write_quota(wrong)])


def test_quotas_wait_for_their_upgrade() -> None:
    assert alter(MetadataState(), QuotaRow("a", STREAMS, 1)).error == "NOT_SUPPORTED"
    assert not fault(QuotaRow(ALL, STREAMS, 0))


# --- calls --------------------------------------------------------------------------------


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Lengths of the waits, none of which really passes."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds:
            waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(pacing, "asyncio", SimpleNamespace(sleep=note))
    return waits


async def flood(node: Guarded, method: str, who: str) -> errors.ThrottledError:
    """Calls until one is throttled."""
    for _ in range(20):
        calls = [node.call(method, who) for _ in range(10)]
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, errors.ThrottledError):
                return answer
    raise AssertionError("never throttled")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the counter gives no event
        await asyncio.sleep(0.005)


async def test_a_call_beyond_its_rate_waits_and_then_is_told_how_long(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        for _ in range(20):
            await node.call(TOPICS, "alice")  # shown first: without a quota nothing is refused
        node.limits = (QuotaRow("token:alice", REQUESTS, 2),)
        told = await flood(node, TOPICS, "alice")
        assert "requests_per_s of token:alice: used up for" in told.message
        assert told.retry_after_ms > 1000, "shorter waits are waited for"
        await node.call(TOPICS, "bob")
        assert node.quotas.delayed[REQUESTS] > 0 and node.quotas.refused[REQUESTS] > 0
        page = Metrics()
        page.quotas = node.quotas
        lines = dict(line.rsplit(" ", 1) for line in page.page().splitlines())
        counted = {name: lines[f'oncelog_quota_refused_total{{quota="{name}"}}'] for name in NAMES}
        assert float(counted[REQUESTS]) > 0


async def test_leases_have_a_rate_of_their_own(tmp_path: Path, slept: list[float]) -> None:
    async with guard(tmp_path) as node:
        node.limits = (
            QuotaRow("token:root", NEW_PRODUCERS, 1),
            QuotaRow("token:bob", NEW_PRODUCERS, 1),
        )
        assert "producer_ids_per_s" in (await flood(node, LEASE, "bob")).message
        await node.call(TOPICS, "bob")


async def test_a_stream_is_not_read_on_and_never_refused(
    tmp_path: Path, slept: list[float]
) -> None:
    """The first message is taken, larger than the rate is; the next one waits for its time, which
    would be minutes: until the quota is changed."""
    async with guard(tmp_path) as node:
        node.allow("alice", "write", "topic", log_rig.TOPIC)
        node.limits = (QuotaRow("token:alice", IN_BYTES, 1000),)
        method = node.channel.stream_stream(
            "/oncelog.v1.LogService/ProduceStream",
            request_serializer=lpb.ProduceRequest.SerializeToString,
            response_deserializer=lpb.ProduceResponse.FromString,
        )
        call = method(metadata=header("alice"))
        request = lpb.ProduceRequest(batches=[log_rig.batch(bytes(600_000), record_count=1)])
        await call.write(request)
        assert len((await call.read()).results) == 1
        await until(lambda: bool(slept))
        assert all(0 < one <= 1.0 for one in slept)
        await call.write(request)
        second = asyncio.ensure_future(call.read())
        await asyncio.sleep(0.1)
        assert not second.done(), "it is not read"
        node.limits = ()  # waiting calls look again
        assert len((await second).results) == 1
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_a_subscriber_gets_its_next_message_later(tmp_path: Path, slept: list[float]) -> None:
    async with guard(tmp_path) as node:
        node.allow("bob", "read", "topic", log_rig.TOPIC)
        node.limits = (QuotaRow("token:bob", OUT_BYTES, 1),)
        request = lpb.SubscribeRequest(partitions=[lpb.PartitionFetch(topic="t", partition=99)])
        request.partitions[0].topic = log_rig.TOPIC
        await node.call("/oncelog.v1.LogService/Subscribe", "bob", request)
        fetch = lpb.FetchRequest(partitions=request.partitions)
        with pytest.raises(errors.ThrottledError) as raised:
            await node.call("/oncelog.v1.LogService/Fetch", "bob", fetch)
        assert raised.value.retry_after_ms > 1000
        with pytest.raises(errors.NotAuthorizedError):  # a call that reads nothing does not wait
            await node.call(PRODUCE, "bob", lpb.ProduceRequest(batches=[log_rig.batch()]))


async def test_heartbeats_count_and_do_not_wait(tmp_path: Path, slept: list[float]) -> None:
    async with guard(tmp_path) as node:
        node.limits = (QuotaRow("token:bob", REQUESTS, 1),)
        node.allow("bob", "read", "group", "g")
        beat = gpb.GroupHeartbeatRequest(group="g")
        for _ in range(30):
            try:
                await node.call("/oncelog.v1.GroupService/GroupHeartbeat", "bob", beat)
            except (errors.ThrottledError, errors.NotAuthorizedError):
                pytest.fail("it was held up")
            except errors.OncelogError:
                pass  # the rig has no groups
        assert not slept
        with pytest.raises(errors.ThrottledError):
            await node.call(TOPICS, "bob")


async def test_streams_beyond_the_count_are_refused(tmp_path: Path) -> None:
    async with guard(tmp_path) as node:
        node.allow("alice", "write", "topic", log_rig.TOPIC)

        async def opened(count: int) -> list[Any]:
            method = node.channel.stream_stream(
                "/oncelog.v1.LogService/ProduceStream",
                request_serializer=lpb.ProduceRequest.SerializeToString,
                response_deserializer=lpb.ProduceResponse.FromString,
            )
            calls = [method(metadata=header("alice")) for _ in range(count)]
            for call in calls:
                await call.write(lpb.ProduceRequest(batches=[log_rig.batch()]))
                await call.read()
            return calls

        for call in await opened(5):
            call.cancel()
        await until(lambda: not node.quotas.usage("token:alice")._streams)
        node.limits = (QuotaRow(ALL, STREAMS, 2),)
        calls = await opened(2)
        with pytest.raises(errors.ThrottledError, match="streams of token:alice: 2 are used"):
            await node.call(
                "/oncelog.v1.LogService/ProduceStream", "alice",
                lpb.ProduceRequest(batches=[log_rig.batch()]),
            )  # fmt: skip
        calls[0].cancel()
        await until(lambda: node.quotas.usage("token:alice")._streams == 1)
        await opened(1)


def test_the_time_to_wait_travels_with_the_answer() -> None:
    code, text, trailing = to_status(errors.ThrottledError("slow down", retry_after_ms=1234))
    error = from_status(code, text, trailing)
    assert isinstance(error, errors.ThrottledError) and error.retry_after_ms == 1234
    backoff = Backoff(0.05, 1.0)
    assert backoff.after(error, 1) == 1.234
    assert backoff.after(errors.ThrottledError("full"), 1) <= 0.06
    assert backoff.after(errors.NotReadyError("wait"), 0) == 0


# --- fairness -----------------------------------------------------------------------------


async def test_turns_go_around_principals_whatever_their_connections() -> None:
    """A principal with 50 connections and one with a single connection take turns, a slice each."""

    async def served(name: Any) -> list[str]:
        turns, order = Turns(), list[str]()

        async def work(principal: str, connection: int) -> None:
            await turns.take(name(principal, connection))
            turns.spend(64 * 1024 * 1024)
            order.append(principal)

        flood = [work("flood", number) for number in range(50)]
        turns.spend(64 * 1024 * 1024)
        await asyncio.gather(*flood, *(work("quiet", number) for number in range(5)))
        return order

    by_connection = await served(lambda who, connection: f"{who}{connection}")
    by_principal = await served(lambda who, _: who)
    assert by_connection.index("quiet") == 50, "the attack, where turns go by connection"
    assert by_principal[:10].count("quiet") == 5
