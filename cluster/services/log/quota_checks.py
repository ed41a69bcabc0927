"""Checks of a caller's quotas for producer ids in a partition, and for staged bytes.

Appender, ProducerService --new_producer, staging--> Usage of the caller
"""

from __future__ import annotations

from cluster.dedup.verdict import Kind, Verdict
from cluster.partition.replica import Partition
from cluster.security.caller import CALLER
from cluster.security.quotas import ExceededError, Usage


def new_producer(replica: Partition, producer_id: int) -> Verdict | None:
    """Return why the caller may not make one more producer id known to a partition."""
    usage = CALLER.get().usage
    if usage is None:
        return None
    known = replica.last_seen.known
    try:
        usage.check_producer(
            replica.group.config.group, producer_id, lambda pid: known(pid) is not None
        )
    except ExceededError as error:
        return Verdict(Kind.THROTTLED, message=str(error))
    return None


def staging(usage: Usage | None) -> Verdict | None:
    """Return why the caller may not stage one more batch."""
    if usage is None:
        return None
    try:
        usage.check_staging()
    except ExceededError as error:
        return Verdict(Kind.THROTTLED, message=str(error))
    return None
