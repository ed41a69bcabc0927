"""Service manager of this process, systemd say: told that it is ready, alive or stopping.

    process.run, supervise --ready, stopping--> ServiceManager --sd_notify(3)--> NOTIFY_SOCKET
    event loop, each half of WATCHDOG_USEC --alive--'

Without NOTIFY_SOCKET nobody listens, and nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, MutableMapping

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """send: takes one message; None: nobody listens.

    watchdog: seconds without a message after which the manager ends this process; 0: never.
    """

    def __init__(self, send: Callable[[bytes], object] | None, watchdog: float = 0.0) -> None:
        self._send = send
        self.watchdog = watchdog

    @classmethod
    def of(cls, environ: MutableMapping[str, str], pid: int) -> ServiceManager:
        """Return the manager that the environment names, for this process and no child of it."""
        address, usec, watched = (environ.pop(name, "") for name in VARIABLES)
        # "@" is the kernel's zero byte: an abstract name. Other kinds are for virtual machines.
        if not address.startswith(("/", "@")):
            return cls(None)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.setblocking(False)
        target = address.replace("@", "\0", 1) if address[0] == "@" else address
        own = usec.isdecimal() and watched in ("", str(pid))
        return cls(lambda message: sock.sendto(message, target), int(usec) / 1e6 if own else 0.0)

    @property
    def listens(self) -> bool:
        return self._send is not None

    @contextlib.asynccontextmanager
    async def serving(self, status: str) -> AsyncIterator[None]:
        """Report the end of the start and, within the block, that the event loop turns.

        status: one line for people.
        """
        self._tell(f"READY=1\nSTATUS={status}")
        task = asyncio.create_task(self._keep_alive()) if self.watchdog else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()

    def stopping(self) -> None:
        self._tell("STOPPING=1\nSTATUS=stops")

    async def _keep_alive(self) -> None:
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog / 2)

    def _tell(self, message: str) -> None:
        # A manager that restarts misses a message; the watchdog's come again.
        if self._send is not None:
            with contextlib.suppress(OSError):
                self._send(message.encode())
