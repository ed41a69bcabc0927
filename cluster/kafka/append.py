"""Kafka batches into partitions: the last checks, and the batch as the partition takes it.

    produce --KafkaBatch--> append --AppendRequest--> Partition.append --Answer--> answer_to

Needs no connection and no gRPC: the caller names the batch's sender.
"""

from __future__ import annotations

from cluster.dedup.verdict import BatchMeta, Kind, Verdict, validate
from cluster.entries import KAFKA_V2
from cluster.kafka import ids
from cluster.kafka.records import KafkaBatch
from cluster.partition.replica import Answer, AnswerTo, AppendRequest, Partition

_NO_SECRET = Verdict(Kind.NOT_READY, message="this node's metadata has no secret of leases yet")


def meta_of(batch: KafkaBatch) -> BatchMeta:
    """Returns the batch's facts for the verdict; its sequences are the client's (int32).

    Without a producer id, sequence and epoch are ignored.
    """
    pid, epoch, first, count = batch[:4]
    if pid < 0:
        pid = epoch = first = 0
    return BatchMeta(pid, epoch, first, first + count - 1, first - 1, count, batch.crc, -1, True)


def append(
    partition: Partition,
    batch: KafkaBatch,
    meta: BatchMeta,
    answer_to: AnswerTo,
    *,
    secret: bytes,
    principal: str,
    transaction_id: int = 0,
) -> None:
    """Appends a batch of `read_batch` with its facts. `answer_to` is called once, always.

    The answer's verdict has the offset (APPENDED, DUPLICATE) or the reason. Beside the verdicts of
    gRPC there is UNSUPPORTED_FORMAT: the topic takes no batches of Kafka's protocol. secret: of the
    cluster's leases. principal: the caller's proven name; empty without authentication.
    transaction_id: of the open transaction that takes the batch; it stands for its producer.
    """
    assert batch.is_transactional == bool(transaction_id), "the caller has looked for it"
    refused = _refusal(partition, batch, meta, secret, principal)
    if refused is not None:
        answer_to(Answer(refused))
        return
    time_us = batch.max_timestamp * 1000
    request = AppendRequest(meta, KAFKA_V2, transaction_id, time_us, batch.payload)
    partition.append(request, answer_to)


def _refusal(
    partition: Partition, batch: KafkaBatch, meta: BatchMeta, secret: bytes, principal: str
) -> Verdict | None:
    pid = 0 if batch.is_transactional else meta.producer_id
    if pid and not secret:
        return _NO_SECRET
    if pid and not ids.proves(secret, pid, principal):
        text = f"producer_id: {pid} was not issued to this client"
        return Verdict(Kind.UNKNOWN_PRODUCER, message=text)
    limit = partition.policy.max_batch_bytes
    return validate(meta, payload_size=len(batch.payload), max_payload=limit)
