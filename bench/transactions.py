"""Cost of transactions: their rate, the time of a commit, and the loss of other throughput.

    python bench/transactions.py [--producers 16] [--seconds 10] [--rounds 3] [--json]
                                 [--only rate,commit,throughput,large] [--gib 2] [--peers kafka]

Three nodes here, one client over plain gRPC, so that the nodes are measured. Rates depend on the
machine and its other work, so processor time per transaction is given, too. The other two figures
are ratios whose halves take turns.

    rate        transactions of ten small records each in one partition, one at a time for
                each producer, answered when they are readable
    commit      p50 of a commit over six partitions, in p50 of a single record's append
    throughput  1 KiB records with a commit each 100 ms, against none: of one producer that waits
                for answers, of several, and of the Python client, which takes more meanwhile
    large       only on request: a commit of --gib, against small ones, and appends to other
                partitions meanwhile
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a file from a checkout, installed or not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import grpc

from bench import kafka_transactions
from bench.figures import Figures, percentiles
from bench.processes import BenchError, usage
from harness.api import CHANNEL_OPTIONS, batch, reason, verdict
from harness.local_cluster import LocalCluster
from oncelog import Producer
from oncelog.v1 import batch_pb2, log_pb2, log_pb2_grpc, producer_pb2, transaction_pb2_grpc
from oncelog.v1 import producer_pb2_grpc as producers
from oncelog.v1 import transaction_pb2 as pb

TOPIC, PARTITIONS = "bench", 6
SMALL, RECORDS = 10, 10
KIB_RECORDS, WINDOW = 64, 8  # records of 1 KiB in a batch; batches under way
COMMIT_EVERY = 0.1
LARGE_RECORDS = 512  # of 1 KiB in a batch
SMALL_COMMITS = 30  # compared with a large commit
ASIDE_S = 10.0  # seconds of appends to other partitions before, and around, a large commit
TIMEOUT = 30.0
RETRY = 0.02
MANY = 8  # producers


class Nodes:
    """Channels, and the leader of each partition."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.leaders = [cluster.leader(TOPIC, number) for number in range(PARTITIONS)]
        self.channels = {
            node: grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
            for node, address in cluster.addresses.items()
        }

    async def close(self) -> None:
        for channel in self.channels.values():
            await channel.close()


class Stream:
    """ProduceStream of one producer to one node."""

    def __init__(self, channel: Any) -> None:
        self._queue: asyncio.Queue[batch_pb2.Batch] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._ids = count(1)
        self._call = log_pb2_grpc.LogServiceStub(channel).ProduceStream(self._requests())
        self._reader = asyncio.create_task(self._read())

    async def _requests(self) -> AsyncIterator[log_pb2.ProduceRequest]:
        while True:
            yield log_pb2.ProduceRequest(batches=[await self._queue.get()])

    async def _read(self) -> None:
        async for answer in self._call:
            for result in answer.results:
                self._waiting.pop(result.id).set_result(verdict(result))

    async def send(self, one: batch_pb2.Batch) -> str:
        one.id = next(self._ids)
        future = self._waiting[one.id] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(one)
        return await future

    async def close(self) -> None:
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


