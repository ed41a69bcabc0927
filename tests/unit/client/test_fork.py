"""A fork after the last close waits for the end of gRPC's native threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog._engine.net import runtime, threads

TASKS = Path("/proc/self/task")
NAME = "native-thread"  # gRPC's own may be there: other tests have servers

pytestmark = pytest.mark.skipif(not TASKS.exists(), reason="the system does not list threads")


class Native:
    """A thread with such a name, that ends in the third pause of a fork."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._named, self._ends = threading.Event(), threading.Event()
        self._task = TASKS
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._named.wait()

    def _run(self) -> None:
        self._task = TASKS / str(threading.get_native_id())
        (self._task / "comm").write_text(NAME)
        self._named.set()
        self._ends.wait()

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == 3:
            self.end()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        while self._task.exists():  # the system lists it for a moment longer
            time.sleep(0.001)


class Client:
    def __init__(self, closed: bool = True) -> None:
        self._closed = closed

    def _forked(self) -> None: ...


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[Native]:
    native = Native()
    patched: list[tuple[Any, str, Any]] = [
        (threads, "engine", object()),
        (runtime, "_clients", set()),
        (runtime, "_NATIVE", {NAME}),
        (runtime, "_POLLER", "no thread's name"),
        (runtime, "_others_use_grpc", False),
        (runtime, "_forking_under_grpc", False),
        # Not the modules themselves: threads of other tests would spin. A collection takes a
        # process of 5,000 tests more than a second, and there is one at each pause.
        (runtime, "gc", SimpleNamespace(collect=lambda: 0)),
        (runtime, "time", SimpleNamespace(sleep=native.pause)),
    ]
    for where, name, value in patched:
        monkeypatch.setattr(where, name, value)
    yield native
    native.end()


def test_a_fork_waits_for_native_threads(native: Native) -> None:
    runtime.register(Client())
    runtime._before_fork()
    assert (len(native.pauses), runtime._forking_under_grpc) == (3, False)


def test_a_fork_with_an_open_client_does_not_wait(native: Native) -> None:
    runtime.register(Client(closed=False))
    runtime._before_fork()
    assert (native.pauses, runtime._forking_under_grpc) == ([], True)


def test_a_fork_waits_once_for_threads_of_others(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = SimpleNamespace(sleep=native.pauses.append)
    monkeypatch.setattr(runtime, "time", never)
    runtime.register(Client())
    runtime._before_fork()
    waited = len(native.pauses)
    runtime._before_fork()
    assert (len(native.pauses), runtime._forking_under_grpc) == (waited, True)
    runtime.register(Client())
    runtime._before_fork()
    assert len(native.pauses) == 2 * waited > 0


def test_a_child_is_refused_where_threads_are_not_listed(
    native: Native, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runtime, "_TASKS", tmp_path / "missing")
    runtime._before_fork()
    assert runtime._forking_under_grpc
