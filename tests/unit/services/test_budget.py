"""Scarce memory: which clients are slowed, refused, or disconnected."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cluster.access.budget import UNREAD_S, Account, Budget
from cluster.consensus.proposals import Abandoned, Done
from cluster.node.health.memory_watch import SETTLE, MemoryWatch
from cluster.services.fair_turns import SLICE_BATCHES, Turns
from cluster.services.log.fetch import MIN_ANSWER_BYTES, Reader
from cluster.services.log.produce import (
    BATCH_BYTES,
    MAX_WAITING_BYTES,
    RESULT_BYTES,
    ProduceCall,
)
from oncelog.errors import ThrottledError
from oncelog.v1 import log_pb2
from oncelog.wire.batch import encode_payload
from tests.unit.services.log_rig import LogNode, batch, fetch, header, serving
from tests.unit.small_node import refused

MIB = 1024 * 1024


# -- accounts ---------------------------------------------------------------------------------


async def settled(task: asyncio.Task[None], turns: int = 5) -> bool:
    """True if the task is done once all that is ready has run."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return task.done()


async def test_who_holds_more_than_its_share_waits_and_others_go_on():
    budget = Budget(limit=200, slow=100)
    hog, modest = budget.open("hog"), budget.open("modest")
    hog.take(80)
    modest.take(30)
    waiting = asyncio.create_task(hog.room())
    await modest.room()
    assert not await settled(waiting)
    modest.release(5)
    assert not await settled(waiting)
    modest.release(5)
    assert await settled(waiting), "there is room for all again"


async def test_an_account_that_closes_gives_back_what_it_held():
    budget = Budget(limit=200, slow=100)
    gone, hog = budget.open("gone"), budget.open("hog")
    gone.take(60)
    hog.take(90)
    waiting = asyncio.create_task(hog.room())
    assert not await settled(waiting)
    budget.close("gone")
    assert await settled(waiting)
    assert budget.used == 90


async def test_the_account_of_a_call_ends_with_its_task():
    budget = Budget(limit=200, slow=100)

    async def call() -> None:
        budget.of_call("client").take(7)
        assert budget.of_call().client == "client"
        assert budget.used == 7

    await asyncio.create_task(call())
    await asyncio.sleep(0)
    assert budget.used == 0


def test_the_hog_is_who_holds_the_most_unread_and_only_while_room_is_scarce():
    budget = Budget(limit=200, slow=100)
    for client, held in (("one", 10), ("two", 12), ("three", 25)):
        for call in range(2):
            account = budget.open((client, call), client)
            account.take(held)
            account.blocked_since = 0.0 if client != "three" else None
    assert budget.hog(UNREAD_S - 0.1) == "", "not for long"
    assert budget.hog(UNREAD_S) == "two"
    budget.close(("three", 0))
    budget.close(("three", 1))
    assert budget.hog(UNREAD_S) == "", "room is not scarce"


# -- turns ------------------------------------------------------------------------------------


