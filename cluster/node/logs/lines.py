"""Logging of a node: one line per event on stderr, with fields that can be searched.

    log.info --> LineHandler --> LineQueue --> its thread --> stderr

No thread waits for the reader of stderr: lines beyond the queue's room are dropped and counted.

    2026-03-01T12:00:00.123Z INFO cluster.consensus.group became leader partition=topic-0 term=3

Fields are part of the message, `log.info("became leader partition=%s term=%d", ...)`.
A line break in a message or a traceback is written as `\\n`, so that one
event stays one line.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

from cluster.metrics.text import MetricFamily, counter
from cluster.node.logs.folding import Folding
from cluster.node.logs.json_lines import JsonFormatter

# These libraries log much at info.
_QUIET = ("asyncio", "pysyncobj", "grpc")
MAX_WAITING = 4 * 1024 * 1024  # characters


class LineFormatter(logging.Formatter):
    """Time (UTC), level, logger, message, fields; always one line. node: named, if not None."""

    def __init__(self, node: int | None = None) -> None:
        super().__init__()
        self._names = () if node is None else (f"own_node={node}",)

    def format(self, record: logging.LogRecord) -> str:
        parts = [
            _stamp(record.created),
            record.levelname,
            record.name,
            *self._names,
            _one_line(record.getMessage()),
        ]
        if record.exc_info:
            parts.append(f"traceback={_value(self.formatException(record.exc_info))}")
        return " ".join(parts)


class LineQueue:
    """Queue of lines to a descriptor, written by a thread of its own.

    dropped: lines that had no room, or could not be written.
    """

    def __init__(self, descriptor: int) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        self._size = 0
        self._told = 0  # characters in the queue; drops already reported
        self._is_writing = False
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: str) -> None:
        """Queue the line; never waits."""
        with self._changed:
            if self._closed or self._size + len(line) > MAX_WAITING:
                self.dropped += 1
                return
            self._lines.append(line)
            self._size += len(line)
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Give queued lines `timeout` seconds. May be called twice."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._is_writing, timeout)
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while (text := self._next()) is not None:
            try:
                self._write(text.encode(errors="backslashreplace"))
            except OSError:
                # The reader is gone, or the disk is full: there is nowhere to report it.
                with self._changed:
                    self.dropped += text.count("\n")

    def _next(self) -> str | None:
        """Return all queued lines; None at the end."""
        with self._changed:
            self._is_writing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._lines or self._closed)
            if not self._lines:
                return None
            lines = [*self._lines]
            self._lines.clear()
            self._size = 0
            self._is_writing = True
            if self.dropped > self._told:
                lines.append(f"{_stamp(time.time())} WARNING {__name__} dropped lines of the log: "
                             f"count={self.dropped - self._told}")  # fmt: skip
                self._told = self.dropped
            return "\n".join(lines) + "\n"

    def _write(self, content: bytes) -> None:
        start = 0
        while start < len(content):
            # A pipe takes a piece of this size whole: a machine's processes share one.
            end = content.rfind(b"\n", start, start + select.PIPE_BUF) + 1
            try:
                start += os.write(self._descriptor, content[start : end or start + select.PIPE_BUF])
            except BlockingIOError:  # our parent process made it non-blocking
                select.select([], [self._descriptor], [])


class LineHandler(logging.Handler):
    """Formats a record on the thread that logs, and queues the line."""

    def __init__(self, lines: LineQueue) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put(self.format(record))


def configure_logging(
    level: str, handler: logging.Handler, form: str = "text", node: int | None = None
) -> None:
    """Send all logging of this process to `handler` from `level` up. form: "text" or "json".

    node: named in each line, of a process that shares its log with others.
    """
    handler.setFormatter(JsonFormatter(node) if form == "json" else LineFormatter(node))
    handler.addFilter(Folding())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def log_families() -> Iterator[MetricFamily]:
    """Yield the metric of dropped lines."""
    dropped = sum(
        handler.lines.dropped
        for handler in logging.getLogger().handlers
        if isinstance(handler, LineHandler)
    )
    yield counter(
        "oncelog_log_lines_dropped_total", "Lines of the log that nobody took in time", dropped
    )


def _stamp(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _value(value: object) -> str:
    """Return the value, quoted if its end would be ambiguous."""
    text = _one_line(str(value))
    if text and not any(char in text for char in ' "='):
        return text
    return '"' + text.replace('"', '\\"') + '"'
