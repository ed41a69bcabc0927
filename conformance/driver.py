"""Driver as a child process: one command, one answer. See conformance/DRIVER.md."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from collections import deque
from collections.abc import Mapping
from typing import Any

MAX_LINE = 64 * 1024 * 1024
ERROR_LINES = 30  # kept from standard error for the report


class DriverError(Exception):
    """Missing answer of the driver, or one outside the protocol."""


class Driver:
    """Process of a driver. `command` starts it; one command may take `limit_s`.

    `environment`: variables added to the kit's own.
    """

    def __init__(
        self, command: str, *, limit_s: float, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = shlex.split(command)
        self._environment = {**os.environ, **(environment or {})}
        self._limit_s = limit_s
        self._process: asyncio.subprocess.Process | None = None
        self._errors: deque[str] = deque(maxlen=ERROR_LINES)
        self._reading: asyncio.Task[None] | None = None
        self._last_id = 0

    async def start(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_LINE,
            )
        except OSError as error:
            raise DriverError(f"{self._command[0]} cannot be started: {error}") from error
        self._reading = asyncio.create_task(self._read_errors(self._process))

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self._errors.append(line.decode("utf-8", "replace").rstrip())

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def said(self) -> list[str]:
        """Last lines of its standard error."""
        return list(self._errors)

    async def command(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Sends a command; returns the answer with `ok` or `error`. Raises DriverError."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        self._last_id += 1
        line = json.dumps({"id": self._last_id, "verb": verb, **fields})
        try:
            async with asyncio.timeout(self._limit_s):
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
                text = await process.stdout.readline()
        except TimeoutError:
            raise DriverError(f"no answer to {verb} within {self._limit_s:g} s") from None
        except (OSError, ValueError) as error:
            raise DriverError(f"{verb}: {error}") from error
        if not text:
            raise DriverError(f"the driver has ended instead of answering {verb}")
        return self._parsed(verb, text)

    def _parsed(self, verb: str, text: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise DriverError(f"{verb}: the answer is no JSON: {text[:200]!r}") from error
        if not isinstance(answer, dict) or answer.get("id") != self._last_id:
            raise DriverError(f"{verb}: this answers another command: {text[:200]!r}")
        if ("ok" in answer) == ("error" in answer):
            raise DriverError(f"{verb}: an answer has ok or error: {text[:200]!r}")
        if not isinstance(answer.get("ok", answer.get("error")), dict):
            raise DriverError(f"{verb}: ok and error are objects: {text[:200]!r}")
        return answer

    async def freeze(self, seconds: float) -> None:
        """Stops the client's process for some seconds."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def ended(self) -> int:
        """Waits until the process ends by itself; returns its exit code. Raises DriverError."""
        process = self._process
        assert process is not None
        try:
            async with asyncio.timeout(self._limit_s):
                return await process.wait()
        except TimeoutError:
            raise DriverError(f"it has not ended {self._limit_s:g} s after exit") from None

    async def end(self) -> None:
        """Ends the process, by force if it does not end with its input."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(2):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reading is not None:
            await self._reading
