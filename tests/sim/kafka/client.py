"""Clients of Kafka's protocol in the simulation: they do as librdkafka and Java's client.

    KafkaProducer   sequences of 32 bits that wrap; a retry is built anew, so with other bytes; it
                    raises its epoch by itself, and then begins at sequence 0
    Foreigner       uses ids that are not its own

The bytes are built here from Kafka's own description of a record batch (v2), and the nodes read
them with the code under test. The records are the checker's, not Kafka's: they are marked as
compressed, and no node looks into them.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from cluster.partition.replica import Answer
from tests.sim import model as ck
from tests.sim.client import Producer, Sent

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

SECRET = bytes(range(32))
_HEAD, _BODY = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
_ZSTD = 4
WRAP = 1 << 31


def kafka_id(number: int, principal: str) -> int:
    """Builds an id as guarantees.md describes it."""
    claim = b"kafka" + struct.pack("<q", number) + principal.encode()
    proof = int.from_bytes(hmac.new(SECRET, claim, hashlib.sha256).digest()[:4], "little")
    return (1 << 62) + (number << 20) + proof % (1 << 20)


@dataclass(frozen=True, slots=True)
class KafkaRequest:
    """The bytes of one partition in a Produce request, and their sender's principal."""

    data: bytes
    producer_id: int
    principal: str


@dataclass(slots=True)
class KafkaSent(Sent):
    """A batch, numbered without a wrap. Each attempt has other bytes."""

    rng: random.Random = field(default_factory=random.Random)
    stream: int = 0
    record: int = 0  # the stream's number of its first record
    wrap: int = WRAP
    principal: str = "alice"

    def request(self) -> Any:
        records = ck.payload(self.stream, self.record, self.count, self.rng.randint(0, 60))
        first = self.first % self.wrap
        body = _BODY.pack(_ZSTD, self.count - 1, 5, 5, self.pid, self.epoch, first, self.count)
        payload = body + records
        head = _HEAD.pack(0, len(payload) + 9, 7, 2, crc32c(payload))
        return KafkaRequest(head + payload, self.pid, self.principal)


@dataclass(slots=True)
class KafkaProducer(Producer):
    """One idempotent producer without a transactional id, on one partition."""

    wrap: int = WRAP

    def tick(self) -> None:
        if not self.stopped and self.successor is None and self.rng.random() < 0.02:
            self.bump()
        Producer.tick(self)

    def bump(self) -> None:
        """Gives up unanswered batches and goes on in the next epoch, as clients do by themselves.

        The nodes are not asked. Copies of the old epoch may still be on their way.
        """
        self.window.clear()
        self.epoch, self.next_sequence = self.epoch + 1, 0

    def _new_batch(self) -> Sent:
        count = self.rng.randint(1, 3)
        first = self.next_sequence
        batch = KafkaSent(
            self.pid, self.epoch, first, first + count - 1, first - 1, count, 0, b"",
            rng=self.rng, stream=self.stream, record=self.next_record, wrap=self.wrap,
        )  # fmt: skip
        self.next_sequence += count
        self.next_record += count
        self.window.append(batch)
        return batch

    def answered(self, batch: Sent, node: int, answer: Answer) -> None:
        if int(answer.verdict.kind) == ck.UNKNOWN_PRODUCER and not (batch.stored or self.stopped):
            self._again(0.2)  # it overtook the first one
            return
        Producer.answered(self, batch, node, answer)

    def succeed(self) -> Producer:
        """Goes on in the next epoch, while an instance of the old one is still at work."""
        heir = KafkaProducer(
            self.cluster, self.rng, self.gid, self.pid, self.epoch + 1,
            self.cluster.new_stream(), self.style, self.target, wrap=self.wrap,
        )  # fmt: skip
        self.successor = heir
        return heir


@dataclass(slots=True)
class Foreigner:
    """A client that sends first batches under ids that were not issued to it."""

    cluster: Cluster
    rng: random.Random
    gid: int
    closing: bool = False

    def tick(self) -> None:
        if self.closing:
            return
        number = self.rng.randint(1, 5)
        pid = self.rng.choice((
            kafka_id(number, "alice"),  # another principal's
            kafka_id(number, "mallory") ^ 1 << self.rng.randint(0, 61),
            number,  # of gRPC
        ))  # fmt: skip
        epoch = self.rng.randint(0, 1000)
        batch = KafkaSent(
            pid, epoch, 0, 0, -1, 1, 0, b"", rng=self.rng, principal="mallory"
        )  # fmt: skip
        node = self.rng.choice(self.cluster.node_ids)
        self.cluster.call(node, self.gid, [(batch.request(), _Refused(batch))], ordered=True)
        self.cluster.scheduler.after(2.0 * self.rng.random(), self.tick)


@dataclass(slots=True)
class _Refused:
    """The answer to a batch that nobody may take."""

    batch: KafkaSent

    def check(self, answer: Answer) -> None:
        if int(answer.verdict.kind) not in (ck.UNKNOWN_PRODUCER, *ck.TRANSIENT):
            raise ck.Violation(f"{self.batch} of a foreign id got {answer.verdict!r}")

    def arrive(self, answer: Answer | None) -> None:
        """Does nothing."""
