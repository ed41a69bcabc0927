"""Recreated topics with fewer partitions: records for the missing partitions fail.

Place in the flow: `sender` calls this for partitions missing in the newest answer of
DescribeTopics. They do not come back: a topic never shrinks, so this is another topic.
"""

from __future__ import annotations

from oncelog import errors
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.outcomes import Reaction, with_outcome
from oncelog._engine.produce.partition import PartitionSender


def give_up(accumulator: Accumulator, partition: PartitionSender) -> Reaction:
    """Fail all batches of a partition that is gone, each with its true outcome."""
    reaction = partition.on_topic_created_anew()  # may be stored in the old topic
    if reaction.fatal is not None:
        return reaction
    tp = partition.tp
    error = errors.DeliveryError(
        f"{tp}: the topic was deleted and created anew, without this partition"
    )
    while partition.again:
        partition.fail_batch(partition.again.popleft(), with_outcome(error, "not_stored"))
    with accumulator.lock:
        lane = accumulator.lane(tp)
        if lane.open is not None:
            lane.open.due = True
    while (batch := accumulator.take(tp)) is not None:
        partition.fail_batch(batch, with_outcome(error, "never_sent"))
    return Reaction()
