"""The clocks of this machine, and the comparison of them with other nodes' (`clock_agreement`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.config.node_config import NodeConfig
from cluster.consensus.message import Message
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.health.node_health import NodeHealth


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def steady_clock() -> float:
    """Return seconds of a clock that is never set, and goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def clocks_of(
    config: NodeConfig, send: Callable[[int, list[Message]], None], health: NodeHealth
) -> ClockAgreement:
    return ClockAgreement(
        set(config.nodes) - {config.node_id},
        config.clock_bound_ms,
        steady_clock,
        wall_clock_ms,
        send,
        lambda: health.sick,
    )
