"""Answers of nodes of an older release lack newer fields."""

from __future__ import annotations

from oncelog.types import Resolution
from oncelog.v1 import log_pb2
from oncelog.wire import messages


def test_a_resolution_without_an_epoch_is_of_the_epoch_that_was_asked_for() -> None:
    older = log_pb2.ResolveSequenceResponse(resolution=log_pb2.RESOLUTION_COMMITTED, offset=5)
    found = messages.resolved(older, 3)
    assert (found.resolution, found.offset, found.epoch) == (Resolution.COMMITTED, 5, 3)
    newer = log_pb2.ResolveSequenceResponse(resolution=log_pb2.RESOLUTION_COMMITTED, epoch=2)
    assert messages.resolved(newer).epoch == 2, "that stored it"
