"""Run of the benchmark: measures, notes, goes on.

The machine's limits come first and last. Between them Oncelog and the peers go through the same
workloads one after the other, and then Oncelog through its own. A measurement that fails, or
takes too long, becomes a row with its reason, and the next one starts.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.figures import Figures
from bench.machine import describe
from bench.own import failover, partitions, path, producers, restart
from bench.plan import (
    BYTES_CASES,
    CONSUME,
    HALF,
    MANY_CASES,
    MIB,
    OWN,
    PRODUCE_CASES,
    SHARED,
    SINGLE,
    Scale,
    bytes_case,
    many_case,
    partitions_case,
    pids_case,
    produce_case,
    restart_case,
)
from bench.processes import ROOT, BenchError, Server, run_json, wait_until
from bench.results import ALL_CASES, Results, Row, now
from bench.systems.face import PYTHON, Load, System
from bench.systems.kafka import BATCHED, LIBRDKAFKA
from bench.systems.oncelog import Oncelog
from bench.timing import time_limit

ERROR_CHARS = 600
LIMITS_S = 60.0
START_S = 240.0  # of a peer, on a busy machine


class Run:
    """One run of the benchmark."""

    def __init__(
        self,
        results: Results,
        scale: Scale,
        only: Sequence[str],
        scratch: Path,
        total_s: float,
    ) -> None:
        """Starts a run of `total_s`: later measurements are left out, with that as their reason."""
        self.results = results
        self.scale = scale
        self.only = only
        self.scratch = scratch
        self.id = uuid.uuid4().hex[:8]
        self.limits: Figures = {}
        self._total_s = total_s
        self._end = time.monotonic() + total_s

    # -- noting -------------------------------------------------------------------------

    def note(
        self,
        section: str,
        system: str,
        case: str,
        figures: Figures,
        *,
        client: str = "",
        detail: Any = None,
        error: str = "",
    ) -> None:
        figures = {name: round(value, 5) for name, value in figures.items()}
        row = Row(
            section=section, system=system, case=case, client=client, error=error,
            figures=figures | report.ratios(section, case, figures, self.limits),
            detail=detail or {}, run=self.id, at=now(), load=round(os.getloadavg()[0], 2),
        )  # fmt: skip
        self.results.add(row)
        print(report.line(row), flush=True)

    def attempt(
        self, section: str, system: str, case: str, action: Callable[[], Figures],
        *, client: str = "", limit_s: float = 120.0, detail: Any = None,
    ) -> Figures:  # fmt: skip
        """Measures and notes; a failure is noted with its reason and gives no figures."""
        figures: Figures = {}
        error = ""
        try:
            with time_limit(min(limit_s, self._left())):
                figures = action()
        except Exception as failure:  # noqa: BLE001  # one failure must not end the others
            error = " ".join(str(failure).split())[:ERROR_CHARS] or repr(failure)
        self.note(section, system, case, figures, client=client, error=error, detail=detail)
        return figures

    def _left(self) -> float:
        """Seconds left. Raises BenchError at zero."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise BenchError(f"left out: the run has had its {self._total_s:g} s")
        return left

    @contextlib.contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        """Makes one cluster's directory, and deletes it afterwards: the next needs the disk."""
        path = self.scratch / name
        path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    # -- sections -----------------------------------------------------------------------

    def measure_limits(self, when: str) -> None:
        """Measures the limits even after the time is over: they show changes of the machine."""
        self._end = max(self._end, time.monotonic() + LIMITS_S)

        def limits() -> Figures:
            words = [sys.executable, "-m", "bench.limits", "--directory", str(self.scratch)]
            return run_json([*words, "--seconds", str(self.scale.limits_s)], LIMITS_S)

        found = self.attempt("limits", "machine", when, limits, detail=describe(self.scratch))
        self.limits = self.limits or found

    def client_alone(self) -> None:
        """Measures the client against a broker that acknowledges everything at once."""
        system, seconds = Oncelog(), self.scale.seconds
        log = self.scratch / "null-broker.log"
        server = Server("null broker", [sys.executable, "-m", "bench.null_broker"], log,
                        env={"PYTHONPATH": str(ROOT)})  # fmt: skip
        try:
            wait_until("null broker", lambda: log.read_text().endswith("\n"), 30, [server])
            address = log.read_text().strip()
            for case, options in (
                ("send, 100 B", ()),
                ("send_batch of lists, 100 B", ("--batch-bytes", MIB)),
                ("send_batch of Arrow, 100 B", ("--batch-bytes", MIB, "--arrow")),
            ):
                action = functools.partial(
                    system.bench, "produce", "null-6", "--record-size", 100, *options,
                    seconds=seconds, bootstrap=address,
                )  # fmt: skip
                self.attempt("client", system.name, case, action, client=PYTHON)
        finally:
            server.stop()

    def shared(self, system: System) -> None:
        """Runs the workloads common to all systems."""
        wanted = [one for one in SHARED if one in self.only and system.clients(one)]
        if not wanted:
            return
        name = "".join(c if c.isalnum() else "-" for c in system.name)
        left = list(wanted)
        try:
            with self.directory(name) as directory:
                system.prepare()  # downloads have limits of their own
                try:
                    with time_limit(min(START_S, self._left())):
                        self._start(system, directory)
                    with time_limit(min(self.scale.system_s, self._left())):
                        for section in wanted:
                            self.SHARED[section](self, system)
                            left.remove(section)
                finally:
                    system.stop()
        except Exception as failure:  # noqa: BLE001  # the next system is measured all the same
            error = " ".join(str(failure).split())[:ERROR_CHARS]
            for section in left:
                self.note(section, system.name, ALL_CASES, {}, error=error)

    def _start(self, system: System, directory: Path) -> None:
        started = time.monotonic()
        system.start(directory)
        figures = {"start_s": time.monotonic() - started}
        self.note("settings", system.name, ALL_CASES, figures, detail=dict(system.settings()))
        warm_up = Load(1024, 6, self.scale.warm_up_s)
        self._quietly(lambda: system.produce(PYTHON, warm_up))

    def _quietly(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as failure:  # noqa: BLE001  # the next measurement reports it again
            print(f"  {failure}", flush=True)

    def _produce(self, system: System) -> None:
        for client in system.clients("produce"):
            for size, count in PRODUCE_CASES:
                load = Load(size, count, self.scale.seconds)
                action = functools.partial(system.produce, client, load)
                self.attempt(
                    "produce", system.name, produce_case(size, count), action, client=client
                )

    def _bytes(self, system: System) -> None:
        for client in system.clients("bytes"):
            for size in BYTES_CASES:
                load = Load(size, 1, self.scale.seconds)
                action = functools.partial(system.produce_bytes, client, load)
                self.attempt("bytes", system.name, bytes_case(size), action, client=client)

    def _latency(self, system: System) -> None:
        client, seconds = PYTHON, self.scale.latency_s
        size, count = PRODUCE_CASES[-1]

        def at_half() -> Figures:
            most = self.results.figure(
                "produce", produce_case(size, count), "records_per_s",
                system=system.name, client=client,
            )  # fmt: skip
            if not most:
                load = Load(size, count, self.scale.seconds)
                most = system.produce(client, load)["records_per_s"]
            return system.latency(client, Load(size, count, seconds, rate=most / 2))

        single = functools.partial(system.latency, client, Load(100, 1, seconds))
        self.attempt("latency", system.name, SINGLE, single, client=client)
        self.attempt("latency", system.name, HALF, at_half, client=client)

    def _consume(self, system: System) -> None:
        for client in system.clients("consume"):
            load = Load(1024, 1, self.scale.seconds, total_mb=self._consume_mb(system))
            action = functools.partial(system.consume, client, load)
            self.attempt("consume", system.name, CONSUME, action, client=client)

    def _producers(self, system: System) -> None:
        seconds = self.scale.seconds
        for client in system.clients("producers"):
            for count, processes in MANY_CASES:
                action = functools.partial(system.producers, count, processes, seconds)
                case = many_case(count, processes)
                self.attempt("producers", system.name, case, action, client=client)
        if isinstance(system, Oncelog):
            deep = functools.partial(producers.many, system, 64, 5, seconds)
            self.attempt("producers", system.name, many_case(64, 1, 5), deep, client=PYTHON)
            plain = functools.partial(producers.raw, system, 64, seconds)
            self.attempt("producers", system.name, many_case(64), plain, client="raw gRPC")

    def _kafka(self, system: System) -> None:
        """One client, librdkafka, for each system that speaks Kafka's protocol."""
        seconds = self.scale.seconds
        reading = Load(1024, 1, seconds, total_mb=self.scale.consume_mb)
        for case, action in (
            (produce_case(100, 6), lambda: system.produce(BATCHED, Load(100, 6, seconds))),
            (produce_case(1024, 6), lambda: system.produce(BATCHED, Load(1024, 6, seconds))),
            (SINGLE, lambda: system.latency(PYTHON, Load(100, 1, seconds))),
            (CONSUME, lambda: system.consume(PYTHON, reading)),
            (many_case(64), lambda: system.producers(64, 1, seconds)),
        ):
            self.attempt("kafka", system.name, case, action, client=LIBRDKAFKA)

    def _consume_mb(self, system: System) -> int:
        """Megabytes that the system writes in some seconds: filling must not take minutes."""
        speed = self.results.figure(
            "produce", produce_case(1024, 1), "mb_per_s",
            system=system.name, client=PYTHON,
        )  # fmt: skip
        most = self.scale.consume_mb
        if isinstance(system, Oncelog) or not speed:
            return most
        return max(5, min(most, int(2 * speed * self.scale.seconds)))

    def own(self) -> None:
        """Runs the workloads of Oncelog alone, each on a new cluster."""
        for section in OWN:
            if section not in self.only:
                continue
            try:
                self._left()
                with self._oncelog() as system:
                    self.OWN[section](self, system)
            except Exception as failure:  # noqa: BLE001  # the next section all the same
                self.note(section, Oncelog.name, ALL_CASES, {}, error=str(failure))

    def _idempotence(self, system: Oncelog) -> None:
        action = functools.partial(
            producers.idempotence, system, self.scale.seconds, self.scale.on_off_rounds
        )
        case = "1 KiB records, 6 partitions"
        self.attempt("idempotence", system.name, case, action, client=PYTHON)

    def _failover(self, system: Oncelog) -> None:
        kills = self.scale.kills
        action = functools.partial(failover.failover, system, kills)
        self._with_values("failover", f"{kills} kills", "times_s", action, 60 + 20 * kills)

    def _partitions(self, system: Oncelog) -> None:
        scale, count = self.scale, self.scale.partitions
        for case, action in (
            ("idle", functools.partial(partitions.idle, system, count, scale.idle_s)),
            ("load", functools.partial(partitions.spread, system, scale.seconds, scale.rounds)),
            ("start", functools.partial(partitions.start, system, count)),
        ):
            where = partitions_case(count, case)
            self.attempt("partitions", system.name, where, action, limit_s=240)

    def _restart(self, system: Oncelog) -> None:
        size = self.scale.restart_mb
        action = functools.partial(restart.fill, system, size)
        self._with_values("restart", restart_case(size, "filled"), "mb_per_s", action, 500)
        again = functools.partial(restart.restart, system)
        self.attempt("restart", system.name, restart_case(size, "a node restarted"), again)

    # Sections by their names in `plan`.
    SHARED: Mapping[str, Callable[[Run, System], None]] = {
        "produce": _produce,
        "bytes": _bytes,
        "latency": _latency,
        "consume": _consume,
        "producers": _producers,
        "kafka": _kafka,
    }
    OWN: Mapping[str, Callable[[Run, Oncelog], None]] = {
        "idempotence": _idempotence,
        "failover": _failover,
        "partitions": _partitions,
        "restart": _restart,
    }

    def path(self) -> None:
        """Measures on nodes of its own that note a batch's points."""
        with self.directory("path") as directory:
            action = functools.partial(path.path, directory, self.scale.path_records)
            self.attempt("path", Oncelog.name, SINGLE, action)

    def pids(self) -> None:
        """Measures one partition's map of producers, without a cluster."""
        count = self.scale.pids
        action = functools.partial(producers.last_seen, count)
        self.attempt("pids", Oncelog.name, pids_case(count), action, limit_s=300)

    def _with_values(
        self, section: str, case: str, name: str,
        action: Callable[[], tuple[Figures, list[float]]], limit_s: float,
    ) -> None:  # fmt: skip
        """Notes a measurement with its single values, for the plots."""
        values: dict[str, list[float]] = {}

        def run() -> Figures:
            figures, one_by_one = action()
            values[name] = [round(one, 4) for one in one_by_one]
            return figures

        self.attempt(section, Oncelog.name, case, run, limit_s=limit_s, detail=values)

    @contextlib.contextmanager
    def _oncelog(self) -> Iterator[Oncelog]:
        """Starts a new cluster."""
        system = Oncelog()
        with self.directory("oncelog-own") as directory:
            try:
                with time_limit(self._left()):
                    system.start(directory)
                yield system
            finally:
                system.stop()
