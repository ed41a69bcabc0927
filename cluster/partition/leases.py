"""Leases of producers: tells from this node's metadata if one may write here. Pure.

    Leadership, Resolver --> lease_verdict, held_flag, released --> names, expiry watermark

The metadata here can be behind its leader's: `producers.py` says why that is safe.
"""

from __future__ import annotations

from itertools import islice

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import Kind, Verdict, fenced
from cluster.entries import HELD
from cluster.partition.types import Names

MAX_RELEASED = 10_000  # producer ids in one entry


def held_flag(names: Names, producer_id: int) -> int:
    """Returns HELD if a name holds the id, for an entry of this leader."""
    return HELD if producer_id and names.holder(producer_id) is not None else 0


def lease_verdict(
    names: Names, expired_below: int, last_seen: LastSeen, producer_id: int, epoch: int
) -> Verdict | None:
    """Returns why the metadata forbids an append that the partition's state allows."""
    if not producer_id:
        return None
    held = names.holder(producer_id)
    if held is not None and epoch < held.fence_epoch:
        return fenced(epoch, held.epoch)
    if producer_id >= expired_below:
        return None
    if held is None and names.is_issued(producer_id):
        text = f"producer_id: the lease of {producer_id} has ended"
        return Verdict(Kind.PRODUCER_EXPIRED, message=text)
    if last_seen.known(producer_id) is None:
        text = f"producer_id: {producer_id} has to open the partition before it writes"
        return Verdict(Kind.PRODUCER_EXPIRED, message=text)
    return None


def released(names: Names, last_seen: LastSeen) -> tuple[int, ...]:
    """Returns some of the pinned ids that no name holds any more."""
    ids = (
        producer_id
        for producer_id in last_seen.pinned()
        if names.is_issued(producer_id) and names.holder(producer_id) is None
    )
    return tuple(islice(ids, MAX_RELEASED))
