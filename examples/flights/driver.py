"""The job as a separate program, and its control by another: start, kill, start again.

    python -m examples.flights.driver --bootstrap localhost:7001 --dir DIR [--mode update]

It computes until its standard input is closed, then finishes the records present by then, and ends.
Each of its lines is one of Spark's micro-batches, as JSON. The progress of a killed program is in
its checkpoint in DIR and in the cluster: the next one goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkRuntimeError

from examples.flights import job, naive
from examples.flights.data import table

MODES = ("append", "update")
LOOK_EVERY_S = 0.2
START_S = 300.0


class JobError(Exception):
    """The program ended, or makes no progress."""


class Job:
    """The program, with the micro-batches of all its lives."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.triggers: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._process, self._reader = self._started()

    def start(self) -> None:
        """Start it, or start it again after a kill."""
        self._process, self._reader = self._started()

    def _started(self) -> tuple[subprocess.Popen[str], threading.Thread]:
        process = subprocess.Popen(
            [sys.executable, "-m", "examples.flights.driver", *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that `processes` finds all that it starts
        )
        reader = threading.Thread(target=self._read, args=(process,))
        reader.start()
        return process, reader

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._changed:
                self.triggers.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_computed(self) -> None:
        """Wait until a micro-batch had records. Raises JobError if the program ends before."""

        def computed() -> bool:
            return any(one["rows"] for one in self.triggers) or not self._reader.is_alive()

        with self._changed:
            if not self._changed.wait_for(computed, START_S) or not self.triggers:
                raise JobError("the job does not compute anything")

    def finish(self) -> None:
        """Wait until all records of the topic are computed. Raises JobError if it fails."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait()
        self._reader.join()
        if code:
            raise JobError(f"the job ended with exit code {code}")

    def processes(self) -> dict[int, tuple[int, str]]:
        """Return parent and command of the program and of each process it has started."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                command = (path / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == self._process.pid:
                found[int(path.name)] = int(fields[1]), command
        return found

    def kill(self) -> None:
        """Send SIGKILL to the driver and all processes that it has started."""
        for pid in (self._process.pid, *self.processes()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # its parent was first
        self._process.wait()
        self._reader.join()

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()


# --- in the program ----------------------------------------------------------------------


def _print(progress: Any) -> None:
    began = datetime.fromisoformat(progress.timestamp).timestamp()
    line = {
        "at": began + progress.batchDuration / 1000,
        "batch": progress.batchId,
        "rows": progress.numInputRows,
        "watermark": progress.eventTime.get("watermark", ""),
        "dropped": sum(op.numRowsDroppedByWatermark for op in progress.stateOperators),
    }
    print(json.dumps(line), flush=True)


def _compute(given: argparse.Namespace) -> None:
    try:
        spark = job.session(given.master, job.CONNECTOR if given.kafka else "")
    except PySparkRuntimeError as error:
        if not given.kafka:
            raise
        text = f"Spark does not start. Is Maven Central reachable? --kafka needs {job.CONNECTOR}"
        raise SystemExit(f"{text}: {error}") from error
    spark.dataSource.register(naive.NaiveSink)
    system, servers = ("kafka", given.kafka) if given.kafka else ("oncelog", given.bootstrap)
    stream = job.departures(spark, servers, given.topic, given.partitions, system)
    rows = job.delays(job.with_tables(spark, stream))
    query = job.start(rows, given.dir, servers, given.results, given.mode, system)
    queries = [query]
    if given.naive:
        queries.append(
            job.start(rows, given.dir, given.bootstrap, given.naive, given.mode, naive.NAME)
        )
    over = threading.Event()
    printed = -1

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()

    def look() -> None:
        nonlocal printed
        for one in query.recentProgress:
            if one.batchId > printed:
                printed = one.batchId
                _print(one)

    while not over.wait(LOOK_EVERY_S):
        look()
        for one in queries:
            if not one.isActive:
                raise SystemExit(f"the query ended: {one.exception()}")
    for one in queries:
        one.processAllAvailable()
        one.stop()
    look()
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples.flights.driver")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="departures")
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--results", default="delays")
    parser.add_argument("--naive", default="", help="a topic for the naive sink beside it")
    parser.add_argument("--kafka", default="", help="the nodes' Kafka ports: Spark's connector")
    parser.add_argument("--mode", choices=MODES, default=MODES[0])
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--dir", type=Path, required=True, help="where the checkpoints are")
    given = parser.parse_args()
    table("flights")  # before Spark starts: it reports missing files
    _compute(given)


if __name__ == "__main__":
    main()
