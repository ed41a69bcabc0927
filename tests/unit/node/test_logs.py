"""Log lines: one per event, fields at the end."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.node.logs import lines as node_logging
from cluster.node.logs.folding import PERIOD, SHOWN, Folding
from cluster.node.logs.json_lines import JsonFormatter
from cluster.node.logs.lines import LineFormatter, LineQueue, configure_logging


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


def test_a_process_of_a_machine_names_its_node(stream):
    for form in ("text", "json"):
        configure_logging("info", logging.StreamHandler(stream), form, 101)
        logging.getLogger("x").info("link up node=%d", 7)
    text, line = lines(stream)
    assert text.endswith("INFO x own_node=101 link up node=7")
    assert json.loads(line).items() >= {"own_node": 101, "message": "link up", "node": 7}.items()


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


def test_lines_of_two_processes_stay_whole_in_a_full_pipe():
    reader, writer = os.pipe()
    queues = {mark: LineQueue(writer) for mark in "ab"}
    try:
        for _ in range(2000):  # the pipe takes 64 KiB, and its reader comes late
            for mark, queue in queues.items():
                queue.put(mark * 150)
        left, text = 2 * 2000 * 151, b""
        while len(text) < left:
            text += os.read(reader, 1000)
    finally:
        for queue in queues.values():
            queue.close(10)
        os.close(reader)
        os.close(writer)
    assert {*text.decode().splitlines()} == {"a" * 150, "b" * 150}


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


def as_json(message: str, *arguments: object, error: bool = False) -> dict[str, object]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    record = logging.LogRecord("cluster.x", logging.INFO, "x.py", 1, message, arguments, None)
    if error:
        try:
            raise ValueError("a\nb")
        except ValueError:
            record.exc_info = sys.exc_info()
    handler.handle(record)
    (line,) = lines(stream)
    found: dict[str, object] = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(found.pop("time")))
    assert (found.pop("level"), found.pop("logger")) == ("INFO", "cluster.x")
    return found


def test_json_pairs_names_with_arguments():
    assert as_json("leads partition=%s term=%d index=%d", "t-0", 3, 7) == {
        "message": "leads",
        "partition": "t-0",
        "term": 3,
        "index": 7,
    }
    assert as_json("link down peer=%d: %s", 2, 'gone\n"now"') == {
        "message": 'link down: gone\n"now"',
        "peer": 2,
    }
    assert as_json("deleted partition=%s-%d", "t", 4) == {
        "message": "deleted",
        "partition": "t-4",
    }
    assert as_json("%s of node %d waits: seconds=%.1f", "x", 2, 1.26) == {
        "message": "x of node 2 waits:",
        "seconds": 1.3,
    }
    assert as_json("100%% of 3") == {"message": "100% of 3"}
    assert as_json("at time=%s", "now") == {"message": "at", "time_": "now"}
    found = as_json("failed", error=True)
    assert found["message"] == "failed" and "ValueError: a\nb" in str(found["traceback"])


def test_each_message_of_the_nodes_makes_json(root: Path):
    """Every call of a logger in the tree, with arguments of the kinds that it names."""
    calls = 0
    for path in (root / "cluster").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and ast.unparse(call.func.value) in ("log", "logger")
                and isinstance(call.args[0], ast.Constant)
            ):
                text = str(call.args[0].value)
                kinds = re.findall(r"%[-+ #0]*\d*(?:\.\d+)?([a-zA-Z])", text)
                found = as_json(text, *(7 if k != "s" else "s" for k in kinds))
                assert "%" not in json.dumps(found), text
                calls += 1
    assert calls > 90


def test_many_changes_of_leaders_are_folded():
    now = 100.0
    timers: list[tuple[float, Callable[[], None]]] = []
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    handler.addFilter(Folding(lambda: now, lambda *timer: timers.append(timer)))
    logger = logging.getLogger("cluster.node.logs.folding")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel("INFO")
    try:
        for number in range(1000):
            logger.info("leads partition=%s term=%d index=%d", f"t-{number}", 1, 1)
        logger.info("steps down partition=%s term=%d", "t-0", 1)
        logger.info("another line")
        assert len(lines(stream)) == SHOWN + 2
        ((after, tell),) = timers
        assert after == PERIOD
        tell()
        assert lines(stream)[-1].endswith("folded changes of leaders leads=980 steps_down=0")
        now += PERIOD
        logger.info("leads partition=%s term=%d index=%d", "t", 2, 1)
        tell()
        assert len(lines(stream)) == SHOWN + 4, "nothing was hidden since"
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