class Sender:
    """One producer name: batches, with and without transactions.

    home: the partition whose leader gets the transaction calls, as clients do.
    """

    def __init__(self, nodes: Nodes, name: str, home: int = 0) -> None:
        self.nodes = nodes
        self.name = name
        self.streams: dict[int, Stream] = {}
        self.last = [-1] * PARTITIONS
        self.runs: dict[int, pb.StagedRun] = {}
        self.number = 0
        self._nonces = count(1)
        channel = nodes.channels[nodes.leaders[home]]
        self._transactions = transaction_pb2_grpc.TransactionServiceStub(channel)
        self._producers = producers.ProducerServiceStub(channel)
        self.lease: Any = None

    async def open(self) -> None:
        request = producer_pb2.LeaseProducerRequest(producer_name=self.name, nonce=1)
        self.lease = await self._producers.LeaseProducer(request, timeout=TIMEOUT)
        self.streams = {node: Stream(self.nodes.channels[node]) for node in set(self.nodes.leaders)}

    async def close(self) -> None:
        for stream in self.streams.values():
            await stream.close()

    async def send(self, partition: int, records: int, payload: bytes) -> str:
        """Sends a batch; repeats it while it only waits for a marker."""
        first, prev = self.last[partition] + 1, self.last[partition]
        one = batch(
            TOPIC,
            partition,
            self.lease.producer_id,
            first,
            payload,
            epoch=self.lease.epoch,
            count=records,
            prev=prev,
            transaction_id=self.number,
        )
        if prev < 0:
            one.lease_token = self.lease.lease_token
        self.last[partition] += records
        if self.number:
            run = self.runs.setdefault(partition, pb.StagedRun(topic=TOPIC, partition=partition))
            run.record_count += records
            run.last_sequence = self.last[partition]
        stream = self.streams[self.nodes.leaders[partition]]
        while True:
            found = await stream.send(one)
            if found == "NOT_LEADER":
                text = f"{TOPIC}/{partition} has another leader: the machine is too busy"
                raise BenchError(text)
            if found not in ("TRANSACTION_CONFLICT", "NOT_READY", "OUT_OF_ORDER"):
                break
            await asyncio.sleep(RETRY)
        assert found in ("APPENDED", "STAGED", "DUPLICATE"), found
        return found

    async def begin(self) -> None:
        """Begins a transaction, unless the commit before has."""
        if self.number:
            return
        request = pb.BeginTransactionRequest(
            producer_name=self.name,
            producer_id=self.lease.producer_id,
            epoch=self.lease.epoch,
            lease_token=self.lease.lease_token,
            nonce=next(self._nonces),
            partitions=self._written(),
        )
        answer = await self._again(self._transactions.BeginTransaction, request)
        self.number = answer.transaction_id
        self.runs = {}

    def _written(self) -> list[batch_pb2.TopicPartition]:
        return [batch_pb2.TopicPartition(topic=TOPIC, partition=one) for one in self.runs]

    async def commit(self, *, at_decision: bool = False) -> None:
        """Makes the transaction readable, and begins the next one."""
        request = pb.CommitTransactionRequest(
            transaction_id=self.number,
            producer_id=self.lease.producer_id,
            epoch=self.lease.epoch,
            runs=self.runs.values(),
            at_decision=at_decision,
            begin_next=pb.NextTransaction(nonce=next(self._nonces), partitions=self._written()),
        )
        answer = await self._again(self._transactions.CommitTransaction, request)
        self.number = answer.next.transaction_id
        self.runs = {}

    async def keep_alive(self) -> None:
        request = pb.KeepTransactionsAliveRequest(transaction_ids=[self.number])
        answer = await self._again(self._transactions.KeepTransactionsAlive, request)
        if answer.ended:
            raise BenchError(f"transaction {self.number} has ended")

    @staticmethod
    async def _again(call: Callable[..., Any], request: Any) -> Any:
        while True:
            try:
                return await call(request, timeout=TIMEOUT)
            except grpc.aio.AioRpcError as error:
                if reason(error) not in ("NOT_READY", "REQUEST_TIMEOUT", "THROTTLED"):
                    raise
                await asyncio.sleep(RETRY)


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


async def rate(nodes: Nodes, pids: list[int], producers: int, seconds: float) -> Figures:
    senders = [
        Sender(nodes, f"rate-{number}-{time.time_ns()}", number % PARTITIONS)
        for number in range(producers)
    ]
    await together(sender.open() for sender in senders)
    times: list[float] = []

    async def work(sender: Sender, partition: int, end: float) -> None:
        while time.perf_counter() < end:
            start = time.perf_counter()
            await sender.begin()
            await sender.send(partition, RECORDS, b"x" * SMALL * RECORDS)
            await sender.commit()
            times.append((time.perf_counter() - start) * 1000)

    start, before = time.perf_counter(), usage(pids)
    await together(
        work(sender, number % PARTITIONS, start + seconds) for number, sender in enumerate(senders)
    )
    spent, took = usage(pids) - before, time.perf_counter() - start
    await together(sender.close() for sender in senders)
    return {
        "transactions_per_s": len(times) / took,
        "node_cpu_ms_per_transaction": 1000 * spent.cpu_s / len(times),
        **percentiles(times),
    }


