"""Loads on a running cluster, and their figures: the core of `oncelog bench`.

Place in the flow: `cli/bench` parses and prints, this module sends and reads through the public
Producer and Consumer. Every load returns a flat dict of figures, so that a program can read it as
JSON. Records are random bytes. A rate counts acknowledged records, from the first send to the last
acknowledgement.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oncelog import Consumer, OncelogError, Producer, RecordMetadata
from oncelog.config import ProducerConfig
from oncelog.dotted import settings_from_dotted
from oncelog.errors import RequestTimeoutError

Figures = dict[str, float]

# Records between two looks at the clock.
_STRIDE = 256
# Number of different values, so that neighbours are never the same object.
_VALUES = 64
# Interval in which a load at a given rate sends the due records, seconds.
_TICK_S = 0.001
# Time for the last acknowledgements after the last send, seconds.
_DRAIN_S = 60.0


def producer(bootstrap: Sequence[str], settings: Mapping[str, object]) -> Producer:
    """Return a producer with these settings, under Kafka's names or ours. Raises ConfigError."""
    keywords = settings_from_dotted(ProducerConfig, settings)
    return Producer(**{"bootstrap_servers": bootstrap, **keywords})


def percentiles(times_ms: Sequence[float]) -> Figures:
    """Return p50, p99, p99.9, mean and max; nearest rank, so each is a measured time."""
    if not times_ms:
        return {}
    ordered = sorted(times_ms)

    def rank(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    return {
        "p50_ms": rank(0.50),
        "p99_ms": rank(0.99),
        "p999_ms": rank(0.999),
        "mean_ms": sum(ordered) / len(ordered),
        "max_ms": ordered[-1],
        "samples": len(ordered),
    }


class _Clock:
    """Wall and processor time of this process since the start."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._cpu = time.process_time()

    def figures(self, records: int, size: int) -> Figures:
        seconds = max(time.monotonic() - self._wall, 1e-9)
        return {
            "seconds": seconds,
            "records": records,
            "records_per_s": records / seconds,
            "mb_per_s": records * size / seconds / 1e6,
            "client_cores": (time.process_time() - self._cpu) / seconds,
        }


def produce(client: Producer, topic: str, *, size: int, seconds: float, spread: int = 0) -> Figures:
    """Send single records of `size` bytes through `send`, as fast as it takes them.

    spread: send to this many partitions in turn, instead of using the partitioner.
    """
    values = [os.urandom(size) for _ in range(_VALUES)]
    client.send(topic, values[0]).result(_DRAIN_S)
    before = _batches_acked([client])
    clock, send = _Clock(), client.send
    sent, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        if spread:
            for number in range(sent, sent + _STRIDE):
                send(topic, values[number % _VALUES], partition=number % spread)
        else:
            for number in range(_STRIDE):
                send(topic, values[number % _VALUES])
        sent += _STRIDE
    client.flush(timeout_ms=1000 * _DRAIN_S)
    figures = clock.figures(sent, size)
    return figures | _batch_figures(_batches_acked([client]) - before, figures)


def _batches_acked(clients: Sequence[Producer]) -> float:
    return sum(client.metrics()["batches_acked"] for client in clients)


def _batch_figures(batches: float, figures: Figures) -> Figures:
    return {"batches": batches, "batches_per_s": batches / figures["seconds"]}


def produce_batches(
    client: Producer,
    topic: str,
    *,
    size: int,
    batch_bytes: int,
    seconds: float = 0.0,
    total_bytes: int = 0,
    arrow: bool = False,
) -> Figures:
    """Send whole batches through `send_batch`, over all partitions in turn.

    Each holds about `batch_bytes` in records of `size` bytes, as a list or an Arrow batch. Ends
    after `seconds` or, if that is given, after `total_bytes`.
    """
    count = max(1, batch_bytes // (size + 16))  # 16 bytes of offset and timestamp
    batch: Any = [os.urandom(size) for _ in range(count)]
    if arrow:
        import pyarrow as pa

        batch = pa.RecordBatch.from_arrays([pa.array(batch, pa.binary())], ["value"])
    partitions = client.partitions_for(topic)
    client.send_batch(topic, 0, batch).result(_DRAIN_S)
    before, clock = _batches_acked([client]), _Clock()
    sent, until = 0, time.monotonic() + seconds
    while sent * count * size < total_bytes if total_bytes else time.monotonic() < until:
        client.send_batch(topic, sent % partitions, batch)
        sent += 1
    client.flush(timeout_ms=1000 * _DRAIN_S)
    figures = clock.figures(sent * count, size)
    return figures | _batch_figures(_batches_acked([client]) - before, figures)


def many_producers(
    bootstrap: Sequence[str],
    settings: Mapping[str, object],
    topic: str,
    *,
    size: int,
    seconds: float,
    producers: int,
    depth: int,
    connected: Callable[[], None] = lambda: None,
) -> Figures:
    """Run `producers` producers at once, each with `depth` single-record batches in flight.

    Each acknowledgement sends the next record, so that every batch holds one record if `linger_ms`
    is 0. The latencies are those of the batches. `connected` is called when all have sent a first
    record, before the clock starts.
    """
    value = os.urandom(size)
    times: list[float] = []
    errors: list[OncelogError] = []
    lock = threading.Lock()  # all callbacks run on one thread, the first sends do not
    idle = threading.Event()
    open_records = 0
    until = 0.0

    def again(client: Producer) -> None:
        nonlocal open_records
        started = time.monotonic()

        def delivered(metadata: RecordMetadata | None, error: OncelogError | None) -> None:
            nonlocal open_records
            now = time.monotonic()
            times.append((now - started) * 1e3)
            if error is not None:
                errors.append(error)
            if now < until and error is None:
                again(client)
            with lock:
                open_records -= 1
                if not open_records:
                    idle.set()

        with lock:
            open_records += 1
        client.send(topic, value, partition=None, on_delivery=delivered)

    clients = [producer(bootstrap, settings) for _ in range(producers)]
    try:
        for client in clients:
            client.send(topic, value).result(_DRAIN_S)
        connected()
        before = _batches_acked(clients)
        clock = _Clock()
        until = time.monotonic() + seconds
        for client in clients:
            for _ in range(depth):
                again(client)
        if not idle.wait(seconds + _DRAIN_S):
            raise RequestTimeoutError(f"{open_records} records are not settled")
        figures = clock.figures(len(times) - len(errors), size)
        figures |= _batch_figures(_batches_acked(clients) - before, figures)
    finally:
        for client in clients:
            client.close(timeout_ms=0)
    if errors:
        raise errors[0]
    return figures | percentiles(times)


def latency(client: Producer, topic: str, *, size: int, seconds: float) -> Figures:
    """Send one record at a time, each after the acknowledgement of the one before."""
    value = os.urandom(size)
    times: list[float] = []
    client.send(topic, value).result(_DRAIN_S)
    clock, until = _Clock(), time.monotonic() + seconds
    while time.monotonic() < until:
        started = time.perf_counter()
        client.send(topic, value).result(_DRAIN_S)
        times.append((time.perf_counter() - started) * 1e3)
    return clock.figures(len(times), size) | percentiles(times)


def latency_at_rate(
    client: Producer, topic: str, *, size: int, seconds: float, rate: float
) -> Figures:
    """Send at a steady rate; measure one record's latency in each tick, from its due time.

    A late tick counts from its due time, so that a stall shows in all records that it delays.
    """
    values = [os.urandom(size) for _ in range(_VALUES)]
    times: list[float] = []
    client.send(topic, values[0]).result(_DRAIN_S)
    clock, send = _Clock(), client.send
    begin = time.monotonic()
    sent = 0
    for tick in range(1, int(seconds / _TICK_S) + 1):
        due = begin + tick * _TICK_S
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(wait)  # no event: a load generator keeps time
        target = int(rate * tick * _TICK_S)
        for number in range(sent, target - 1):
            send(topic, values[number % _VALUES])
        if target > sent:
            send(topic, values[0], on_delivery=_AckSample(due, times))
        sent = target
    client.flush(timeout_ms=1000 * _DRAIN_S)
    return clock.figures(sent, size) | percentiles(times) | {"asked_records_per_s": rate}


class _AckSample:
    """Notes the time of one record's acknowledgement; called on the client's thread."""

    __slots__ = ("_due", "_times")

    def __init__(self, due: float, times: list[float]) -> None:
        self._due = due
        self._times = times

    def __call__(self, metadata: RecordMetadata | None, error: OncelogError | None) -> None:
        if error is None:
            self._times.append((time.monotonic() - self._due) * 1e3)


def consume(bootstrap: Sequence[str], topic: str, *, seconds: float, records: bool) -> Figures:
    """Read all present records of the topic, from its start, at most for `seconds`.

    As Arrow batches over the received memory, or, with `records`, as Record objects. The first of
    them is read before the clock starts: it waits for connections and imports.
    """
    take = _take_records if records else _take_batch
    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        take(consumer)
        count = size = 0
        clock, until = _Clock(), time.monotonic() + seconds
        figures = clock.figures(0, 0)
        while time.monotonic() < until:
            if all(consumer.position(tp) >= end for tp, end in ends.items()):
                break
            some, length = take(consumer)
            count, size = count + some, size + length
            if some:  # a compacted topic may end with blanks: a read behind its records waits
                figures = clock.figures(count, 0)
    figures["mb_per_s"] = size / figures["seconds"] / 1e6
    return figures


def _take_records(consumer: Consumer) -> tuple[int, int]:
    lists = consumer.getmany(timeout_ms=1000).values()
    return (
        sum(len(one) for one in lists),
        sum(len(record.value or b"") for one in lists for record in one),
    )


def _take_batch(consumer: Consumer) -> tuple[int, int]:
    import pyarrow.compute as pc

    for batch in consumer.batches(timeout_ms=1000):
        length = pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
        return batch.num_rows, length
    return 0, 0
