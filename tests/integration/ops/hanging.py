"""`python -m tests.integration.ops.hanging`: a node that hangs from SIGUSR1 to SIGUSR2.

The supervisor of several ends one that hangs after LIMIT seconds.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from unittest.mock import patch

from cluster.__main__ import main
from cluster.config.node_config import NodeConfig
from cluster.machine import hangs
from cluster.node import node as module


def hang(signum: int, frame: FrameType | None) -> None:
    """Runs on the loop's thread, as a blocking call of a bug would."""
    signal.sigwait({signal.SIGUSR2})


async def _start(config: NodeConfig) -> module.Node:
    signal.signal(signal.SIGUSR1, hang)
    return await _START(config)


_START = module.Node.start
LIMIT = 5.0

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    with patch.object(module.Node, "start", _start), patch.object(hangs, "LIMIT", LIMIT):
        sys.exit(main())
