"""Records of `getmany` and `getone`: taken from the buffer on the user's thread."""

from __future__ import annotations

from oncelog._engine.consume.fetch_buffer import Chunk, FetchBuffer, Starts
from oncelog.errors import CorruptLogError
from oncelog.types import Record, TopicPartition


def take_records(
    buffer: FetchBuffer, first: Chunk, limit: int, check_crcs: bool, starts: Starts
) -> dict[TopicPartition, list[Record]]:
    """Take records of this chunk and of those ready behind it, up to an error.

    Returns none if compaction has removed them all.
    """
    result: dict[TopicPartition, list[Record]] = {}
    chunk: Chunk | None = first
    try:
        while chunk is not None:
            records, after = chunk.take(check_crcs, limit)
            if records:  # else all are blanks
                result.setdefault(chunk.tp, []).extend(records)
                limit -= len(records)
            buffer.move(chunk, after, starts)
            chunk = buffer.peek(0.0, errors_wait=True) if limit > 0 else None
    except CorruptLogError:
        if not result:
            raise  # else the next call raises it: the records before it must not be lost
    return result
