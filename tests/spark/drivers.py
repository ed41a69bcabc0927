"""Programs with a Spark session of their own, which a test can kill with all they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.integration.waiting import eventually
from tests.spark.copies import TIMEOUT_S
from tests.spark.traps import Caught, Trap

ROOT = Path(__file__).resolve().parent.parent.parent


class Driver:
    """`python -m module directory words...`; its lines as they come."""

    def __init__(self, directory: Path, module: str, *words: str) -> None:
        directory.mkdir(exist_ok=True)
        self._errors = directory / "stderr"
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(directory), *words],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # Its children are in its session, in any process group they make.
                start_new_session=True,
            )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.strip())

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def caught(self, trap: Trap) -> Caught:
        """Waits until somebody is in the trap; fails if the program ends."""
        self._until(trap.has_caught, "somebody is in the trap")
        return trap.wait_caught()

    def wait_lines(self, *lines: str) -> None:
        """Waits until the driver has printed all of these lines."""
        self._until(lambda: set(lines) <= set(self._lines), f"{lines} are printed")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        eventually(lambda: condition() or self._process.poll() is not None, what, TIMEOUT_S)
        assert condition(), self._said()[-5000:]

    def _said(self) -> str:
        """Without the JVM's stacks."""
        lines = self._errors.read_text().splitlines()
        return "\n".join(line for line in lines if not line.lstrip().startswith(("at ", "...")))

    def kill(self) -> None:
        """SIGKILL to the program, its JVMs and their Python workers, stopped ones too."""
        kill_session(self._process.pid)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def kill_session(leader: int) -> None:
    """SIGKILL to all processes of a session, stopped ones too."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            session = int(path.read_text().rpartition(")")[2].split()[3])
            if session == leader:
                os.kill(int(path.parent.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended
