"""The node's process: log, event loop, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import uvloop

from cluster.config.node_config import DEFAULT_LISTEN, NodeConfig
from cluster.errors import BAD_SETTINGS, REMOVED, ClusterError, ConfigError, RemovedError
from cluster.node.health.descriptors import raise_limit
from cluster.node.logs.lines import LineHandler, LineQueue, configure_logging
from cluster.node.node import Node
from cluster.node.tasks import start_all
from cluster.partition import disk_reads
from cluster.service_manager import ServiceManager
from cluster.startup import part_stderr, stopping
from storage.errors import StorageError

log = logging.getLogger(__name__)

WORKERS = 4  # threads for rare, blocking work: reclaiming space, plans, hashes of tokens
LAST_LINES = 1.0  # seconds that the last lines of the log get
# mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MMAP_BYTES = 32 * 1024 * 1024  # the most that glibc takes
TRIM_BYTES = 256 * 1024 * 1024
STOP_LIMIT = 30.0  # seconds until the loop notices that the supervisor ended
# New objects until a collection. With Python's 700, waiting requests are walked over and over.
GARBAGE = 10_000


def run(config: NodeConfig) -> int:
    """Run one node until it is stopped or fails; returns the exit code."""
    lines = LineQueue(part_stderr())
    node = None if config.process is None else config.node_id
    configure_logging(config.log_level, LineHandler(lines), config.log_format, node)
    for name, nearest in config.unknown:
        log.warning(
            "environment: %s is no setting and is ignored; the nearest is %s", name, nearest
        )
    raise_limit()
    _keep_large_buffers()
    try:
        manager = ServiceManager.of(os.environ, os.getpid())
        return uvloop.run(_run(config, lines, manager))
    finally:
        lines.close(LAST_LINES)


def next_steps(config: NodeConfig) -> str:
    """Describe the next steps to a first-time user."""
    lines = [
        f"Node {config.node_id} serves clients on {config.listen}. "
        f"Its data is in {config.data_dir.absolute()}. Ctrl-C stops it.",
        "Next, in another terminal:",
        "  oncelog topic create payments",
        "  echo hello | oncelog topic produce payments",
    ]
    if config.listen != DEFAULT_LISTEN:
        lines.insert(2, f"  export ONCELOG_BOOTSTRAP={config.listen}")
    return "\n".join(lines)


def stop_with_supervisor(
    loop: asyncio.AbstractEventLoop, stop: asyncio.Event, limit: float = STOP_LIMIT
) -> None:
    """Stop when the supervisor ends, however it ends: it holds the other end of stdin.

    A thread ends a process with a hanging loop, after `limit`: no other process would.
    """

    def watch() -> None:
        stopping = threading.Event()

        def ended() -> None:
            stop.set()
            stopping.set()

        while os.read(0, 1024):
            pass
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(ended)
        if not stopping.wait(limit):
            os._exit(1)

    threading.Thread(target=watch, name="supervisor's end", daemon=True).start()


async def _run(config: NodeConfig, lines: LineQueue, manager: ServiceManager) -> int:
    name = "oncelog" if config.process is None else f"oncelog: node {config.node_id}"
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in stopping():
        loop.add_signal_handler(number, stop.set)
    if config.process is not None:
        stop_with_supervisor(loop, stop)
    try:
        start_all(disk_reads.POOL, disk_reads.AT_A_TIME)
        loop.set_default_executor(start_all(ThreadPoolExecutor(WORKERS, "work"), WORKERS))
    except ClusterError as error:
        lines.put(f"{name}: {error}")
        return 1
    stopped = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(Node.start(config))
    # A new node may wait for long until its cluster takes it in.
    await asyncio.wait((stopped, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return 0
    try:
        node = starting.result()
    except (ClusterError, StorageError) as error:
        lines.put(f"{name}: {error}")
        return BAD_SETTINGS if isinstance(error, ConfigError) else 1  # of files that settings name
    if config.next_steps and not config.process and not manager.listens:
        print(next_steps(config), flush=True)
    gc.freeze()  # objects made at start stay; skip them in every collection
    gc.set_threshold(GARBAGE)
    async with manager.serving(f"node {config.node_id} serves clients on {config.listen}"):
        await asyncio.wait((stopped, node.failure), return_when=asyncio.FIRST_COMPLETED)
        if node.failure.done():
            lines.put(f"{name}: {node.failure.result()}")
            lines.close(LAST_LINES)
            # Nothing written from here on may look durable.
            os._exit(REMOVED if isinstance(node.failure.result(), RemovedError) else 1)
        manager.stopping()
        await node.stop()
    return 0


def _keep_large_buffers() -> None:
    """Set up glibc's allocator, if there is one, for large, short-lived buffers.

    A batch of 1 MiB passes through several buffers of its size: gRPC's, the entry's, the write
    batch's. By default glibc maps each of them anew and gives it back at once, and the kernel
    clears the same 256 pages every time. With these limits they come from the heap, which keeps
    up to TRIM_BYTES that are free.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    if not (mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES) and mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)):
        log.info("the allocator keeps its own limits for large buffers")
