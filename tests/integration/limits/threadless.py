"""`python -m tests.integration.limits.threadless`: a node without threads to start.

It ran out when the file that ONCELOG_TEST_THREADLESS names is there. With ONCELOG_TEST_UNPROTECTED
the node starts its threads when it needs them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.__main__ import main
from cluster.node import process
from cluster.node.replicas import driver_loop

if __name__ == "__main__":
    start: Callable[[threading.Thread], None] = threading.Thread.start
    flag = Path(os.environ["ONCELOG_TEST_THREADLESS"])

    def scarce(thread: threading.Thread) -> None:
        if flag.exists():
            raise RuntimeError("can't start new thread")
        start(thread)

    def not_now(pool: Any, count: int) -> Any:
        return pool

    vars(threading)["Thread"].start = scarce
    if "ONCELOG_TEST_UNPROTECTED" in os.environ:
        for module in (process, driver_loop):
            vars(module)["start_all"] = not_now
    sys.exit(main())