async def commits(nodes: Nodes, seconds: float) -> Figures:
    """Measures appends of one record and commits over all partitions, in turn."""
    plain, staged = Sender(nodes, f"plain-{time.time_ns()}"), Sender(nodes, f"t-{time.time_ns()}")
    await together((plain.open(), staged.open()))
    appends: list[float] = []
    commits: list[float] = []
    end = time.perf_counter() + seconds
    for number in count():
        if time.perf_counter() > end:
            break
        start = time.perf_counter()
        await plain.send(number % PARTITIONS, 1, b"x" * 100)
        appends.append((time.perf_counter() - start) * 1000)
        await staged.begin()
        await together(_sent(staged, partition) for partition in range(PARTITIONS))
        start = time.perf_counter()
        await staged.commit()
        commits.append((time.perf_counter() - start) * 1000)
    await together((plain.close(), staged.close()))
    append, commit = percentiles(appends)["p50_ms"], percentiles(commits)["p50_ms"]
    return {"append_p50_ms": append, "commit_p50_ms": commit, "in_appends": commit / append}


async def _sent(sender: Sender, partition: int) -> None:
    await sender.send(partition, 1, b"x" * 100)


async def throughput(nodes: Nodes, seconds: float, producers: int, *, commit: bool) -> float:
    """MiB/s of some producers, each over all partitions."""
    works = [_through(nodes, seconds, home, commit=commit) for home in range(producers)]
    return sum(await asyncio.gather(*works))


async def _through(nodes: Nodes, seconds: float, home: int, *, commit: bool) -> float:
    sender = Sender(nodes, f"through-{home}-{time.time_ns()}", home % PARTITIONS)
    await sender.open()
    payload, sent = b"x" * 1024 * KIB_RECORDS, 0
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        if commit:
            await sender.begin()
        end = time.perf_counter() + COMMIT_EVERY
        under_way: set[asyncio.Task[str]] = set()
        while time.perf_counter() < end:
            while len(under_way) < WINDOW:
                one = sender.send(sent % PARTITIONS, KIB_RECORDS, payload)
                under_way.add(asyncio.create_task(one))
                sent += 1
            _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        if under_way:
            await asyncio.wait(under_way)
        if commit:
            await sender.commit(at_decision=True)
    took = time.perf_counter() - start
    await sender.close()
    return sent * len(payload) / took / 2**20


def client_throughput(bootstrap: str, seconds: float, *, commit: bool) -> float:
    """MiB/s of the Python client, which takes records while others are in flight."""
    value, sent = b"x" * 1024, 0
    with Producer(
        bootstrap_servers=bootstrap, producer_name=f"client-{time.time_ns()}"
    ) as producer:
        start = time.perf_counter()
        while time.perf_counter() < start + seconds:
            send: Callable[..., object] = producer.send
            transaction = producer.transaction().begin() if commit else None
            if transaction is not None:
                send = transaction.send
            end = time.perf_counter() + COMMIT_EVERY
            while time.perf_counter() < end:
                for _ in range(KIB_RECORDS):
                    send(TOPIC, value, partition=sent % PARTITIONS)
                    sent += 1
            if transaction is not None:
                transaction.commit()
        producer.flush()
        took = time.perf_counter() - start
    return sent * len(value) / took / 2**20


def in_turns(rounds: int, once: Callable[[bool], float]) -> Figures:
    rates: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * rounds):
        which = (True, False, False, True)[number % 4]
        rates[which].append(once(which))
    return compared(rates)


