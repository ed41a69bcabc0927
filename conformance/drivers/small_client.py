"""Smallest correct client, with faults that can be switched on.

It sends one batch for each record, one at a time in each partition, over unary calls; it has no
names, no own sequences and no compression. It shows that the cases can fail: each fault removes
one rule of docs/protocol.md, and the cases for that rule must notice (tests/integration).

    small_driver --> Producer: a thread for each partition --> nodes
                 --> Reader: one fetch at a time
"""

from __future__ import annotations

import itertools
import queue
import random
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import crc32c
import grpc

from conformance.broker.payloads import PREAMBLE, pack
from harness.payload import values_and_keys
from oncelog.v1 import (
    batch_pb2,
    cluster_pb2,
    cluster_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    producer_pb2,
    producer_pb2_grpc,
)

FAULTS = frozenset(
    {
        "renumbers-retries",
        "new-lease-for-a-retry",
        "timeout-is-stored",
        "duplicate-is-failure",
        "one-id-for-all",
        "no-token",
        "stays-with-the-first-leader",
        "repeats-what-it-does-not-understand",
        "ignores-the-lifetime",
        "no-pauses",
        "believes-the-first-node",
        "goes-on-after-a-conflict",
        "another-hash",
        "no-checksum",
        "trusts-lengths",
        "gives-whole-batches",
        "begins-anew-when-ahead",
        "default-message-limit",
        "skips-damage",
    }
)
V = log_pb2
RETRIABLE = frozenset(
    {
        V.VERDICT_UNSPECIFIED,
        V.VERDICT_NOT_LEADER,
        V.VERDICT_NOT_READY,
        V.VERDICT_TIMEOUT,
        V.VERDICT_THROTTLED,
        V.VERDICT_STORAGE_FULL,
        V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION,
    }
)
FATAL = frozenset(
    {
        V.VERDICT_FENCED,
        V.VERDICT_SEQUENCE_CONFLICT,
        V.VERDICT_OUT_OF_ORDER,
        V.VERDICT_UNKNOWN_PRODUCER,
    }
)
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class ClientError(Exception):
    """Failure by a word of conformance/DRIVER.md. `outcome`: of a record, or empty."""

    def __init__(
        self, reason: str, message: str, outcome: str = "", details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.outcome = outcome
        self.details = details or {}


@dataclass(slots=True)
class Lease:
    producer_id: int
    token: bytes
    replace_at: float
    next_sequence: dict[tuple[str, int], int] = field(default_factory=dict)


class Nodes:
    """Connections to nodes, and the known leaders."""

    def __init__(self, servers: list[str], faults: frozenset[str], timeout_s: float) -> None:
        self._servers = list(servers)
        self._faults = faults
        self._timeout_s = timeout_s
        self._turn = itertools.count()
        self._leaders: dict[tuple[str, int], str] = {}
        self._counts: dict[str, int] = {}
        self._channels: dict[str, grpc.Channel] = {}

    def channel(self, address: str) -> grpc.Channel:
        if address not in self._channels:
            limits = [] if "default-message-limit" in self._faults else UNLIMITED
            quick = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.use_local_subchannel_pool", 1)]
            self._channels[address] = grpc.insecure_channel(address, [*limits, *quick])
        return self._channels[address]

    def any(self) -> str:
        return self._servers[next(self._turn) % len(self._servers)]

    def leader(self, topic: str, partition: int, *, anew: bool) -> str:
        """Finds the leader's address. Raises ClientError, grpc.RpcError."""
        if "stays-with-the-first-leader" in self._faults:
            anew = False
        if anew or (topic, partition) not in self._leaders:
            self._refresh(topic)
        if not 0 <= partition < self._counts[topic]:
            raise ClientError("UNKNOWN_TOPIC_OR_PARTITION", f"no partition {partition}")
        return self._leaders[topic, partition]

    def hint(self, topic: str, partition: int, address: str) -> None:
        if "stays-with-the-first-leader" not in self._faults:
            self._leaders[topic, partition] = address

    def partitions(self, topic: str) -> int:
        if topic not in self._counts:
            self._refresh(topic)
        return self._counts[topic]

    def _refresh(self, topic: str) -> None:
        tries = 1 if "believes-the-first-node" in self._faults else 40
        for left in range(tries, 0, -1):
            try:
                self._ask(topic)
                return
            except grpc.RpcError as error:
                if left == 1:
                    text = f"nobody tells of {topic}: {error.code().name}"
                    raise ClientError("UNKNOWN_TOPIC_OR_PARTITION", text) from error
                time.sleep(0.05)  # no event: a node that is asked again

    def _ask(self, topic: str) -> None:
        stub = cluster_pb2_grpc.ClusterServiceStub(self.channel(self.any()))
        request = cluster_pb2.DescribeTopicsRequest(names=[topic])
        answer = stub.DescribeTopics(request, timeout=min(1.0, self._timeout_s))
        addresses = {node.node_id: node.address for node in answer.nodes}
        self._servers = list(dict.fromkeys([*self._servers, *addresses.values()]))
        self._counts[topic] = len(answer.topics[0].partitions)
        for info in answer.topics[0].partitions:
            self._leaders[topic, info.partition] = addresses[info.leader_id]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


@dataclass(slots=True)
class Record:
    """Unfinished record; `result` follows conformance/DRIVER.md."""

    topic: str
    partition: int
    value: bytes
    deadline: float
    done: threading.Event = field(default_factory=threading.Event)
    result: dict[str, Any] = field(default_factory=lambda: {"pending": True})


class Producer:
    """Producer with one lease and one thread for each partition."""

    def __init__(self, config: dict[str, Any], faults: frozenset[str]) -> None:
        self._faults = faults
        self._timeout_s = config["request_timeout_ms"] / 1000
        self._pause_s = 0.0 if "no-pauses" in faults else config["retry_backoff_ms"] / 1000
        self._delivery_s = config["delivery_timeout_ms"] / 1000
        self._nodes = Nodes(config["bootstrap_servers"], faults, self._timeout_s)
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._ids = itertools.count(1)
        self._lanes: dict[tuple[str, int], queue.Queue[Record | None]] = {}
        self._fatal: ClientError | None = None
        self.closed = False

    def send(self, topic: str, partition: int | None, key: bytes | None, value: bytes) -> Record:
        if self.closed:
            raise ClientError("CLIENT_CLOSED", "the producer is closed")
        if self._fatal is not None:
            raise self._fatal
        count = self._nodes.partitions(topic)
        if partition is None:
            number = sum(key or b"") if "another-hash" in self._faults else murmur2(key or b"")
            partition = number % count
        record = Record(topic, partition, value, time.monotonic() + self._delivery_s)
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = queue.Queue()
            threading.Thread(target=self._work, args=(lane,), daemon=True).start()
        lane.put(record)
        return record

    def close(self) -> None:
        self.closed = True
        for lane in self._lanes.values():
            lane.put(None)

    def _work(self, lane: queue.Queue[Record | None]) -> None:
        while (record := lane.get()) is not None:
            try:
                record.result = {"ok": self._deliver(record)}
            except ClientError as error:
                record.result = {"error": error}
            record.done.set()

    def _current(self, deadline: float, *, another: bool = False) -> Lease:
        with self._lock:
            lease = self._lease
            late = lease is not None and time.monotonic() >= lease.replace_at
            if "ignores-the-lifetime" in self._faults:
                late = False
            if lease is None or late or another:
                lease = self._lease = self._new_lease(deadline)
            return lease

    def _new_lease(self, deadline: float) -> Lease:
        while time.monotonic() < deadline:
            stub = producer_pb2_grpc.ProducerServiceStub(self._nodes.channel(self._nodes.any()))
            began = time.monotonic()
            try:
                request = producer_pb2.LeaseProducerRequest()
                answer = stub.LeaseProducer(request, timeout=min(2.0, self._timeout_s))
            except grpc.RpcError:
                time.sleep(self._pause_s)  # no event: a node that is asked again
                continue
            token = b"" if "no-token" in self._faults else answer.lease_token
            return Lease(answer.producer_id, token, began + 0.9 * answer.lifetime_ms / 1000)
        raise ClientError("DELIVERY_TIMEOUT", "no lease in time", "never_sent")

    def _deliver(self, record: Record) -> dict[str, Any]:
        """Sends the record until a final answer."""
        where = (record.topic, record.partition)
        lease = self._current(record.deadline)
        sequence = lease.next_sequence.get(where, 0)
        batch = _batch(record, lease, sequence)
        lease.next_sequence[where] = sequence + 1
        doubt = False
        sent = 0
        while time.monotonic() < record.deadline:
            sent += 1
            if sent > 1:
                time.sleep(self._pause_s * min(8, 2**sent))  # no event: a node that is asked again
                lease, batch = self._again(record, lease, batch)
            result = self._attempt(record, batch, anew=sent > 2)
            if result is None:
                doubt = True
                continue
            verdict = result.verdict
            if verdict == V.VERDICT_NOT_LEADER and result.leader_address and sent == 1:
                self._nodes.hint(*where, result.leader_address)
            if self._stored(verdict):
                return _placed(record, batch, result)
            if verdict in RETRIABLE or self._repeats(verdict):
                doubt = True
                continue
            self._refuse(record, lease, result, doubt)
        lease.next_sequence.pop(where, None)
        self._current(time.monotonic() + 1, another=True)
        raise ClientError("DELIVERY_TIMEOUT", "the time is over", "unknown")

    def _again(
        self, record: Record, lease: Lease, batch: batch_pb2.Batch
    ) -> tuple[Lease, batch_pb2.Batch]:
        where = (record.topic, record.partition)
        if "renumbers-retries" in self._faults:
            sequence = lease.next_sequence[where]
            lease.next_sequence[where] = sequence + 1
            return lease, _batch(record, lease, sequence)
        if "new-lease-for-a-retry" in self._faults:
            lease = self._current(record.deadline, another=True)
            lease.next_sequence[where] = 1
            return lease, _batch(record, lease, 0)
        return lease, batch

    def _stored(self, verdict: int) -> bool:
        if verdict == V.VERDICT_DUPLICATE:
            return "duplicate-is-failure" not in self._faults
        if verdict == V.VERDICT_TIMEOUT:
            return "timeout-is-stored" in self._faults
        return verdict == V.VERDICT_APPENDED

    def _repeats(self, verdict: int) -> bool:
        known = verdict in V.Verdict.values()
        return not known and "repeats-what-it-does-not-understand" in self._faults

    def _attempt(
        self, record: Record, batch: batch_pb2.Batch, *, anew: bool
    ) -> log_pb2.BatchResult | None:
        """Sends once; returns the result, or None if the outcome is unknown."""
        batch.id = 1 if "one-id-for-all" in self._faults else next(self._ids)
        address = self._nodes.leader(record.topic, record.partition, anew=anew)
        request = log_pb2.ProduceRequest(batches=[batch], timeout_ms=int(self._timeout_s * 800))
        try:
            stub = log_pb2_grpc.LogServiceStub(self._nodes.channel(address))
            answer = stub.Produce(request, timeout=self._timeout_s)
        except grpc.RpcError:
            return None
        return next((result for result in answer.results if result.id == batch.id), None)

    def _refuse(
        self, record: Record, lease: Lease, result: log_pb2.BatchResult, doubt: bool
    ) -> None:
        """Raises the record's error."""
        verdict = result.verdict
        known = verdict in V.Verdict.values()
        name = V.Verdict.Name(verdict).removeprefix("VERDICT_") if known else "INVALID_BATCH"
        outcome = "unknown" if doubt or not known else "not_stored"
        error = ClientError(name, result.message, outcome)
        if verdict in FATAL and "goes-on-after-a-conflict" not in self._faults:
            self._fatal = error
        elif outcome == "unknown" or verdict in FATAL:
            self._current(time.monotonic() + self._timeout_s, another=True)
        else:
            lease.next_sequence[record.topic, record.partition] -= 1
        raise error


def _batch(record: Record, lease: Lease, sequence: int) -> batch_pb2.Batch:
    payload = pack([record.value], time.time_ns() // 1000)
    header = batch_pb2.BatchHeader(
        topic=record.topic,
        partition=record.partition,
        producer_id=lease.producer_id,
        base_sequence=sequence,
        record_count=1,
        crc32c=crc32c.crc32c(payload),
        max_timestamp_us=struct.unpack("<q", payload[-8:])[0],
    )
    token = lease.token if sequence == 0 else b""
    return batch_pb2.Batch(header=header, payload=payload, lease_token=token)


def _placed(record: Record, batch: batch_pb2.Batch, result: log_pb2.BatchResult) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": result.base_offset,
        "sequence": batch.header.base_sequence,
        "last_sequence": batch.header.base_sequence,
        "producer_id": batch.header.producer_id,
        "epoch": 0,
        "duplicate": result.verdict == V.VERDICT_DUPLICATE,
    }


class Reader:
    """Reads one partition, a fetch at a time."""

    def __init__(self, config: dict[str, Any], faults: frozenset[str]) -> None:
        self._faults = faults
        self._timeout_s = config["request_timeout_ms"] / 1000
        self._nodes = Nodes(config["bootstrap_servers"], faults, self._timeout_s)
        self._where = ("", 0)
        self._read_to = 0
        self._failed = 0  # consecutive failures
        self.position = 0

    def assign(self, topic: str, partition: int) -> None:
        self._nodes.partitions(topic)
        self._where = (topic, partition)

    def seek(self, offset: int) -> None:
        self.position = self._read_to = offset

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        """Polls until a record or the timeout. Raises ClientError."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                answer = self._fetch(anew=self._failed > 0)
            except grpc.RpcError as error:
                self._failed += 1
                if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise ClientError("THROTTLED", "a message beyond the limit") from error
                time.sleep(0.02 * min(8, self._failed))  # no event: a node that is asked again
                continue
            if answer.error:
                self._failed += 1
                self._refused(answer)
                time.sleep(random.uniform(0.01, 0.02))  # no event: a node that is asked again
                continue
            self._failed = 0
            records = list(self._records(answer))
            if records:
                return records
        return []

    def _fetch(self, *, anew: bool) -> log_pb2.PartitionRecords:
        topic, number = self._where
        address = self._nodes.leader(topic, number, anew=anew)
        wanted = log_pb2.PartitionFetch(topic=topic, partition=number, offset=self.position)
        request = log_pb2.FetchRequest(partitions=[wanted], min_bytes=1, max_wait_ms=100)
        stub = log_pb2_grpc.LogServiceStub(self._nodes.channel(address))
        found: log_pb2.PartitionRecords = stub.Fetch(request, timeout=self._timeout_s).partitions[0]
        return found

    def _refused(self, answer: log_pb2.PartitionRecords) -> None:
        """Raises ClientError for final errors."""
        topic, number = self._where
        place = {"topic": topic, "partition": number, "offset": self.position}
        if answer.error == log_pb2.PARTITION_ERROR_NOT_LEADER and answer.leader_address:
            self._nodes.hint(topic, number, answer.leader_address)
        if answer.error == log_pb2.PARTITION_ERROR_STORAGE:
            raise ClientError("CORRUPT_LOG", answer.message, details=place)
        if answer.error == log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE:
            anew = "begins-anew-when-ahead" in self._faults
            if self.position < answer.log_start_offset or anew:
                self.seek(answer.log_start_offset)
            elif self.position != self._read_to:
                raise ClientError("OFFSET_OUT_OF_RANGE", "never given", details=place)

    def _records(self, answer: log_pb2.PartitionRecords) -> Iterator[dict[str, Any]]:
        topic, number = self._where
        for stored in answer.batches:
            for offset, value in enumerate(self._values(stored), stored.base_offset):
                if offset < self.position and "gives-whole-batches" not in self._faults:
                    continue
                self.position = self._read_to = offset + 1
                yield {
                    "topic": topic,
                    "partition": number,
                    "offset": offset,
                    "timestamp_us": stored.header.max_timestamp_us,
                    "key": None,
                    "value": None if value is None else value.hex(),
                    "headers": [],
                }

    def _values(self, stored: batch_pb2.StoredBatch) -> list[bytes | None]:
        topic, number = self._where
        place = {"topic": topic, "partition": number, "offset": stored.base_offset}
        payload = stored.payload
        damaged = crc32c.crc32c(payload) != stored.header.crc32c
        if damaged and "no-checksum" not in self._faults:
            if "skips-damage" in self._faults:
                self.position = self._read_to = stored.base_offset + stored.header.record_count
                return []
            raise ClientError("CORRUPT_LOG", "the checksum differs", details=place)
        fields = PREAMBLE.unpack_from(payload)
        if sum(fields[4:]) > len(payload) and "trusts-lengths" not in self._faults:
            raise ClientError("CORRUPT_LOG", "the length is wrong", details=place)
        values, _ = values_and_keys(payload)
        return values


def murmur2(data: bytes) -> int:
    """Kafka's murmur2, without the highest bit."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    state = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * factor & mask
        word = (word ^ word >> 24) * factor & mask
        state = state * factor & mask ^ word
    if len(data) > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * factor & mask
    state = (state ^ state >> 13) * factor & mask
    return (state ^ state >> 15) & 0x7FFFFFFF
