"""Flights -> topic: replays the year, faster, in its order.

A record is a flight: the key is the aircraft's tail number, the value compact JSON, and the
timestamp the scheduled departure. One producer sends all of them in the order of that time. So each
partition is in that order too, and stays so if nodes are killed: an idempotent producer's repeated
batch takes its place in the order, once. The job relies on it (see `job.departures`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oncelog import Producer

# Send at most this early, so that one wait serves several flights.
AHEAD_S = 0.01
LOOK_EVERY = 500  # records, when the clock does not wait for us


@dataclass(frozen=True, slots=True)
class Moment:
    """Progress of the replay. Times in seconds since 1970."""

    at: float
    sent: int
    acknowledged: int
    event_time: float  # of the last flight sent


def replay(producer: Producer, topic: str, flights: Any, seconds: float) -> Iterator[Moment]:
    """Send `flights` within so many seconds; yield the progress now and then."""
    times = flights["scheduled"].dt.as_unit("ms").astype("int64")
    start, first = time.time(), int(times.iloc[0])
    pace = seconds / max(1, int(times.iloc[-1]) - first)
    rows = zip(times, flights.itertuples(index=False), strict=True)
    for sent, (scheduled_ms, flight) in enumerate(rows, 1):
        key, value = record(flight)
        producer.send(topic, value, key, timestamp_ms=scheduled_ms)
        ahead = start + (scheduled_ms - first) * pace - time.time()
        if ahead > AHEAD_S or sent % LOOK_EVERY == 0 or sent == len(flights):
            acknowledged = int(producer.metrics()["records_acked"])
            yield Moment(time.time(), sent, acknowledged, scheduled_ms / 1000)
            time.sleep(max(0.0, ahead))  # no event: the next flight is not due yet


def all_at_once(producer: Producer, topic: str, flights: Any) -> None:
    """Send `flights`, and wait until they are stored."""
    for _ in replay(producer, topic, flights, 0):
        pass
    producer.flush()


def record(flight: Any) -> tuple[bytes | None, bytes]:
    """Key and value of one row of `data.departures`."""
    delay = flight.dep_delay
    value = {
        "carrier": flight.carrier,
        "flight": flight.flight,
        "origin": flight.origin,
        "dest": flight.dest,
        "dep_delay": None if math.isnan(delay) else int(delay),
    }
    # Of some flights the aircraft is not known (NaN).
    key = flight.tailnum.encode() if isinstance(flight.tailnum, str) else None
    return key, json.dumps(value, separators=(",", ":")).encode()


def end_of_stream(producer: Producer, topic: str, partitions: int, flights: Any) -> None:
    """Send one record without a value into each partition: no flight before this time will come.

    An hour's delays are complete when the stream has passed the hour's end, and only a record can
    prove that. An endless stream does it by itself.
    """
    over = flights["scheduled"].iloc[-1].floor("h").timestamp() + 3600
    for partition in range(partitions):
        producer.send(topic, None, partition=partition, timestamp_ms=int(over * 1000))


__all__ = ["Moment", "end_of_stream", "record", "replay"]
