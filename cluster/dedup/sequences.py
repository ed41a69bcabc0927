"""Sequences of Kafka's protocol (int32, wrapping) in the producer's chain (int64, never wrapping).

    leader: int32 of the batch + next sequence of the chain --place--> first and last, int64

A client's sequence goes from 2**31 - 1 to 0. The leader takes the number with that remainder that
lies nearest to the chain's next one. So a retry gets its number again while fewer than 2**30
records lie between, and a client never has that many in flight.
"""

from __future__ import annotations

from cluster.dedup.verdict import BatchMeta

WRAP_BITS = 31


def nearest(sequence: int, following: int) -> int:
    """Returns the number not below 0, equal to `sequence` modulo 2**31, nearest to `following`."""
    half = 1 << WRAP_BITS - 1
    return sequence + (max(0, following - sequence + half >> WRAP_BITS) << WRAP_BITS)


def placed(meta: BatchMeta, following: int) -> BatchMeta:
    """Returns the batch with its sequences in the chain whose next sequence is `following`.

    Without gaps: `last` and `prev` follow from `first`.
    """
    first = nearest(meta.first, following)
    if first == meta.first:
        return meta
    return meta._replace(first=first, last=first + meta.count - 1, prev=first - 1)
