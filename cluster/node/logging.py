"""Logging of a node: one line per event on stderr, with fields that can be searched.

    2026-03-01T12:00:00.123Z INFO cluster.consensus.group became leader partition=topic-0 term=3

Fields are part of the message, `log.info("became leader partition=%s term=%d", ...)`.
A line break in a message or a traceback is written as `\\n`, so that one
event stays one line.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

# Libraries that have much to say at info.
_QUIET = ("asyncio", "pysyncobj", "grpc")


class LineFormatter(logging.Formatter):
    """Time (UTC), level, logger, message, fields; always one line."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"
        parts = [stamp, record.levelname, record.name, _one_line(record.getMessage())]
        if record.exc_info:
            parts.append(f"traceback={_value(self.formatException(record.exc_info))}")
        return " ".join(parts)


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Send all logging of this process to `stream` (stderr) from `level` up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _value(value: object) -> str:
    """As it is, or in quotes where a reader of fields could not tell its end."""
    text = _one_line(str(value))
    if text and not any(char in text for char in ' "='):
        return text
    return '"' + text.replace('"', '\\"') + '"'
