"""Log lines of the engine's thread, handed to another thread: handlers are the user's code.

Place in the flow: `runtime` diverts the lines of its thread. A handler may wait for a lock that a
user's thread holds, or call the client itself; the engine's thread must do neither.
"""

from __future__ import annotations

import logging
import queue
import threading

from oncelog._engine.net.threads import engine_threads

# Loggers of the engine's thread: the client's, and those of its libraries.
LOGGERS = (
    "oncelog.client", "oncelog.consumer", "oncelog.producer", "asyncio", "grpc.aio._call",
    "grpc._cython.cygrpc", "py.warnings",
)  # fmt: skip
MOST_WAITING = 10_000

_Line = tuple[logging.Logger, logging.LogRecord] | threading.Event
_lines: queue.Queue[_Line] = queue.Queue(MOST_WAITING)


class _Diversion(logging.Filter):
    """Takes the lines of the engine's thread, and lets others pass."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger

    def filter(self, record: logging.LogRecord) -> bool:
        if threading.get_ident() not in engine_threads:
            return True
        # The arguments may have changed by the time a handler reads them.
        record.msg, record.args = record.getMessage(), None
        try:
            _lines.put_nowait((self._logger, record))
        except queue.Full:
            pass  # a handler hangs: earlier lines show why
        return False


def begin() -> None:
    """Start the thread for log lines; once per process."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, _Diversion) for one in logger.filters):
            logger.addFilter(_Diversion(logger))
    threading.Thread(target=_write, name="oncelog-log", daemon=True).start()


def _write() -> None:
    while True:
        line = _lines.get()
        if isinstance(line, threading.Event):
            line.set()
            continue
        logger, record = line
        try:
            logger.handle(record)
        except BaseException:  # noqa: BLE001  # of a handler: logging has told of it, or cannot
            pass


def finish(seconds: float) -> None:
    """Wait until the lines so far are written, at most so many seconds."""
    written = threading.Event()
    try:
        _lines.put_nowait(written)
    except queue.Full:
        return
    written.wait(seconds)


def forked() -> None:
    """Drop the lines and the thread in a forked child: they belong to the parent."""
    global _lines
    _lines = queue.Queue(MOST_WAITING)
