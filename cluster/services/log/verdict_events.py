"""Verdicts as events: each answer to a batch that was neither stored nor staged now.

ProduceCall, Appender.all_of, the Kafka port --note_verdict--> the node's recorder
"""

from __future__ import annotations

from cluster.dedup.verdict import BatchMeta, Kind
from cluster.events.recorder import VERDICT, Recorder
from cluster.partition.types import Answer
from cluster.security.caller import Caller

# The verdict's name for clients.
_NAMES = {kind: kind.name for kind in Kind} | {Kind.STAGED_DUPLICATE: Kind.DUPLICATE.name}


def note_verdict(
    recorder: Recorder, caller: Caller, topic: str, partition: int, meta: BatchMeta, answer: Answer
) -> None:
    verdict = answer.verdict
    kind, pid, epoch = verdict.kind, meta.producer_id, meta.epoch
    recorder.note(
        VERDICT,
        "topic",
        topic,
        verdict.message,
        same=(kind, pid, epoch),
        partition=partition,
        verdict=_NAMES[kind],
        producer_id=pid,
        epoch=epoch if pid else -1,
        sequences=(meta.first, meta.last) if pid else (-1, -1),
        offset=verdict.base_offset if kind is Kind.DUPLICATE else -1,
        principal=caller.principal,
        address=caller.address,
    )
