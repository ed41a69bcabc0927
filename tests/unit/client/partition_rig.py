"""A partition's sender with its accumulator, for tests of the client's rules.

The test is the clock and the node: it takes each request and answers it.
"""

from __future__ import annotations

import random
from typing import Any

from oncelog import errors
from oncelog._engine.net.backoff import Backoff
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.futures import RecordFuture
from oncelog._engine.produce.outcomes import Reaction, Stats
from oncelog._engine.produce.partition import PartitionSender
from oncelog._engine.produce.sealing import LeasedIdentity, SealedBatch
from oncelog.types import TopicPartition
from oncelog.v1 import batch_pb2, log_pb2
from oncelog.wire.batch import decode_payload

TP = TopicPartition("t", 0)
V = log_pb2
FOREVER = float("inf")
Sent = tuple[SealedBatch, int]


def identity(
    pid: int, epoch: int = 0, serial: int = 1, expire_at: float = FOREVER
) -> LeasedIdentity:
    return LeasedIdentity(pid, epoch, serial, expire_at, expire_at)


class Rig:
    """A partition's sender with its accumulator; batches of one record unless told."""

    def __init__(
        self,
        *,
        idempotent: bool = True,
        leased: bool = True,
        max_in_flight: int = 5,
        retries: int = 1000,
        delivery_timeout_s: float = 100.0,
        batch_size: int = 200,
        start: int = -1,
    ) -> None:
        self.now = 0.0
        self.stats = Stats()
        self.accumulator = Accumulator(
            batch_size=batch_size,
            buffer_memory=1_000_000,
            linger_s=0.0,
            max_block_s=0.0,
            delivery_timeout_s=delivery_timeout_s,
            clock=lambda: self.now,
            is_available=lambda _: True,
        )
        self.sender = PartitionSender(
            TP,
            self.accumulator,
            idempotent=idempotent,
            leased=leased,
            max_in_flight=max_in_flight,
            retries=retries,
            codec=0,
            level=None,
            backoff=Backoff(0.1, 1.0, random.Random(1)),
            stats=self.stats,
            on_done=self.accumulator.free,
        )
        self.shared = identity(7) if idempotent else None
        if self.shared is not None:
            assert self.sender.needs_identity(self.now, self.shared)
            self.sender.adopt(self.shared, start, 1)
        self.attempts = 0
        self.reaction = Reaction()  # reaction to the last call with nothing to send

    def append(self, value: bytes, expected_offset: int = -1, **more) -> RecordFuture:
        return self.accumulator.append(
            self.accumulator.lane(TP), pad(value), None, (), more.get("timestamp_us", 0),
            more.get("sequence"),
            expected_offset, None, 1_000_000, (),
        )  # fmt: skip

    def send(self, limit: int = 100) -> list[Sent]:
        """Send all that can be sent; return (batch, attempt id) in order."""
        sent: list[Sent] = []
        while len(sent) < limit:
            sealed = self.sender.next(self.now, self.shared)
            if isinstance(sealed, Reaction):
                self.reaction = sealed
                break
            self.attempts += 1
            self.sender.sent(sealed, self.attempts, self.now)
            sent.append((sealed, self.attempts))
        return sent

    def answer(self, sent: Sent, verdict: Any, **fields) -> Reaction:
        sealed, attempt = sent
        result = log_pb2.BatchResult(id=attempt, verdict=verdict, **fields)
        return self.sender.on_result(sealed, attempt, result, self.now)


def pad(name: bytes) -> bytes:
    """A value whose size makes one batch full."""
    return name.ljust(60, b".")


def outcome(future: RecordFuture) -> str | None:
    """Outcome of a failed record; None if it is stored."""
    error = future.exception(0)
    assert error is None or isinstance(error, errors.DeliveryError)
    return None if error is None else error.outcome


def bytes_of(sealed: SealedBatch) -> bytes:
    """Bytes of the request, except for the attempt's own number."""
    return sealed.head + sealed.payload


def value(sealed: SealedBatch) -> bytes:
    batch = batch_pb2.Batch.FromString(bytes_of(sealed))
    first = decode_payload(batch.payload).values()[0]
    assert first is not None
    return first.rstrip(b".")


def values(sent: list[Sent]) -> list[bytes]:
    return [value(sealed) for sealed, _ in sent]


def sequences(sent: list[Sent]) -> list[tuple[int, int, int]]:
    return [(s.base_sequence, s.last_sequence, s.prev_sequence) for s, _ in sent]


def three(rig: Rig) -> tuple[list[RecordFuture], list[Sent]]:
    futures = [rig.append(name) for name in (b"a", b"b", b"c")]
    return futures, rig.send()
