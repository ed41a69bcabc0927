"""`oncelog top` over a real cluster: by Textual's pilot, and in a terminal of 80 columns."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from functools import partial

import pytest
from textual.widgets import DataTable, Static, TabbedContent

from harness.local_cluster import LocalCluster
from oncelog import Admin, BrokerUnavailableError, GroupLag, Producer
from oncelog._engine import admin as core
from oncelog.cli import top
from oncelog.cli.top import look_at
from oncelog.cli.top_screen import TABLES, TopScreen
from oncelog.views.live import Look, headline, tables
from tests.integration.waiting import eventually

SIZE = (80, 24)
PATIENCE = 60.0
WAITING = ("--request-timeout-ms", "60000")


@pytest.fixture
def admin(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    """A client that a slow machine does not trouble."""
    monkeypatch.setattr(top, "LAGS_S", PATIENCE)
    monkeypatch.setattr(core, "LAG_S", PATIENCE)
    with patient(cluster.bootstrap) as one:
        yield one


def patient(bootstrap: str) -> Admin:
    return Admin(bootstrap_servers=bootstrap, request_timeout_ms=int(1000 * PATIENCE))


@pytest.fixture
def watched(cluster: LocalCluster, admin: Admin, topic: str) -> str:
    """A topic with a record, a group and a named producer, all of that name."""
    admin.create_topic(topic, 2, 3, timeout_ms=int(1000 * PATIENCE))
    with Producer(bootstrap_servers=cluster.bootstrap, producer_name=topic) as producer:
        producer.send(topic, b"x", partition=0).result(PATIENCE)
    admin.commit_offsets(topic, {(topic, 0): 0})
    for address in cluster.addresses.values():
        with patient(address) as own:
            knowing = partial(knows, own, topic)
            eventually(knowing, f"{address} is healthy and knows all names", PATIENCE)
    return topic


def knows(admin: Admin, name: str) -> bool:
    look = look_at(admin, (name,))
    lag = look.lags[name].lag if name in look.lags else None
    ends = [one.high_watermark for topic in look.topics for one in topic.partitions]
    there = bool(look.producers) and lag == 1 and ends == [1, 0]
    return there and headline(look).startswith("healthy. 3 nodes, ")


def cells(app: TopScreen, name: str) -> list[list[str]]:
    table = app.query_one(f"#{name} DataTable", DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


def test_a_group_that_fails_has_no_lag_and_ends_nothing(
    admin: Admin, watched: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(group: str) -> GroupLag:
        raise BrokerUnavailableError(f"no coordinator of {group}")

    monkeypatch.setattr(admin, "group_lag", failing)
    look = look_at(admin, (watched,))
    assert [one.group for one in look.groups] == [watched] and not look.lags
    assert tables(look)["groups"].rows[0][-2:] == (None, None)


async def test_tables_are_refreshed_and_chosen_by_keys(admin: Admin, watched: str) -> None:
    looks: list[Look] = []

    def look() -> Look:
        looks.append(look_at(admin, (watched,)))
        return looks[-1]

    app = TopScreen(look, every=3600)
    async with app.run_test(size=SIZE) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        health = str(app.query_one("#health", Static).content)
        assert health.startswith("healthy. 3 nodes, ")
        assert [row[:3] for row in cells(app, "topics")] == [[watched, "2", "3"]]
        assert [(row[0], *row[-2:]) for row in cells(app, "groups")] == [(watched, "1", "0.0 s")]
        assert [row[0] for row in cells(app, "nodes")] == ["1", "2", "3"]
        assert [row[0] for row in cells(app, "producers")] == [watched]
        for number, name in enumerate(TABLES, 1):
            await pilot.press(str(number))
            assert app.query_one(TabbedContent).active == name
            assert app.focused is app.query_one(f"#{name} DataTable")
        await pilot.press("2")
        admin.commit_offsets(watched, {(watched, 0): 1})
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert len(looks) == 2
        assert [(row[0], *row[-2:]) for row in cells(app, "groups")] == [(watched, "0", "0.0 s")]
        await pilot.press("q")
    assert app.return_code == 0


async def test_an_error_is_shown_and_the_tables_stay(cluster: LocalCluster, watched: str) -> None:
    with patient(cluster.bootstrap) as own:
        app = TopScreen(lambda: look_at(own, (watched,)), every=3600)
        async with app.run_test(size=SIZE) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            own.close()
            await pilot.press("r")
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert "no answer: " in str(app.query_one("#health", Static).content)
            assert [row[0] for row in cells(app, "topics")] == [watched]


def test_the_first_screen_in_a_terminal(cluster: LocalCluster, watched: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    command = [sys.executable, "-m", "oncelog.cli", "top", "--match", watched, *WAITING]
    process = subprocess.Popen(
        [*command, "-b", cluster.bootstrap],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        screen = read_until(ours, b"healthy", watched.encode(), b"Quit")
        for name in TABLES:
            assert name.title().encode() in screen
        os.write(ours, b"q")
        read_until(ours, b"\x1b[?1049l")  # the screen as it was before
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, *wanted: bytes) -> bytes:
    """Read until all texts were written, in any order."""
    found, end = b"", time.monotonic() + PATIENCE
    while not all(text in found for text in wanted):
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, found[-2000:]
        found += os.read(terminal, 65536)
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_plain_tables_and_json(cluster: LocalCluster, watched: str) -> None:
    command = [sys.executable, "-m", "oncelog.cli", "top", "-b", cluster.bootstrap, *WAITING]
    command += ["--match", watched, "-n", "1"]
    done = run(*command, "--plain")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("healthy. 3 nodes, ")
    assert done.stdout.count(watched) == 3
    done = run(*command, "--format", "json")
    found = json.loads(done.stdout)
    assert [row["topic"] for row in found["topics"]] == [watched]
    assert [row["group"] for row in found["groups"]] == [watched]
    done = run(*command)
    assert (done.returncode, "-n is for --plain" in done.stderr) == (2, True)
