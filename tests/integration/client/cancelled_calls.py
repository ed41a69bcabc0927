"""One scenario for each public coroutine of `oncelog.aio`: a cancelled call and its aftermath.

In each case the call's effect is undone or owned, reports are true, acknowledged records are there,
and the next call works. `Run.cut` gives the call up.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from oncelog import (
    OncelogError,
    RequestTimeoutError,
    TopicConfig,
    TopicPartition,
    TransactionCommittedError,
    aio,
)
from tests.integration.client.cancelling import CUT, PARTITIONS, Run, Scenario

SCENARIOS: dict[str, Scenario] = {}
COVERS: set[str] = set()  # "Class.method"
VALUES = ("1", "2", "3", "4")


def scenario(*covers: str) -> Callable[[Scenario], Scenario]:
    def note(play: Scenario) -> Scenario:
        SCENARIOS[play.__name__.removeprefix("a_")] = play
        COVERS.update(covers)
        return play

    return note


async def stored(sending: Awaitable[Any]) -> int:
    """The offset of a record that is acknowledged."""
    return (await (await sending)).offset  # type: ignore[no-any-return]


async def transact(producer: aio.Producer, topic: str, value: bytes) -> None:
    async with producer.transaction() as txn:
        for partition in range(PARTITIONS):
            await txn.send(topic, value, partition=partition)


# --- transactions ------------------------------------------------------------------------


@scenario("Transaction.begin")
async def begin(run: Run) -> None:
    async with run.producer() as producer:
        txn = producer.transaction()
        if await run.cut(txn.begin()) is CUT:
            assert txn.state == "new"
            assert await stored(producer.send(run.topic, b"plain", partition=0)) == 0
            await txn.begin()
        await txn.send(run.topic, b"in", partition=0)
        await txn.commit()
    assert run.log() in ([b"in"], [b"plain", b"in"])
    assert run.open_transactions() == []


@scenario()
async def begin_and_close(run: Run) -> None:
    async with run.producer() as producer:
        await run.cut(producer.transaction().begin())
    assert run.open_transactions() == []


@scenario("Transaction.__aenter__", "Transaction.__aexit__", "Transaction.send")
async def a_block(run: Run) -> None:
    """A cancelled block: nobody has the handle of the transaction that it began."""
    async with run.producer() as producer:
        whole = await run.cut(transact(producer, run.topic, b"a")) is not CUT
        await transact(producer, run.topic, b"b")
    found = [run.log(partition) for partition in range(PARTITIONS)]
    assert found in ([[b"a", b"b"]] * PARTITIONS, [[b"b"]] * PARTITIONS)
    assert not whole or b"a" in found[0]
    assert run.open_transactions() == []


async def with_two_records(run: Run, producer: aio.Producer) -> aio.Transaction:
    txn = await producer.transaction().begin()
    for partition in range(PARTITIONS):
        await txn.send(run.topic, b"a", partition=partition)
    return txn


@scenario("Transaction.commit")
async def commit(run: Run) -> None:
    async with run.producer() as producer:
        txn = await with_two_records(run, producer)
        await run.cut(txn.commit())
        done = await txn.commit()
        assert {place.base_offset for place in done.runs.values()} == {0}
        await transact(producer, run.topic, b"b")
    assert [run.log(0), run.log(1)] == [[b"a", b"b"]] * 2
    assert run.open_transactions() == []


@scenario()
async def commit_and_close(run: Run) -> None:
    async with run.producer() as producer:
        txn = await with_two_records(run, producer)
        await run.cut(txn.commit())
    assert run.log(0) == run.log(1)
    assert (run.log(0) == [b"a"]) == (txn.state == "committed")
    assert run.open_transactions() == []


@scenario("Transaction.abort")
async def abort(run: Run) -> None:
    async with run.producer() as producer:
        txn = await with_two_records(run, producer)
        await run.cut(txn.abort())
        await txn.abort()
        await transact(producer, run.topic, b"b")
    assert [run.log(0), run.log(1)] == [[b"b"]] * 2


@scenario("Transaction.commit_offsets")
async def offsets_of_a_transaction(run: Run) -> None:
    run.append(*VALUES)
    async with run.producer() as producer, run.consumer(membership="manual") as consumer:
        txn = await producer.transaction().begin()
        await run.cut(txn.commit_offsets(run.group, {(run.topic, 0): 1}))
        await txn.commit_offsets(run.group, {(run.topic, 0): 2})
        await txn.commit()
        found = await consumer.committed((run.topic, 0))
    assert found is not None and found.offset == 2


@scenario("Transaction.send_batch")
async def batch_of_a_transaction(run: Run) -> None:
    async with run.producer() as producer:
        txn = await producer.transaction().begin()
        await run.cut(txn.send_batch(run.topic, 0, [b"a"]))
        await txn.send_batch(run.topic, 0, [b"b"])
        await txn.commit()
    assert run.log() in ([b"a", b"b"], [b"b"])


# --- records -----------------------------------------------------------------------------


async def sent(run: Run, send: Callable[[aio.Producer, bytes], Awaitable[Any]]) -> None:
    """The first one asks for the topic; one that was given up is there once at most."""
    async with run.producer() as producer:
        first = await run.cut(send(producer, b"a"))
        second = await send(producer, b"b")
        acknowledged = [await one for one in (first, second) if one is not CUT]
    assert run.log() == [b"a", b"b"][-len(acknowledged) :]


@scenario("Producer.send")
async def send(run: Run) -> None:
    await sent(run, lambda producer, value: producer.send(run.topic, value, partition=0))


@scenario("Producer.send_batch")
async def send_batch(run: Run) -> None:
    await sent(run, lambda producer, value: producer.send_batch(run.topic, 0, [value]))


@scenario("Producer.send_stored_batch", "Transaction.send_stored_batch", "Consumer.stored_batch")
async def stored_batches(run: Run) -> None:
    run.append(*VALUES, partition=1)
    async with run.consumer(membership="manual") as consumer, run.producer() as producer:
        await consumer.assign([(run.topic, 1)])
        batch = await run.cut(consumer.stored_batch(timeout_ms=5000))
        while batch is None or batch is CUT:
            batch = await consumer.stored_batch(timeout_ms=5000)
        if await run.cut(producer.send_stored_batch(run.topic, 0, batch)) is CUT:
            await producer.send_stored_batch(run.topic, 0, batch)
    assert run.log() == [value.encode() for value in VALUES]


@scenario()
async def a_full_buffer(run: Run) -> None:
    """A record that waits for room and is given up is not sent."""
    value = b"a".ljust(700_000, b".")
    settings = {"buffer_memory": 1_100_000, "batch_size": 1_000_000, "linger_ms": 60_000}
    async with run.producer(**settings) as producer:
        await producer.send(run.topic, b"0", partition=0)
        await producer.flush()
        await producer.send(run.topic, value, partition=0)  # lingers until another wants its room
        waited = await run.cut(producer.send(run.topic, b"b".ljust(700_000, b"."), partition=0))
        await producer.send(run.topic, b"c", partition=0)
    found = [one[:1] for one in run.log() if one is not None]
    assert found == ([b"0", b"a", b"c"] if waited is CUT else [b"0", b"a", b"b", b"c"])


@scenario()
async def acknowledgement(run: Run) -> None:
    async with run.producer() as producer:
        record = await producer.send(run.topic, b"a", partition=0)
        await run.cut(record)
        assert (await record).offset == 0


@scenario("Producer.flush")
async def flush(run: Run) -> None:
    async with run.producer(linger_ms=60_000) as producer:
        records = [await producer.send(run.topic, value.encode(), partition=0) for value in VALUES]
        await run.cut(producer.flush())
        await producer.flush()
        assert all(record.done() for record in records)
    assert run.log() == [value.encode() for value in VALUES]


@scenario("Producer.close", "Producer.__aexit__")
async def close_a_producer(run: Run) -> None:
    producer = run.producer(linger_ms=60_000)
    records = [await producer.send(run.topic, value.encode(), partition=0) for value in VALUES]
    whole = await run.cut(producer.close()) is not CUT
    with suppress(Exception):  # undelivered records are checked below
        await producer.close()
    await asyncio.wait({asyncio.ensure_future(record) for record in records})
    acknowledged = [
        value.encode()
        for value, record in zip(VALUES, records, strict=True)
        if record.future.exception(0) is None
    ]
    assert set(acknowledged) <= set(run.log())
    assert not whole or len(acknowledged) == len(VALUES)


@scenario()
async def close_with_a_transaction(run: Run) -> None:
    producer = run.producer()
    await with_two_records(run, producer)
    if await run.cut(producer.close()) is not CUT:
        assert run.open_transactions() == []
    await producer.close()
    assert run.log() == []


@scenario("Producer.__aenter__", "Producer.partitions_for", "Producer.position", "Producer.resolve")
async def questions_of_a_producer(run: Run) -> None:
    async with run.producer() as producer:
        assert await run.cut(producer.partitions_for(run.topic)) in (PARTITIONS, CUT)
        assert await run.cut(producer.position(run.topic, 0)) in (-1, CUT)
        record = await producer.send(run.topic, b"a", partition=0)
        await record
        found = await run.cut(producer.resolve(record))
        assert found is CUT or found.resolution.value == "committed"
        assert await producer.position(run.topic, 0) == 0


# --- reading -----------------------------------------------------------------------------


async def read(consumer: aio.Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=5000)).values():
            found += [record.value for record in records]
    return found


def all_values() -> list[bytes]:
    return [value.encode() for value in VALUES]


@scenario("Consumer.start", "Consumer.__aenter__", "Consumer.subscribe")
async def start(run: Run) -> None:
    run.append(*VALUES)
    consumer = run.consumer(run.topic, membership="manual")
    await run.cut(consumer.start())
    await consumer.start()
    assert await read(consumer, len(VALUES)) == all_values()
    await consumer.close()


@scenario("Consumer.assign")
async def assign(run: Run) -> None:
    run.append(*VALUES)
    async with run.consumer(membership="manual") as consumer:
        await run.cut(consumer.assign([(run.topic, 0)]))
        await consumer.assign([(run.topic, 0)])
        assert await read(consumer, len(VALUES)) == all_values()


@scenario()
async def join(run: Run) -> None:
    run.append(*VALUES)
    run.assign(0)
    consumer = run.consumer(run.topic)
    await run.cut(consumer.start())
    await consumer.start()
    assert await read(consumer, len(VALUES)) == all_values()
    await consumer.close()
    await run.has_left()


@scenario()
async def join_and_close(run: Run) -> None:
    run.assign(0)
    consumer = run.consumer(run.topic)
    await run.cut(consumer.start())
    await consumer.close()
    await run.has_left()


@scenario("Consumer.getmany")
async def take_an_assignment(run: Run) -> None:
    """An assignment, and then another one, are taken by the calls that give out records."""
    told: list[str] = []

    async def on_assigned(partitions: list[TopicPartition]) -> None:
        await consumer.committed(partitions[0])
        told.append("assigned")

    async def on_revoked(partitions: list[TopicPartition], deadline: float) -> None:
        await consumer.commit()
        told.append("revoked")

    run.append(*VALUES)
    run.assign(0)
    consumer = run.consumer(run.topic, on_assigned=on_assigned, on_revoked=on_revoked)
    await consumer.start()
    found = await run.cut(consumer.getmany(timeout_ms=5000))
    first = [] if found is CUT else [one.value for some in found.values() for one in some]
    assert first + await read(consumer, len(VALUES) - len(first)) == all_values()
    assert "assigned" in told
    run.append("5", partition=1)
    run.assign(1, revoke=[0])
    found = await run.cut(consumer.getmany(timeout_ms=5000))
    if found is CUT or not found:
        assert await read(consumer, 1) == [b"5"]
    assert consumer.assignment() == {TopicPartition(run.topic, 1)}
    assert told.count("revoked") >= 1
    await consumer.close()
    await run.has_left()


@scenario()
async def loop(run: Run) -> None:
    """The loop lives on after a wait that was given up."""
    run.append_on_wait(*VALUES)
    async with run.consumer(run.topic, membership="manual") as consumer:
        records = aiter(consumer)
        found: list[bytes | None] = []
        while len(found) < len(VALUES):
            record = await run.cut(anext(records))
            if record is not CUT:
                found.append(record.value)
        assert found == all_values()


@scenario()
async def loop_over_batches(run: Run) -> None:
    run.append_on_wait(*VALUES, "5")
    async with run.consumer(run.topic, membership="manual") as consumer:
        batches = consumer.batches()
        found: list[bytes | None] = []
        while len(found) < len(VALUES) + 1:
            batch = await run.cut(anext(batches))
            if batch is not CUT:
                found += batch.column("value").to_pylist()
        assert found == [*all_values(), b"5"]


@scenario("Consumer.commit", "Consumer.committed", "Consumer.position")
async def commit_positions(run: Run) -> None:
    run.append(*VALUES)
    async with run.consumer(run.topic, membership="manual") as consumer:
        assert await run.cut(consumer.position((run.topic, 0))) in (0, CUT)
        await read(consumer, len(VALUES))
        await run.cut(consumer.commit())
        await consumer.commit()
        found = await run.cut(consumer.committed((run.topic, 0)))
        if found is CUT:
            found = await consumer.committed((run.topic, 0))
        assert found is not None and found.offset == len(VALUES)


@scenario(
    "Consumer.seek_to_beginning",
    "Consumer.seek_to_end",
    "Consumer.lag",
    "Consumer.beginning_offsets",
    "Consumer.end_offsets",
    "Consumer.offsets_for_times",
)
async def places(run: Run) -> None:
    run.append(*VALUES)
    tp, end = TopicPartition(run.topic, 0), len(VALUES)
    async with run.consumer(run.topic, membership="manual") as consumer:
        assert await run.cut(consumer.beginning_offsets([tp])) in (CUT, {tp: 0})
        assert await run.cut(consumer.end_offsets([tp])) in (CUT, {tp: end})
        await run.cut(consumer.offsets_for_times({tp: 0}))
        assert await run.cut(consumer.lag(tp)) in (end, CUT)
        await run.cut(consumer.seek_to_end(tp))
        await consumer.seek_to_end(tp)
        assert await consumer.position(tp) == end
        await run.cut(consumer.seek_to_beginning(tp))
        await consumer.seek_to_beginning(tp)
        assert await read(consumer, end) == all_values()


@scenario("Consumer.getone")
async def one_record_after_the_other(run: Run) -> None:
    run.append_on_wait(*VALUES)
    async with run.consumer(run.topic, membership="manual") as consumer:
        found = await run.cut(consumer.getone())
        if found is CUT:
            found = await consumer.getone()
        assert found.value == all_values()[0]
        assert await read(consumer, len(VALUES) - 1) == all_values()[1:]


@scenario("Consumer.unsubscribe")
async def unsubscribe_a_member(run: Run) -> None:
    run.append(*VALUES)
    run.assign(0)
    async with run.consumer(run.topic) as consumer:
        assert consumer.subscription() == {run.topic}
        await read(consumer, len(VALUES))
        await run.cut(consumer.unsubscribe())
        await consumer.unsubscribe()
        assert (consumer.subscription(), consumer.assignment()) == (frozenset(), frozenset())
        await run.has_left()


@scenario("Consumer.close", "Consumer.__aexit__")
async def close_a_member(run: Run) -> None:
    run.append(*VALUES)
    run.assign(0)
    consumer = run.consumer(run.topic)
    await consumer.start()
    await read(consumer, len(VALUES))
    await run.cut(consumer.close())
    await consumer.close()
    await run.has_left()


# --- admin -------------------------------------------------------------------------------


@scenario("Admin.create_topic", "Admin.delete_topic", "Admin.close", "Admin.__aexit__")
async def topics(run: Run) -> None:
    async with aio.Admin(bootstrap_servers=run.kit.servers) as admin:
        name = f"{run.topic}-new"
        if await run.cut(admin.create_topic(name, 1)) is CUT:
            with suppress(Exception):  # the record may be there
                await admin.create_topic(name, 1)
        assert name in await admin.list_topics()
        await run.cut(admin.delete_topic(name))
    await run.cut(admin.close())


def arguments(method: Callable[..., Any], run: Run) -> list[Any]:
    """Arguments of the right types; the call may be refused."""
    kinds: dict[str, Any] = {
        "str": run.topic, "int": 0, "int | None": None, "types.TopicConfig": TopicConfig()
    }  # fmt: skip
    required = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    return [kinds.get(p.annotation, {}) for p in required]


ADMIN = sorted(
    name
    for name, _ in inspect.getmembers(aio.Admin, inspect.iscoroutinefunction)
    if not name.startswith("_") and name != "close"
)


@scenario(*(f"Admin.{name}" for name in ADMIN), "Admin.__aenter__")
async def all_of_admin(run: Run) -> None:
    async with aio.Admin(
        bootstrap_servers=run.kit.servers, request_timeout_ms=100, retry_backoff_ms=50
    ) as admin:
        for name in ADMIN:
            method = getattr(admin, name)
            with suppress(OncelogError):
                await run.cut(method(*arguments(method, run)))
        topics = None
        while topics is None:  # the time for an answer is short, so that no call takes long
            with suppress(RequestTimeoutError):
                topics = await admin.list_topics()


@scenario("Transaction.abort")
async def too_late_to_abort(run: Run) -> None:
    async with run.producer() as producer:
        txn = await with_two_records(run, producer)
        await run.cut(txn.commit())
        with suppress(TransactionCommittedError):
            await txn.abort()
        assert txn.state in ("committed", "aborted")
    assert run.log(0) == run.log(1) == ([b"a"] if txn.state == "committed" else [])
