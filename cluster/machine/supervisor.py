"""Supervisor of a machine's processes, each a whole node: starts them, and ends with them.

    __main__ --processes > 1--> supervise --starts, SIGTERM--> a process for each node
                                    |                               stdin ends with the supervisor
                                    '--> /livez, /readyz for all of them

It holds no data and no port but health_listen. The processes write to its stderr themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys

from cluster.config.node_config import NodeConfig
from cluster.config.processes import health_of, nodes_of
from cluster.errors import ListenError
from cluster.machine.health import pages_of
from cluster.metrics.http import serve_pages
from cluster.node.logs.lines import LineHandler, LineQueue, configure_logging
from cluster.startup import part_stderr, stopping

log = logging.getLogger(__name__)

PACE = 5.0
LAST_LINES = 1.0  # seconds that the last lines of the log get
BAD_SETTINGS = 2


def supervise(config: NodeConfig) -> int:
    """Run the machine's processes until they are stopped; returns the exit code."""
    lines = LineQueue(part_stderr())
    configure_logging(config.log_level, LineHandler(lines), config.log_format)
    try:
        with contextlib.ExitStack() as stack:
            if config.health_listen:
                processes = {n: health_of(config, i) for i, n in enumerate(nodes_of(config))}
                pages = pages_of(processes)
                stack.callback(serve_pages("health_listen", config.health_listen, pages))
            # Last one wins: the file of settings may have changed when a process starts again.
            command = [sys.executable, *sys.orig_argv[1:], "--processes", str(config.processes)]
            return asyncio.run(Supervisor(command, nodes_of(config)).run())
    except ListenError as error:
        lines.put(f"oncelog: {error}")
        return 1
    finally:
        lines.close(LAST_LINES)


class Supervisor:
    """Processes of one machine. command: starts process i with `--process i` behind it.

    pace: seconds between two starts of a process, at least.
    """

    def __init__(self, command: list[str], nodes: list[int], pace: float = PACE) -> None:
        self._command = command
        self._nodes = nodes
        self._pace = pace
        self._stopping = asyncio.Event()
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._started: set[int] = set()

    async def run(self) -> int:
        """Run all processes until a stopping signal, or until settings let one not begin."""
        for number in stopping():
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        kept = (self._keep(process, node) for process, node in enumerate(self._nodes))
        return max(await asyncio.gather(*kept))

    def stop(self) -> None:
        """End all processes at the same time: each hands over to nodes of other machines."""
        self._stopping.set()
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def _keep(self, number: int, node: int) -> int:
        """Run one process, again and again; returns the exit code for the machine."""
        clock = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            began, is_first = clock(), node not in self._started
            code = await self._run(number, node)
            # Later, settings or certificates may have been changed badly: the others serve on.
            if code == BAD_SETTINGS and is_first:
                log.error("all processes end: bad settings node=%d", node)
                self.stop()
                return BAD_SETTINGS
            if self._stopping.is_set():
                return int(code not in (0, -signal.SIGTERM))  # the latter while Python starts
            pause = max(0.0, began + self._pace - clock())
            log.warning("process ended node=%d code=%d: starts again in %.1f s", node, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        return 0

    async def _run(self, number: int, node: int) -> int:
        """Run one process once; returns its exit code, negative for a signal."""
        command = [*self._command, "--process", str(number)]
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
        except OSError as error:  # no memory, or too many processes
            log.error("process cannot be started node=%d: %s", node, error)
            return 1
        self._running[node] = process
        self._started.add(node)
        log.info("process started node=%d pid=%d", node, process.pid)
        if self._stopping.is_set():
            process.terminate()
        code = await process.wait()
        del self._running[node]
        return code
