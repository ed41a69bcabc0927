"""A load that runs on a thread of its own for as long as a test is inside of it."""

from __future__ import annotations

import threading
from typing import Self


class Background:
    """`_run` begins with the `with` block, and is to end soon after `_stop` is set."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError
