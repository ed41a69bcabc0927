"""Waiting for conditions that no call waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import grpc

from harness.api import reason
from harness.local_cluster import LOOK_AGAIN, LocalCluster

T = TypeVar("T")

TIMEOUT = 60.0  # a machine that does much else is slow
# Another node, or the same node a little later, may answer.
RETRIED = ("NOT_READY", "NOT_LEADER", "REQUEST_TIMEOUT", "UNAVAILABLE", "")


def eventually(condition: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> None:
    """Looks until the condition holds; fails and says so after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not so after {timeout} s: {what}"
        time.sleep(LOOK_AGAIN)


def answered(
    cluster: LocalCluster, ask: Callable[[Any], T], what: str, timeout: float = TIMEOUT
) -> T:
    """Asks the running nodes in turn; returns the first final answer.

    Raises errors that are not worth a retry; fails and says so after `timeout` seconds.
    """
    end = time.monotonic() + timeout
    for attempt in count():
        assert time.monotonic() < end, f"no answer within {timeout} s: {what}"
        running = [node for node, process in cluster.nodes.items() if process.running]
        try:
            if running:
                return ask(cluster.api(running[attempt % len(running)]))
        except grpc.RpcError as error:
            if reason(error) not in RETRIED:
                raise
        time.sleep(LOOK_AGAIN)
    raise AssertionError("it is counted for ever")