async def test_clients_take_turns_however_many_calls_each_has():
    turns, order = Turns(), list[str]()

    async def call(client: str, slices: int) -> None:
        for _ in range(slices):
            await turns.take(client)
            order.append(client)
            for _ in range(SLICE_BATCHES):
                turns.spend(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(call("flood", 4))
        group.create_task(call("victim", 3))
    assert len(order) == 203
    assert order.index("victim") <= 3, order[:10]
    assert [one for one in order[: order.index("victim") + 5] if one == "victim"] == ["victim"] * 3


async def test_little_work_waits_for_nobody():
    turns = Turns()
    for _ in range(SLICE_BATCHES - 1):
        turns.spend(0)
        async with asyncio.timeout(0):
            await turns.take("client")


async def test_a_call_that_was_cancelled_takes_no_turn():
    turns = Turns()
    for _ in range(SLICE_BATCHES):
        turns.spend(0)
    gone, waiting = (asyncio.create_task(turns.take(client)) for client in ("gone", "here"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(waiting, 5)


# -- a stream, its answers --------------------------------------------------------------------


async def for_ever(request: log_pb2.ProduceRequest) -> AsyncIterator[log_pb2.ProduceRequest]:
    while True:
        yield request


async def test_a_stream_whose_answers_are_not_taken_is_not_read_on():
    """Before, the answers to refused batches were kept without an end."""
    node = LogNode()
    stream = ProduceCall(node.appender)
    bad = log_pb2.ProduceRequest(batches=[batch(crc32c=1)] * 1000)
    reading = asyncio.create_task(stream.read(for_ever(bad)))
    most = MAX_WAITING_BYTES // BATCH_BYTES + 1
    assert not await settled(reading, 10_000)
    assert len(stream._results) == most
    held = node.memory.used
    assert held >= most * RESULT_BYTES
    stream.taken(len(await stream.next_results()))
    assert not await settled(reading, 10_000)
    assert len(stream._results) == most
    reading.cancel()


async def test_what_a_stream_had_under_way_is_counted_until_it_is_answered():
    """The bytes are in memory until the answer, even after the stream's end."""
    node = LogNode()
    proposed: list[Done] = []
    node.log.propose = lambda data, done, **_: proposed.append(done)  # type: ignore[method-assign]

    async def call() -> None:
        stream = ProduceCall(node.appender)
        await stream._append(batch(), 10.0)
        stream.close()

    await asyncio.create_task(call())
    assert node.memory.used > BATCH_BYTES
    assert node.batches_under_way.used == 1
    (done,) = proposed
    done(Abandoned(2, "no longer the leader"))
    assert (node.memory.used, node.batches_under_way.used) == (0, 0)


# -- a node without memory --------------------------------------------------------------------


@pytest.fixture
def full() -> LogNode:
    node = LogNode()
    node.memory.open("others").take(node.memory.limit + 1)
    return node


async def test_batches_are_throttled_and_what_was_sent_behind_them_too(full: LogNode):
    answers: list[log_pb2.BatchResult] = []
    stream = ProduceCall(full.appender)
    first, second = (
        full.batch(header(producer_id=1, base_sequence=number), batch().payload)
        for number in range(2)
    )
    await stream._append(first, 10.0)
    full.memory.close("others")
    await stream._append(second, 10.0)
    answers = [full.appender.result(*one) for one in await stream.next_results()]
    assert [one.verdict for one in answers] == [log_pb2.VERDICT_THROTTLED] * 2
    assert "client_memory_bytes" in answers[0].message


async def test_calls_are_refused_before_a_byte_of_them_is_taken(full: LogNode):
    async with serving(full) as (stub, _):
        for call in (stub.Fetch(fetch()), stub.Produce(log_pb2.ProduceRequest())):
            error = await refused(call)
            assert isinstance(error, ThrottledError)
        stream = stub.ProduceStream()
        assert isinstance(await refused(stream.read()), ThrottledError)
    assert full.memory.used == full.memory.limit + 1


async def test_a_request_that_is_large_is_refused_when_it_has_come():
    """Nobody knew its size before. A small request is answered: it costs less than a refusal."""
    node = LogNode()
    async with serving(node) as (stub, _):
        node.memory.open("others").take(node.memory.limit - MIB)
        assert len((await stub.Produce(log_pb2.ProduceRequest(batches=[batch()]))).results) == 1
        large = log_pb2.ProduceRequest(batches=[batch(encode_payload([b"x" * MIB], [1]))])
        assert isinstance(await refused(stub.Produce(large)), ThrottledError)
    assert node.part.high_watermark == 1


async def test_calls_are_counted_while_they_last():
    node = LogNode()
    async with serving(node) as (stub, _):
        await stub.Fetch(fetch())
        stream = stub.ProduceStream()
        await stream.write(log_pb2.ProduceRequest(batches=[batch()]))
        await stream.read()
        assert node.memory.used > 0
        await stream.done_writing()
        await stream.read()
    # A call's account is closed with its task, which may end after the client has its last answer.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=10)
    await asyncio.sleep(0)
    assert node.memory.used == 0


async def test_answers_are_smaller_where_memory_is_scarce():
    node = LogNode()
    large = encode_payload([b"x" * (MIN_ANSWER_BYTES // 4)], [1])
    for _ in range(20):
        await node.send(header(large), large)
    whole = await Reader(node).fetch(fetch())
    node.memory.open("others").take(node.memory.slow)
    part = await Reader(node).fetch(fetch(min_bytes=MIB))
    assert 0 < len(part) <= MIN_ANSWER_BYTES < len(whole)
    node.memory.close("others")
    node.memory.open("others").take(node.memory.limit)
    with pytest.raises(ThrottledError):
        await Reader(node).fetch(fetch())


# -- uncounted memory -------------------------------------------------------------------------


class World:
    """A process whose memory a test sets; its clients' bytes go with their connections."""

    def __init__(self, **clients: int) -> None:
        self.now, self.own, self.freed = 0.0, 50, 0
        self.clients: dict[str, int] = {}
        self.closed: list[str | None] = []
        self.calls = 0
        self.budget = Budget(limit=100, slow=50)
        self.watch = MemoryWatch(
            self.budget, 100, lambda: self.now, self.resident, self.trim, self.close
        )
        self.clients |= clients
        for client in clients:
            self.account(client).receiving = True

    def account(self, client: str) -> Account:
        account = self.budget.open((client, self.calls), client)
        self.calls += 1
        return account

    def resident(self) -> int:
        return self.own + self.freed + sum(self.clients.values())

    def trim(self) -> None:
        self.freed = 0

    def close(self, client: str | None) -> None:
        self.closed.append(client)
        for one in list(self.clients) if client is None else [client]:
            self.clients.pop(one, None)
            for call in range(self.calls):
                with contextlib.suppress(KeyError):
                    self.budget.close((one, call))

    def look(self) -> None:
        self.now += SETTLE
        self.watch.look()


def test_who_has_the_most_unfinished_calls_is_closed_first():
    world = World(one=40, two=70)
    world.account("two").receiving = True
    world.look()
    assert world.closed == ["two"]
    world.look()
    assert world.closed == ["two"]


def test_memory_that_is_free_is_no_reason_to_close():
    world = World(one=10)
    world.freed = 500
    world.look()
    assert world.closed == []


def test_what_is_left_when_all_are_closed_is_the_nodes_own():
    world = World(one=1, two=1)
    world.own = 200
    for _ in range(20):
        world.look()
    assert world.closed == ["one", None]
    world.own = 290
    world.look()
    assert world.closed == ["one", None]
    world.clients["three"] = 20
    world.look()
    assert world.closed[2:] == [None], "who it is, is not known yet"


def test_who_does_not_read_its_answers_is_closed_when_memory_is_scarce():
    world = World()
    account = world.account("one")
    account.take(40)
    account.blocked_since = 0.0
    world.look()
    assert world.closed == []
    world.now = UNREAD_S
    world.look()
    assert world.closed == ["one"]
