"""Supervisor over real processes: small ones that tell their start, and end as they are told."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.machine import supervisor
from cluster.machine.hangs import Hangs
from cluster.machine.supervisor import Supervisor, watch_hangs
from harness.ports import free_ports

# Tells its number and pid to the file named first; then waits for the end of its stdin.
CHILD = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit({on_term}))
number = sys.argv[sys.argv.index("--process") + 1]
with open(sys.argv[1], "w") as told:
    told.write(f"{{number}} {{os.getpid()}}\\n")
{body}
sys.stdin.read()
os._exit(9)
"""
NODES = [1, 101]


class Stage:
    """A supervisor in progress. `started` gives the next process's number and pid."""

    def __init__(self, made: Supervisor, pipe: asyncio.StreamReader) -> None:
        self.supervisor = made
        self.ended = asyncio.create_task(made.run())
        self._pipe = pipe

    async def started(self) -> tuple[int, int]:
        number, pid = (await self._pipe.readline()).split()
        return int(number), int(pid)


@asynccontextmanager
async def running(
    tmp_path: Path, body: str = "", on_term: int = 0, pace: float = 0.0, **more: Any
) -> AsyncIterator[Stage]:
    path = tmp_path / "told"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    pipe = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(pipe), os.fdopen(descriptor, "rb", 0)
    )
    command = [sys.executable, "-c", CHILD.format(body=body, on_term=on_term), str(path)]
    stage = Stage(Supervisor(command, NODES, pace, **more), pipe)
    try:
        yield stage
    finally:
        stage.supervisor.stop()
        await stage.ended
        transport.close()


def test_a_stop_ends_all_processes(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as stage:
            started = [await stage.started(), await stage.started()]
            assert {number for number, _ in started} == {0, 1}
            os.kill(os.getpid(), signal.SIGTERM)
            assert await stage.ended == 0
            for _, pid in started:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)

    asyncio.run(body())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_ends_is_started_again_and_the_other_runs_on(
    tmp_path: Path, how: signal.Signals
) -> None:
    async def body() -> None:
        async with running(tmp_path) as stage:
            started = dict([await stage.started(), await stage.started()])
            os.kill(started[1], how)
            number, pid = await stage.started()
            assert number == 1 and pid != started[1]
            os.kill(started[0], 0)

    asyncio.run(body())


def test_a_process_that_hangs_is_ended_and_started_again(tmp_path: Path) -> None:
    """It takes no SIGTERM. A process that came after the look is not ended for it."""

    async def body() -> None:
        async with running(tmp_path, "os.kill(os.getpid(), signal.SIGSTOP)") as stage:
            started = dict([await stage.started(), await stage.started()])
            assert stage.supervisor.running == {1: started[0], 101: started[1]}
            assert not stage.supervisor.end_hung(101, started[0])
            assert stage.supervisor.end_hung(101, started[1])
            number, pid = await stage.started()
            assert number == 1 and stage.supervisor.running == {1: started[0], 101: pid}
            assert not stage.supervisor.end_hung(101, started[1])
            for node, one in stage.supervisor.running.items():
                stage.supervisor.end_hung(node, one)
            await stage.started(), await stage.started()
            stage.supervisor.stop()
            for one in stage.supervisor.running.values():
                os.kill(one, signal.SIGCONT)

    asyncio.run(body())


def test_a_look_without_a_thread_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the machine was told as hanging from then on."""

    async def body() -> None:
        loop, looks = asyncio.get_running_loop(), asyncio.Queue[None]()

        def look(running: object) -> Any:
            loop.call_soon_threadsafe(looks.put_nowait, None)
            raise RuntimeError("can't start new thread")

        hangs = Hangs({}, time.monotonic)
        monkeypatch.setattr(hangs, "look", look)
        watch = asyncio.create_task(watch_hangs(Supervisor([], []), hangs, period=0.0))
        for _ in range(3):
            await looks.get()
        watch.cancel()

    asyncio.run(asyncio.wait_for(body(), 60))


# A machine with watched processes: tells each process's pid, and each look's number of those alive.
# Its clock is ahead by the seconds in a file.
MACHINE = """
import asyncio, sys, time
from pathlib import Path
from cluster.machine.hangs import Hangs
from cluster.machine.supervisor import Supervisor, watch_hangs

class Told(Hangs):
    def look(self, running):
        hung = super().look(running)
        print("look", sum(at == self._looked_at for at in self._since.values()), flush=True)
        return hung

async def main():
    program, ahead, *ports = sys.argv[1:]
    processes = {node: f"127.0.0.1:{port}" for node, port in zip((1, 101), ports, strict=True)}
    supervisor = Supervisor([sys.executable, "-c", program, *ports], [1, 101], 0.0)
    clock = lambda: time.monotonic() + float(Path(ahead).read_text())
    hangs = Told(processes, clock, limit=500.0, timeout=1.2, late=300.0)
    watch = asyncio.create_task(watch_hangs(supervisor, hangs, 0.05))
    await supervisor.run()

asyncio.run(main())
"""
WATCHED = """
import os, sys, threading, time
from cluster.metrics.http import serve_pages
from cluster.node.health.probes import Probes

