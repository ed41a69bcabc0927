"""Log lines: one per event, fields at the end."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from cluster.node.logging import about, configure_logging, fields


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("info", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_time_level_logger_message_fields(stream):
    logging.getLogger("cluster.x").info(
        "became %s", "leader", extra=fields(partition="topic-0", group=5, term=3, index=17)
    )
    (line,) = lines(stream)
    stamp, rest = line.split(" ", 1)
    assert len(stamp) == len("2026-03-01T12:00:00.123Z")
    assert stamp.endswith("Z")
    assert rest == "INFO cluster.x became leader partition=topic-0 group=5 term=3 index=17"


def test_a_subjects_fields_are_on_each_line(stream):
    logger = about(logging.getLogger("x"), partition="t-1", term=1)
    logger.info("one")
    logger.warning("two %d", 2, extra=fields(term=3, index=4))
    one, two = lines(stream)
    assert one.endswith("INFO x one partition=t-1 term=1")
    assert two.endswith("WARNING x two 2 partition=t-1 term=3 index=4")


def test_one_event_is_one_line(stream):
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("x").exception("failed\nbadly", extra=fields(file="a b", empty="", q='"'))
    (line,) = lines(stream)
    assert r"failed\nbadly" in line
    assert r'file="a b" empty="" q="\""' in line
    assert "ValueError" in line


def test_the_level_is_kept_and_libraries_are_quiet(stream):
    logging.getLogger("cluster").debug("no")
    logging.getLogger("asyncio").info("no")
    logging.getLogger("pysyncobj").info("no")
    logging.getLogger("cluster").info("yes")
    assert len(lines(stream)) == 1
    configure_logging("error", stream)
    logging.getLogger("asyncio").warning("no")
    logging.getLogger("asyncio").error("yes")
    assert len(lines(stream)) == 2
