"""The process of a cleaner's worker: it yields to its node, and may be killed at any time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cluster.cleaning import messages
from cluster.cleaning.by_key import CleaningTerms
from cluster.cleaning_worker import NICENESS
from cluster.node.cleaning.process import WorkerProcess

BEGIN = messages.begin(CleaningTerms(0, 0), 1 << 20)
NOTHING = messages.note([])
PATIENCE = 60


async def asked(worker: WorkerProcess, request: bytes) -> bytes | None:
    reply = asyncio.get_running_loop().create_future()
    worker.ask(request, reply.set_result)
    async with asyncio.timeout(PATIENCE):
        return await reply  # type: ignore[no-any-return]


def pid_of(worker: WorkerProcess) -> int:
    assert worker._process is not None
    return worker._process.pid


def with_worker(test: Callable[[WorkerProcess], Coroutine[Any, Any, None]]) -> None:
    async def run() -> int:
        worker = WorkerProcess(16 << 20)
        try:
            await test(worker)
            return pid_of(worker)
        finally:
            await worker.stop()

    last = asyncio.run(run())
    with pytest.raises(ChildProcessError):  # its end was waited for
        os.waitpid(last, os.WNOHANG)


def test_one_process_answers_all_requests_and_yields_to_its_node() -> None:
    async def answers(worker: WorkerProcess) -> None:
        assert await asked(worker, BEGIN) == b""
        first = pid_of(worker)
        reply = await asked(worker, NOTHING)
        assert reply is not None and messages.full_at(reply) is None
        assert pid_of(worker) == first
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, first) == min(own + NICENESS, 19)

    with_worker(answers)


def test_a_process_that_was_killed_is_told_and_the_next_request_starts_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def dies(worker: WorkerProcess) -> None:
        await asked(worker, BEGIN)
        first = pid_of(worker)
        os.kill(first, signal.SIGKILL)
        with caplog.at_level(logging.WARNING):
            assert await asked(worker, NOTHING) is None
        assert "the cleaner's worker ended" in caplog.text
        assert await asked(worker, BEGIN) == b""
        assert pid_of(worker) != first

    with_worker(dies)


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_stopped_process_that_is_closed_ends_its_request(size: int) -> None:
    """Also one that did not take all of its request yet."""

    async def hangs(worker: WorkerProcess) -> None:
        await asked(worker, BEGIN)
        os.kill(pid_of(worker), signal.SIGSTOP)
        request = asyncio.create_task(asked(worker, NOTHING + bytes(size)))
        await asyncio.sleep(0)  # it is asked
        worker.close()
        assert await request is None
        assert await asked(worker, BEGIN) == b""

    with_worker(hangs)


def test_an_unexpected_error_ends_the_request(caplog: pytest.LogCaptureFixture) -> None:
    """Else a pass would wait for its reply for ever."""

    async def fails(worker: WorkerProcess) -> None:
        await asked(worker, BEGIN)
        assert worker._process is not None and worker._process.stdin is not None
        worker._process.stdin.close()  # to write to it is a ValueError
        assert await asked(worker, NOTHING) is None
        assert "ValueError" in caplog.text
        assert await asked(worker, BEGIN) == b""

    with_worker(fails)


def test_a_request_that_was_just_made_leaves_no_process() -> None:
    async def run() -> None:
        worker, replies = WorkerProcess(16 << 20), list[bytes | None]()
        worker.ask(BEGIN, replies.append)
        await worker.stop()
        assert replies == [b""], "it was started and asked"
        assert worker._process is None

    asyncio.run(run())
