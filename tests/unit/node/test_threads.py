"""Threads that are started before they are needed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.errors import ClusterError
from cluster.node.tasks import start_all


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_pool_that_was_started_needs_no_thread_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_all(ThreadPoolExecutor(3), 3) as pool, ThreadPoolExecutor(3) as other:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError):
            other.submit(int)
        assert [pool.submit(int, "7").result(30) for _ in range(10)] == [7] * 10


def test_a_system_without_threads_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def second_fails(self: threading.Thread) -> None:
        if started:
            no_thread(self)
        started.append(self)
        start(self)

    with ThreadPoolExecutor(2) as pool:  # its end waits for the threads that there are
        monkeypatch.setattr(threading.Thread, "start", second_fails)
        with pytest.raises(ClusterError, match="threads: can't start new thread; raise the limit"):
            start_all(pool, 2)
