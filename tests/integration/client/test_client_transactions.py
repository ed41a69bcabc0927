"""Transactions of the Python clients against real nodes: all of it or nothing, at any failure."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from harness.local_cluster import LocalCluster
from oncelog import (
    Admin,
    CommitTimeoutError,
    Consumer,
    FencedError,
    InvalidRequestError,
    NotReadyError,
    OncelogError,
    Producer,
    TopicPartition,
    Transaction,
    TransactionAbortedError,
    TransactionCommittedError,
    TransactionOpenError,
    aio,
)
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

PARTITIONS = 3


@pytest.fixture
def one(cluster: LocalCluster, admin: Admin, topic: str) -> Iterator[Producer]:
    admin.create_topic(topic, partitions=PARTITIONS)
    with Producer(bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0) as made:
        yield made


def readable(cluster: LocalCluster, topic: str) -> list[list[bytes | None]]:
    """The values of each partition."""
    found: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for tp, records in consumer.getmany(timeout_ms=1000).items():
                found[tp.partition] += [record.value for record in records]
    return found


def spread(txn: Transaction, topic: str, text: bytes) -> None:
    for partition in range(PARTITIONS):
        txn.send(topic, text, partition=partition)


def in_body(txn: Transaction, topic: str) -> None:
    with txn:
        spread(txn, topic, b"never")
        raise KeyError("the body's own")


def begun_ahead(one: Producer) -> int:
    """The transaction that the last commit has begun; 0: none."""
    begun = one._transactions._following.begun
    return 0 if begun is None else begun.transaction_id


def test_a_commit_begins_the_next_one_for_who_goes_on(
    one: Producer, cluster: LocalCluster, topic: str
) -> None:
    numbers, ahead = [], []
    for _ in range(4):
        with one.transaction() as txn:
            spread(txn, topic, b"x")
        numbers.append(txn.transaction_id)
        ahead.append(begun_ahead(one))
    assert ahead[0] == 0 and ahead[1:3] == numbers[2:] and ahead[3] > numbers[3]
    with one.transaction(idle_timeout_ms=5000) as txn:  # other terms abort it
        assert txn.transaction_id > ahead[3]
        spread(txn, topic, b"y")
    assert begun_ahead(one)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        eventually(
            lambda: not [row for row in admin.list_transactions() if row.producer_name == topic],
            "what nobody takes is aborted",
        )
    assert readable(cluster, topic) == [[b"x"] * 4 + [b"y"]] * PARTITIONS


def test_a_commit_shows_all_and_an_error_in_the_body_nothing(
    one: Producer, cluster: LocalCluster, topic: str
) -> None:
    one.send(topic, b"before", partition=0).result()
    with one.transaction() as txn:
        spread(txn, topic, b"first")
        future = txn.send(topic, b"second", partition=0)
        assert future.result(20).offset == -1, "it is staged"
        assert readable(cluster, topic) == [[b"before"], [], []]
    assert txn.state == "committed"
    assert future.result(0).offset == 2
    places = txn.commit().runs
    assert {tp.partition: tuple(run) for tp, run in places.items()} == {
        0: (1, 2),
        1: (0, 1),
        2: (0, 1),
    }
    txn = one.transaction()
    with pytest.raises(KeyError, match="the body's own"):
        in_body(txn, topic)
    assert txn.state == "aborted"
    with pytest.raises(TransactionAbortedError):
        txn.commit()
    one.send(topic, b"after", partition=0).result()
    with one.transaction() as txn:
        txn.send(topic, b"third", partition=0)
    expected = [b"before", b"first", b"second", b"after", b"third"]
    assert readable(cluster, topic) == [expected, [b"first"], [b"first"]]


def test_explicit_calls_and_what_is_refused(one: Producer, topic: str) -> None:
    txn = one.transaction()
    with pytest.raises(InvalidRequestError, match="not begun"):
        txn.send(topic, b"early")
    txn.begin()
    with pytest.raises(TransactionOpenError):
        one.transaction().begin()
    with pytest.raises(InvalidRequestError, match="expected_offset"):
        one.send(topic, b"", partition=0, expected_offset=0)
    assert txn.commit().runs == {}, "an empty one"
    assert txn.commit().transaction_id == txn.transaction_id
    with pytest.raises(TransactionCommittedError):
        txn.abort()
    with pytest.raises(InvalidRequestError, match="committed"):
        txn.send(topic, b"late")
    second = one.transaction().begin()
    second.abort()
    second.abort()
    assert second.transaction_id > txn.transaction_id


def test_a_name_is_needed(producer: Producer) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        producer.transaction().begin()
    assert caught.value.field == "producer_name"


def test_a_transaction_larger_than_memory(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, partitions=PARTITIONS)
    size, count = 64 * 1024, 200
    settings = {"batch_size": size * 2, "buffer_memory": size * 8, "linger_ms": 0}
    with Producer(bootstrap_servers=cluster.bootstrap, producer_name=topic, **settings) as small:  # type: ignore[arg-type]
        with small.transaction() as txn:
            for number in range(count):
                txn.send(topic, b"%06d" % number * (size // 6), partition=number % PARTITIONS)
            assert small.metrics()["buffer_used_bytes"] <= size * 8
        assert sum(run.record_count for run in txn.commit().runs.values()) == count
    values = [value for part in readable(cluster, topic) for value in part]
    assert sorted(int(value[:6]) for value in values if value) == list(range(count))


def test_a_successor_takes_over(one: Producer, cluster: LocalCluster, topic: str) -> None:
    zombie = one.transaction().begin()
    zombie.send(topic, b"zombie", partition=0).result()
    with Producer(
        bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0
    ) as successor:
        with successor.transaction() as txn:
            txn.send(topic, b"successor", partition=0)
        with pytest.raises(TransactionAbortedError) as caught:
            zombie.commit()
        assert caught.value.outcome == "not_stored"
        with pytest.raises(FencedError):
            one.transaction().begin()
    assert readable(cluster, topic)[0] == [b"successor"]


def oncelog(cluster: LocalCluster, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "oncelog.cli", "txn", *words, "--bootstrap", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_an_operators_abort_is_noticed(one: Producer, cluster: LocalCluster, topic: str) -> None:
    txn = one.transaction(idle_timeout_ms=3000).begin()
    txn.send(topic, b"never", partition=0).result()
    number = str(txn.transaction_id)
    (listed,) = json.loads(oncelog(cluster, "list", "--name", topic, "--format", "json"))
    assert (listed["state"], str(listed["transaction_id"])) == ("OPEN", number)
    assert topic in oncelog(cluster, "list")
    described = json.loads(oncelog(cluster, "describe", number, "--format", "json"))
    (part,) = described["partitions"]
    assert (part["topic"], part["staged_records"], part["ended"]) == (topic, 1, False)
    assert "60000000" not in oncelog(cluster, "describe", number)
    assert number in oncelog(cluster, "abort", number, "--yes")
    assert "UNKNOWN_TRANSACTION" in oncelog(cluster, "abort", "999999", "--yes", code=1)

    def refused() -> bool:
        try:
            txn.send(topic, b"never", partition=0).result(20)
        except TransactionAbortedError:
            return True
        return False

    eventually(refused, "the producer has heard of it")
    with pytest.raises(TransactionAbortedError):
        txn.commit()
    with one.transaction() as txn:
        spread(txn, topic, b"next")
    assert readable(cluster, topic) == [[b"next"]] * 3


def test_positions_are_stored_with_the_records_or_not_at_all(
    one: Producer, cluster: LocalCluster, topic: str
) -> None:
    for _ in range(4):
        one.send(topic, b"input", partition=0).result()
    place = TopicPartition(topic, 0)
    settings = {"bootstrap_servers": cluster.bootstrap, "group_id": topic}
    with Consumer(membership="manual", auto_offset_reset="earliest", **settings) as consumer:  # type: ignore[arg-type]
        consumer.assign([place])
        # Before the first transaction, as readers do: the lookup ends open ones.
        assert consumer.position(place) == 0
        with one.transaction() as txn:
            txn.send(topic, b"output", partition=1)
            txn.commit_offsets(topic, {place: 1})
            txn.commit_offsets(topic, {place: 2})
        stored = consumer.committed(place)
        assert stored is not None and stored.offset == 2
        txn = one.transaction().begin()
        consumer.seek(place, 3)
        txn.commit_offsets(consumer)
        assert consumer.committed(place) == stored  # a lookup ends nothing
        with pytest.raises(NotReadyError, match="not committed"):
            consumer.commit({place: 1})
        with Consumer(membership="manual", **settings) as successor:  # type: ignore[arg-type]
            successor.assign([place])
            # The successor is about to read on from there, so the staged offsets end first.
            assert successor.position(place) == 2
        with pytest.raises(TransactionAbortedError):
            txn.commit()
        with one.transaction() as txn:
            txn.commit_offsets(consumer)
        found = consumer.committed(place)
        assert found is not None and found.offset == 3
    with one.transaction() as txn, pytest.raises(InvalidRequestError) as caught:
        txn.commit_offsets(topic)
    assert caught.value.field == "positions"
    assert readable(cluster, topic)[1] == [b"output"]


def test_an_idle_transaction_of_a_live_process_goes_on(one: Producer, topic: str) -> None:
    with one.transaction(idle_timeout_ms=2000, total_timeout_ms=60_000) as txn:
        threading.Event().wait(4.0)  # the test is about time
        txn.send(topic, b"a")
    assert txn.state == "committed"


def test_a_topic_deleted_meanwhile_aborts(one: Producer, admin: Admin, topic: str) -> None:
    other = f"{topic}-other"
    admin.create_topic(other, partitions=1)
    txn = one.transaction().begin()
    txn.send(topic, b"a", partition=0).result()
    txn.send(other, b"a", partition=0).result()
    admin.delete_topic(other)
    with pytest.raises(OncelogError) as caught:
        txn.commit()
    assert txn.state == "aborted", caught.value
    with one.transaction() as txn:
        spread(txn, topic, b"b")
    assert len(txn.commit().runs) == 3


def test_asyncio(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, partitions=PARTITIONS)

    async def failing(txn: aio.Transaction) -> None:
        async with txn:
            await txn.send(topic, b"never", partition=0)
            raise KeyError

    async def play() -> None:
        async with aio.Producer(
            bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0
        ) as one:
            async with one.transaction() as txn:
                sent = [await txn.send(topic, b"a", partition=p) for p in range(PARTITIONS)]
                assert (await sent[0]).offset == -1
            assert (await sent[0]).offset == 0
            assert len((await txn.commit()).runs) == PARTITIONS
            txn = one.transaction()
            with pytest.raises(KeyError):
                await failing(txn)
            assert txn.state == "aborted"
            left = await one.transaction().begin()
            await left.send(topic, b"left open", partition=0)
        assert left.state == "aborted", "a close aborts"

    asyncio.run(play())
    assert readable(cluster, topic) == [[b"a"]] * PARTITIONS


@pytest.mark.slow
def test_commits_are_whole_whoever_is_killed(make_cluster: MakeCluster, topic: str) -> None:
    """Every commit that was answered is there once, in all partitions, where it says."""
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    committed: dict[bytes, dict[TopicPartition, tuple[int, int]]] = {}
    aborted: set[bytes] = set()
    stop = threading.Event()

    def work() -> None:
        number = 0
        with Producer(bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0) as one:
            while not stop.is_set():
                number += 1
                text = b"%d" % number
                txn = one.transaction().begin()
                spread(txn, topic, text)
                if number % 5 == 0:
                    txn.abort()
                    aborted.add(text)
                    continue
                while True:
                    try:
                        places = txn.commit().runs
                        break
                    except CommitTimeoutError:
                        continue  # not known yet: the same call again
                committed[text] = {
                    tp: (run.base_offset, run.record_count) for tp, run in places.items()
                }

    worker = threading.Thread(target=work)
    worker.start()
    for victims in ([1], [1, 2, 3]):
        before = len(committed)
        eventually(lambda before=before: len(committed) > before + 3, "it commits")  # type: ignore[misc]
        cluster.kill(victims)
        cluster.start_nodes(victims)
    before = len(committed)
    eventually(lambda: len(committed) > before + 3, "it commits again")
    stop.set()
    worker.join(60)
    assert not worker.is_alive()
    found = readable(cluster, topic)
    assert found[0] == found[1] == found[2] == list(committed)
    assert not aborted & set(committed)
    for text, places in committed.items():
        for tp, (offset, count) in places.items():
            assert count == 1 and found[tp.partition][offset] == text
