"""Thread pools whose threads start before they are needed.

A pool starts its threads one by one, as work comes. If the system has no thread left by then (a
limit of the user's or of the container's), the node's work in threads fails, and the node ends.
So they are started with the node, which does not start without them.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from cluster.errors import ClusterError


def start_all(pool: ThreadPoolExecutor, count: int) -> ThreadPoolExecutor:
    """Start the `count` threads that the pool may have. Raises ClusterError."""
    together = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(together.wait)  # it takes a thread of its own: the others wait, too
    except RuntimeError as error:
        together.abort()
        raise ClusterError(
            f"threads: {error}; raise the limit of threads of the node's process (ulimit -u, "
            "pids.max, TasksMax=)"
        ) from error
    together.wait()
    return pool
