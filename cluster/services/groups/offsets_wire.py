"""Translation of committed offsets between GroupService's messages and the log's records.

OffsetCommit --offset_record--> entry      CommitResult --commit_result--> OffsetCommitResult
OffsetState --committed_offset--> CommittedOffset
"""

from __future__ import annotations

from cluster.partition.group_state import CommitResult, OffsetState
from cluster.v1 import offsets_pb2 as internal
from oncelog.v1 import group_pb2 as pb


def offset_record(commit: pb.OffsetCommit, topic_id: int) -> internal.OffsetRecord:
    return internal.OffsetRecord(
        topic=commit.topic,
        topic_id=topic_id,
        partition=commit.partition,
        offset=commit.offset,
        metadata=commit.metadata,
        producer_id=commit.producer_id,
        epoch=commit.epoch,
        sequence=commit.sequence,
    )


def commit_result(commit: pb.OffsetCommit, done: CommitResult) -> pb.OffsetCommitResult:
    now = done.now
    return pb.OffsetCommitResult(
        topic=commit.topic,
        partition=commit.partition,
        error=done.error,
        message=done.message,
        duplicate=done.duplicate,
        offset=-1 if now is None else now.offset,
        producer_id=0 if now is None else now.producer_id,
        current_epoch=0 if now is None else now.epoch,
        last_sequence=-1 if now is None or not now.producer_id else now.sequence,
    )


def committed_offset(topic: str, partition: int, state: OffsetState | None) -> pb.CommittedOffset:
    if state is None:
        return pb.CommittedOffset(topic=topic, partition=partition, offset=-1)
    return pb.CommittedOffset(
        topic=topic,
        partition=partition,
        offset=state.offset,
        metadata=state.metadata,
        producer_id=state.producer_id,
        epoch=state.epoch,
        sequence=state.sequence,
        commit_ms=state.commit_ms,
    )
