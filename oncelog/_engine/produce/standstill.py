"""Standstill of this process: does not count for deliveries.

Place in the flow: `sender` measures with each tick, before it checks timeouts. A process that was
stopped, or that got no processor, has neither sent nor received in that time. Without this, its
lingering records would fail at the moment they are sent, with the records that join their batch.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.partition import PartitionSender


def postpone(
    accumulator: Accumulator, partitions: Iterable[PartitionSender], lost_s: float, now: float
) -> None:
    """Put off the ends of all deliveries; later ones have their usual time."""
    with accumulator.lock:
        lanes = map(accumulator.lane, {delivery.tp for delivery in accumulator.incomplete})
        waiting = [one for lane in lanes for one in (lane.open, *lane.closed) if one is not None]
    latest = now + accumulator.delivery_timeout_s
    for partition in partitions:
        waiting += partition.again
        for sealed in partition.window:
            sealed.deadline = min(sealed.deadline + lost_s, latest)
            sealed.sent_at = min(sealed.sent_at + lost_s, now)
            waiting.append(sealed.batch)
    for batch in waiting:
        batch.created = min(batch.created + lost_s, now)
