"""Interrupted calls that add records: ended half way by an error, or by a signal handler.

Place in the flow: `Producer.send` and `accumulator` hand their unfinished work to these, with the
lock held or not. A signal handler may raise after any call in Python code. So a key may have been
added without its value, and a call that has not returned may have taken the lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog._engine.produce.batches import OpenBatch, PartitionQueue
from oncelog._engine.produce.futures import RecordFuture

if TYPE_CHECKING:
    from oncelog._engine.produce.accumulator import Accumulator


def take_back(
    accumulator: Accumulator, added: OpenBatch | None, future: RecordFuture | None
) -> None:
    """Remove all of the call's record from the open batch, and release the lock."""
    if accumulator.lock._is_owned():
        _cut(added, future)
        accumulator.lock.release()


def _cut(added: OpenBatch | None, future: RecordFuture | None) -> None:
    if added is not None and not added.closed:
        mine = getattr(future, "_delivery", None) is added.delivery
        index = getattr(future, "_index", -1) if mine else -1
        added.cut(index if index >= 0 else len(added.values))


def take_back_in(
    accumulator: Accumulator,
    lane: PartitionQueue,
    added: OpenBatch | None,
    future: RecordFuture | None,
    before: int | None,
    sequence: int | None,
) -> None:
    """Do the same for a call that may also have begun a batch and numbered its record.

    `before`: the last sequence that the lane was given before `sequence`.
    """
    if not accumulator.lock._is_owned():
        return
    _cut(added, future)
    if accumulator.busy and (added is None or not added.closed):
        if sequence is not None and lane.last_given == sequence:
            lane.last_given = before  # `sequence` may be used again
        accumulator.drop_empty()
    accumulator.busy = False
    accumulator.lock.release()
    accumulator.wake()
