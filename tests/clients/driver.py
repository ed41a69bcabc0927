"""A client in another language, run as a process by the driver protocol of the conformance kit.

Commands and answers are JSON lines; conformance/DRIVER.md describes them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

Answer = dict[str, Any]


class DriverError(Exception):
    """An answer with `error`, as it came."""

    def __init__(self, verb: str, error: Answer) -> None:
        super().__init__(f"{verb}: {error}")
        self.error = error


class Driver:
    """One driver process. As a context manager it is told to exit, and killed if it does not."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._id = 0

    def ask(self, verb: str, handle: str = "", **fields: Any) -> Answer:
        """Raises DriverError for an answer that says so, EOFError if the process ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._id += 1
        command = {"id": self._id, "verb": verb, "handle": handle, **fields}
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"the driver ended at {verb}")
        answer: Answer = json.loads(line)
        assert answer["id"] == self._id, answer
        if "error" in answer:
            raise DriverError(verb, answer["error"])
        ok: Answer = answer["ok"]
        return ok

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


__all__ = ["Driver", "DriverError"]
