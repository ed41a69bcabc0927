"""Supervisor of a machine's processes, each a whole node: starts them, and ends with them.

    __main__ --processes > 1--> supervise --starts, SIGTERM--> a process for each node
                                    |                               stdin ends with the supervisor
                                    |--ends those that hang--> (hangs.py)
                                    '--> /livez, /readyz for all of them

It holds no data and no port but health_listen. The processes write to its stderr themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping

from cluster.config.addresses import ListenError
from cluster.config.node_config import NodeConfig
from cluster.config.processes import health_of, nodes_of
from cluster.errors import BAD_SETTINGS, REMOVED
from cluster.machine.hangs import Hangs
from cluster.machine.health import pages_of
from cluster.metrics.http import serve_pages
from cluster.node.health.probes import Probes
from cluster.node.logs.lines import LineHandler, LineQueue, configure_logging
from cluster.service_manager import ServiceManager
from cluster.startup import part_stderr, stopping

log = logging.getLogger(__name__)

PACE = 5.0
LOOK_PERIOD = 1.0  # seconds between two looks for processes that hang
LAST_LINES = 1.0  # seconds that the last lines of the log get


def supervise(config: NodeConfig) -> int:
    """Run the machine's processes until they are stopped; returns the exit code."""
    lines = LineQueue(part_stderr())
    configure_logging(config.log_level, LineHandler(lines), config.log_format)
    try:
        with contextlib.ExitStack() as stack:
            nodes, asked = nodes_of(config), dict[int, str]()
            own = Probes(time.monotonic)
            if config.health_listen:
                asked.update((node, health_of(config, i)) for i, node in enumerate(nodes))
                pages = pages_of(asked, own)
                stack.callback(serve_pages("health_listen", config.health_listen, pages))
            # Last one wins: the file of settings may have changed when a process starts again.
            command = [sys.executable, *sys.orig_argv[1:], "--processes", str(config.processes)]
            supervisor = Supervisor(
                command,
                nodes,
                on_removed=lambda node: asked.pop(node, None),
                manager=ServiceManager.of(os.environ, os.getpid()),
            )
            return asyncio.run(_run(supervisor, own, Hangs(asked, time.monotonic)))
    except ListenError as error:
        lines.put(f"oncelog: {error}")
        return 1
    finally:
        lines.close(LAST_LINES)


async def _run(supervisor: Supervisor, own: Probes, hangs: Hangs) -> int:
    tasks = [asyncio.create_task(_turn(own)), asyncio.create_task(watch_hangs(supervisor, hangs))]
    try:
        return await supervisor.run()
    finally:
        for task in tasks:
            task.cancel()


async def _turn(own: Probes) -> None:
    while True:
        own.turned()
        await asyncio.sleep(LOOK_PERIOD)


async def watch_hangs(supervisor: Supervisor, hangs: Hangs, period: float = LOOK_PERIOD) -> None:
    """End each process that hangs for too long; it is started again."""
    while True:
        try:
            for node, pid in await asyncio.to_thread(hangs.look, supervisor.running):
                supervisor.end_hung(node, pid)
        except RuntimeError as error:  # the system has no thread for it
            log.error("processes cannot be watched: %s", error)
        await asyncio.sleep(period)


class Supervisor:
    """Processes of one machine. command: starts process i with `--process i` behind it.

    pace: seconds between two starts of a process, at least.
    on_removed(node): the cluster removed the node of a process, which is not started again.
    manager: told of the machine. A process's start may wait for other machines, so does not count.
    """

    def __init__(
        self,
        command: list[str],
        nodes: list[int],
        pace: float = PACE,
        on_removed: Callable[[int], object] = lambda node: None,
        manager: ServiceManager | None = None,
    ) -> None:
        self._command = command
        self._nodes = nodes
        self._pace = pace
        self._on_removed = on_removed
        self._manager = manager or ServiceManager(None)
        self._stopping = asyncio.Event()
        self._running: dict[int, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Run all processes until a stopping signal, or until settings let one not begin.

        Returns REMOVED if the cluster removed all nodes.
        """
        for number in stopping():
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        kept = (self._keep(process, node) for process, node in enumerate(self._nodes))
        async with self._manager.serving(f"runs {len(self._nodes)} nodes"):
            codes = await asyncio.gather(*kept)
        return max((code for code in codes if code != REMOVED), default=REMOVED)

    def stop(self) -> None:
        """End all processes at the same time: each hands over to nodes of other machines."""
        self._stopping.set()
        self._manager.stopping()
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    @property
    def running(self) -> Mapping[int, int]:
        """Return the process of each node that has one."""
        return {node: process.pid for node, process in self._running.items()}

    def end_hung(self, node: int, pid: int) -> bool:
        """End the node's process at once; returns whether it still was this one."""
        process = self._running.get(node)
        if process is None or process.pid != pid:
            return False
        log.error("process hangs node=%d pid=%d: ended", node, pid)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return True

    async def _keep(self, number: int, node: int) -> int:
        """Run one process, again and again; returns the exit code for the machine."""
        clock = asyncio.get_running_loop().time
        has_run = False
        while not self._stopping.is_set():
            began = clock()
            code = await self._run(number, node)
            # Later, settings or certificates may have been changed badly: the others serve on.
            if code == BAD_SETTINGS and not has_run:
                log.error("all processes end: bad settings node=%d", node)
                self.stop()
                return BAD_SETTINGS
            has_run = has_run or code is not None
            if code == REMOVED:
                log.warning(
                    "process ended node=%d: the cluster removed it: not started again", node
                )
                self._on_removed(node)
                return REMOVED
            if self._stopping.is_set():
                return int(code not in (0, -signal.SIGTERM))  # the latter while Python starts
            pause = max(0.0, began + self._pace - clock())
            log.warning("process ended node=%d code=%s: starts again in %.1f s", node, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        return 0

    async def _run(self, number: int, node: int) -> int | None:
        """Run one process once; returns its exit code, negative for a signal. None: no start."""
        command = [*self._command, "--process", str(number)]
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
        except OSError as error:  # no memory, or too many processes
            log.error("process cannot be started node=%d: %s", node, error)
            return None
        self._running[node] = process
        log.info("process started node=%d pid=%d", node, process.pid)
        if self._stopping.is_set():
            process.terminate()
        code = await process.wait()
        del self._running[node]
        return code
