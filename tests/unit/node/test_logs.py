"""Log lines: one per event, fields at the end."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Iterator

import pytest

from cluster.node import logging as node_logging
from cluster.node.logging import LineQueue, configure_logging


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("info", logging.StreamHandler(stream))
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_time_level_logger_message_fields(stream):
    logging.getLogger("cluster.x").info("became %s partition=%s term=%d", "leader", "topic-0", 3)
    (line,) = lines(stream)
    stamp, rest = line.split(" ", 1)
    assert len(stamp) == len("2026-03-01T12:00:00.123Z")
    assert stamp.endswith("Z")
    assert rest == "INFO cluster.x became leader partition=topic-0 term=3"


def test_one_event_is_one_line(stream):
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("x").exception("failed\nbadly")
    (line,) = lines(stream)
    assert r"failed\nbadly" in line
    assert r'traceback="Traceback' in line
    assert "ValueError" in line


def test_the_level_is_kept_and_libraries_are_quiet(stream):
    logging.getLogger("cluster").debug("no")
    logging.getLogger("asyncio").info("no")
    logging.getLogger("pysyncobj").info("no")
    logging.getLogger("cluster").info("yes")
    assert len(lines(stream)) == 1
    configure_logging("error", logging.StreamHandler(stream))
    logging.getLogger("asyncio").warning("no")
    logging.getLogger("asyncio").error("yes")
    assert len(lines(stream)) == 2


def test_nobody_waits_for_the_reader_of_the_log(monkeypatch):
    monkeypatch.setattr(node_logging, "MAX_WAITING", 10_000)
    reader, writer = os.pipe()
    lines = LineQueue(writer)
    try:
        for number in range(20_000):  # 100 characters each: far more than a pipe takes
            lines.put(f"{number:0100}")
        lines.close(0.01)  # nobody reads: the writer gives up
        assert 0 < lines.dropped < 20_000
        read, told = b"", [b"0"]
        while sum(map(int, told)) < lines.dropped:
            read += os.read(reader, 65536)
            told = re.findall(rb"dropped lines of the log: count=(\d+)\n", read)
        assert read.count(b"\n") == 20_000 - lines.dropped + len(told)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_log_that_cannot_be_written_is_counted():
    reader, writer = os.pipe()
    os.close(reader)
    lines = LineQueue(writer)
    lines.put("lost")
    lines.close(30)
    assert lines.dropped == 1
    os.close(writer)