number = int(sys.argv[sys.argv.index("--process") + 1])
probes = Probes(time.monotonic)
probes.turned()
serve_pages("health_listen", f"127.0.0.1:{sys.argv[1 + number]}", probes.pages)
print("process", number, os.getpid(), flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    time.sleep(0.1)
    probes.turned()
"""


class Watched:
    """A machine as a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process, ahead: Path) -> None:
        self.pid = process.pid
        self.pids: dict[int, int] = {}
        self._process = process
        self._ahead = ahead

    async def tells(self) -> list[str]:
        """Returns the next line in words; one of a start is kept in `pids`."""
        assert self._process.stdout is not None
        words = (await self._process.stdout.readline()).decode().split()
        assert words, "the machine ended"
        if words[0] == "process":
            self.pids[int(words[1])] = int(words[2])
        return words

    async def looks(self, alive: int, times: int = 1) -> None:
        """Waits for looks that find so many processes alive."""
        while times:
            times -= await self.tells() == ["look", str(alive)]

    def all(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)

    def pass_time(self, seconds: float) -> None:
        passed = self._ahead.with_suffix(".next")
        passed.write_text(str(float(self._ahead.read_text()) + seconds))
        passed.replace(self._ahead)


@asynccontextmanager
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    ahead = tmp_path / "ahead"
    ahead.write_text("0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MACHINE, WATCHED, str(ahead), *map(str, free_ports(2))),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield Watched(process, ahead)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_a_stopped_process_is_ended_and_a_stopped_machine_ends_none(tmp_path: Path) -> None:
    """It stands still for longer than the limit, and has found one process silent before."""
    async with asyncio.timeout(120), watched(tmp_path) as machine:
        await machine.looks(alive=2, times=2)
        before = dict(machine.pids)
        os.kill(before[1], signal.SIGSTOP)
        await machine.looks(alive=1)
        machine.all(signal.SIGSTOP)
        machine.pass_time(600)
        os.kill(machine.pid, signal.SIGCONT)
        await machine.looks(alive=2)  # the look that was late counts against nobody
        machine.all(signal.SIGCONT)
        await machine.looks(alive=2, times=2)
        assert machine.pids == before
        os.kill(before[1], signal.SIGSTOP)
        while machine.pids == before:
            # Half the limit after each look that found the other one alive.
            if await machine.tells() == ["look", "1"]:
                machine.pass_time(250)
        assert machine.pids[0] == before[0]
        with pytest.raises(ProcessLookupError):
            os.kill(before[1], 0)
        await machine.looks(alive=2)


WITHOUT_SUPERVISOR = """
import asyncio, sys, time
from cluster.node.process import stop_with_supervisor

async def main():
    stop = asyncio.Event()
    stop_with_supervisor(asyncio.get_running_loop(), stop, limit=float(sys.argv[1]))
    print("runs", flush=True)
    if sys.argv[2] == "hangs":
        time.sleep(600)
    await stop.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize(("limit", "how", "code"), [("600", "turns", 0), ("0.1", "hangs", 1)])
async def test_a_process_ends_with_its_supervisor_even_if_it_hangs(
    limit: str, how: str, code: int
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WITHOUT_SUPERVISOR, limit, how),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    assert await process.stdout.readline() == b"runs\n"
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 60) == code


def test_starts_keep_the_pace_and_a_stop_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        ends = [asyncio.get_running_loop().create_future() for _ in NODES]

        def ended(text: str, node: int, code: int, pause: float) -> None:
            assert 0 < 3600 - pause < 600 and code == 1
            ends[NODES.index(node)].set_result(None)

        monkeypatch.setattr(supervisor.log, "warning", ended)
        async with running(tmp_path, "os._exit(1)", pace=3600.0) as stage:
            await asyncio.gather(*ends)
            assert {(await stage.started())[0], (await stage.started())[0]} == {0, 1}
            stage.supervisor.stop()
            assert await stage.ended == 0

    asyncio.run(body())


def test_bad_settings_of_one_process_end_the_machine(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, "if number == '1': os._exit(2)") as stage:
            assert await stage.ended == 2

    asyncio.run(body())


def test_settings_that_became_bad_do_not_end_the_processes_that_run(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    check = f"if number == '1' and os.path.exists({str(bad)!r}): os._exit(2)"

    async def body() -> None:
        async with running(tmp_path, check) as stage:
            started = dict([await stage.started(), await stage.started()])
            bad.touch()
            os.kill(started[1], signal.SIGKILL)
            assert (await stage.started())[0] == (await stage.started())[0] == 1
            os.kill(started[0], 0)
            assert not stage.ended.done()

    asyncio.run(body())


def test_a_removed_node_is_not_started_again_and_the_other_runs_on(tmp_path: Path) -> None:
    async def body() -> None:
        removed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        check = "if number == '1': os._exit(3)"
        async with running(tmp_path, check, on_removed=removed.set_result) as stage:
            started = dict([await stage.started(), await stage.started()])
            assert await removed == 101
            os.kill(started[0], signal.SIGKILL)
            number, _ = await stage.started()
            assert number == 0, "only the other one is started again"
            stage.supervisor.stop()
            assert await stage.ended == 0

    asyncio.run(body())


def test_a_machine_without_a_node_left_ends(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, "os._exit(3)") as stage:
            assert await stage.ended == 3

    asyncio.run(body())


def test_a_process_that_fails_to_stop_is_in_the_exit_code(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, on_term=1) as stage:
            await stage.started(), await stage.started()
            stage.supervisor.stop()
            assert await stage.ended == 1

    asyncio.run(body())


def test_a_process_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    async def body() -> None:
        program = tmp_path / "program"
        one = Supervisor([str(program)], NODES, pace=0.01)
        ended = asyncio.create_task(one.run())
        await asyncio.sleep(0)
        program.write_text("#!/bin/sh\nexit 2\n")
        program.chmod(0o700)
        assert await ended == 2

    asyncio.run(body())