def compared(rates: Mapping[bool, list[float]]) -> Figures:
    """Medians without and with commits."""
    without, with_commits = (
        sorted(rates[which])[len(rates[which]) // 2] for which in (False, True)
    )
    return {
        "without_mib_per_s": without,
        "with_mib_per_s": with_commits,
        "ratio": with_commits / without,
    }


async def _aside(nodes: Nodes, sender: Sender, end: asyncio.Event) -> list[float]:
    """Times of plain appends to all partitions but the first, one at a time."""
    times: list[float] = []
    for number in count():
        if end.is_set():
            return times
        start = time.perf_counter()
        await sender.send(1 + number % (PARTITIONS - 1), 1, b"x" * 100)
        times.append((time.perf_counter() - start) * 1000)
    raise AssertionError("not reached")


async def large(nodes: Nodes, gib: float) -> Figures:
    """Measures a commit of `gib` in one partition."""
    sender, plain = Sender(nodes, f"large-{time.time_ns()}"), Sender(nodes, f"p-{time.time_ns()}")
    await together((sender.open(), plain.open()))
    times: list[float] = []
    for _ in range(SMALL_COMMITS):
        await sender.begin()
        await sender.send(0, 1, b"x" * 100)
        start = time.perf_counter()
        await sender.commit()
        times.append((time.perf_counter() - start) * 1000)
    await sender.begin()
    payload = b"x" * 1024 * LARGE_RECORDS
    under_way: set[asyncio.Task[str]] = set()
    begun = time.perf_counter()
    for number in range(int(gib * 2**30) // len(payload)):
        if len(under_way) >= WINDOW:
            _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        under_way.add(asyncio.create_task(sender.send(0, LARGE_RECORDS, payload)))
        if number % 100 == 0:
            await sender.keep_alive()
    await asyncio.wait(under_way)
    staged_s = time.perf_counter() - begun
    sides: list[list[float]] = []
    commit_ms = 0.0
    for with_commit in (False, True):
        await sender.keep_alive()
        end = asyncio.Event()
        side = asyncio.create_task(_aside(nodes, plain, end))
        await asyncio.sleep(ASIDE_S / 2)
        if with_commit:
            start = time.perf_counter()
            await sender.commit()
            commit_ms = (time.perf_counter() - start) * 1000
        await asyncio.sleep(ASIDE_S / 2)
        end.set()
        sides.append(await side)
    await together((sender.close(), plain.close()))
    small = percentiles(times)
    return {
        "gib": gib,
        "staged_mib_per_s": gib * 1024 / staged_s,
        "commit_ms": commit_ms,
        "small_commit_p50_ms": small["p50_ms"],
        "small_commit_p99_ms": small["p99_ms"],
        "others_before_p50_ms": percentiles(sides[0])["p50_ms"],
        "others_around_p50_ms": percentiles(sides[1])["p50_ms"],
        "others_before_p99_ms": percentiles(sides[0])["p99_ms"],
        "others_around_p99_ms": percentiles(sides[1])["p99_ms"],
    }


async def measure(cluster: LocalCluster, options: argparse.Namespace) -> dict[str, Figures]:
    nodes = Nodes(cluster)
    pids = [process.pid for process in cluster.nodes.values()]
    found: dict[str, Figures] = {}
    if "rate" in options.only:
        await rate(nodes, pids, options.producers, 1)
        found["rate"] = await rate(nodes, pids, options.producers, options.seconds)
    if "commit" in options.only:
        found["commit"] = await commits(nodes, options.seconds)
    for many in (1, MANY) if "throughput" in options.only else ():
        rates: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * options.rounds):
            which = (True, False, False, True)[number % 4]
            one = await throughput(nodes, options.seconds / 2, many, commit=which)
            rates[which].append(one)
        found[f"throughput of {many}"] = compared(rates)
    if "large" in options.only:
        found["large"] = await large(nodes, options.gib)
    await nodes.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="What transactions cost.")
    parser.add_argument("--producers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="rate,commit,throughput")
    parser.add_argument("--peers", choices=("", "kafka"), default="")
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalCluster(Path(scratch), settings={}) as cluster,
    ):
        cluster.api(1).create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
        found = asyncio.run(measure(cluster, options))
        if "throughput" in options.only:
            found["throughput of the client"] = in_turns(
                options.rounds,
                lambda commit: client_throughput(
                    cluster.bootstrap, options.seconds / 2, commit=commit
                ),
            )
    for flush in (False, True) if options.peers == "kafka" else ():
        found["Kafka, flush.messages=1" if flush else "Kafka"] = kafka_transactions.measure(
            flush=flush,
            only=options.only,
            producers=options.producers,
            seconds=options.seconds,
            rounds=options.rounds,
        )
    if options.json:
        print(json.dumps(found))
        return 0
    for part, figures in found.items():
        print(part, "  ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
