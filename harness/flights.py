"""Runner of examples/flights on three nodes, while nodes and Spark's processes are killed.

scripts/flights calls this module. The example itself knows only the cluster's addresses. Killed
in turn: the leader of the busiest partition, a task's Python process, an executor's JVM, and
the driver with all its processes, which is then started again.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time

from examples.flights import data, driver, run
from harness.arguments import number
from harness.demo import TOPIC, Killer, fresh
from harness.local_cluster import LOOK_AGAIN, LocalCluster
from harness.node_process import ROOT, HarnessError
from oncelog import Consumer, OncelogError

KINDS = ("leader", "task", "executor", "driver")
DEFAULT_KILLS = 2 * len(KINDS)
DAEMON = "-m pyspark.daemon pyspark.worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
WRITTEN_S = 60.0
DIRECTORY = ROOT / "data" / "flights"


class Kills(run.Faults):
    """Kills at even distances in the stream, each kind in turn."""

    def __init__(
        self, cluster: LocalCluster, records: int, kills: int, kinds: list[str], naive: bool
    ) -> None:
        super().__init__()
        self._killer = Killer(cluster)
        self._cluster = cluster
        self._naive = naive
        moments = range(1, kills + 1)
        self._due = [records * moment // (kills + 1) for moment in moments]
        self._kinds = [kinds[number % len(kinds)] for number in range(kills)]
        self._nodes = 0
        self._job: driver.Job | None = None
        self._thread: threading.Thread | None = None

    def begin(self, job: driver.Job) -> None:
        self._job = job

    def at(self, sent: int) -> None:
        self._note()
        busy = self._thread is not None and self._thread.is_alive()
        if not self._due or sent < self._due[0] or busy:
            return
        self._due.pop(0)
        kind = self._kinds.pop(0)
        if kind == "leader":
            self._killer.kill_next()
            return
        # In a thread: the stream continues meanwhile.
        self._thread = threading.Thread(target=self._kill, args=(kind,))
        self._thread.start()

    def _kill(self, kind: str) -> None:
        assert self._job is not None, "it begins before anything is sent"
        if self._naive:
            wait_written(self._cluster.bootstrap)
        if kind == "driver":
            self._job.kill()
            self._job.start()
            self.kills.append((time.time(), kind))
            return
        for pid in sorted(found(self._job, kind))[:1]:
            os.kill(pid, signal.SIGKILL)
            self.kills.append((time.time(), kind))

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._killer.wait()
        self._note()

    def _note(self) -> None:
        """Notes the time of each node's kill, milliseconds late."""
        for node in self._killer.killed[self._nodes :]:
            self.kills.append((time.time(), f"node {node}"))
            self._nodes += 1


def wait_written(bootstrap: str) -> None:
    """Waits until the naive sink writes: its records are readable before their micro-batch ends.

    Has a time limit, since the sink may have nothing to write for a while.
    """
    with Consumer(run.NAIVE, bootstrap_servers=bootstrap) as consumer:
        places = [(run.NAIVE, partition) for partition in range(run.PARTITIONS)]

        def end() -> int:
            return sum(consumer.end_offsets(places).values())

        before, deadline = end(), time.monotonic() + WRITTEN_S
        while end() == before and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN)


def found(job: driver.Job, kind: str) -> list[int]:
    """Process ids of the job, of one kind: `task` or `executor`."""
    there = job.processes()
    if kind == "executor":
        return [pid for pid, (_, command) in there.items() if EXECUTOR in command]
    # A daemon has a process for each task.
    pythons = {pid for pid, (_, command) in there.items() if command.strip().endswith(DAEMON)}
    return [pid for pid in pythons if there[pid][0] in pythons]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/flights",
        description="A year of departures through Oncelog and Spark while nodes, tasks, executors "
        "and the driver are killed, compared with pandas.",
    )
    run.add_options(parser, DIRECTORY)
    parser.add_argument(
        "--kills",
        type=number(int, 0, 1000),
        default=DEFAULT_KILLS,
        help=f"how often to kill something (default {DEFAULT_KILLS})",
    )
    parser.add_argument(
        "--kinds",
        type=lambda text: text.split(","),
        default=list(KINDS),
        help=f"what to kill in turn (default {','.join(KINDS)})",
    )
    parser.add_argument(
        "--no-idempotence",
        action="store_true",
        help="show what the same kills do to a plain producer's table",
    )
    parser.add_argument(
        "--kafka",
        action="store_true",
        help="read and write by Spark's own connector for Kafka, fetched from Maven Central; its "
        "sink is at least once, so kill leaders only",
    )
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}")
    try:
        return flights(options)
    except (HarnessError, OncelogError, data.DataError, driver.JobError) as error:
        print(f"flights: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def flights(options: argparse.Namespace) -> int:
    nodes = options.dir / "cluster"
    fresh(nodes)
    with LocalCluster(nodes, settings={}, kafka=options.kafka) as cluster:
        print(f"three nodes: {cluster.bootstrap}")
        outcome = run.run(
            cluster.bootstrap,
            options.dir,
            options.records,
            options.seconds,
            Kills(cluster, options.records, options.kills, options.kinds, options.naive),
            idempotent=not options.no_idempotence,
            mode=options.mode,
            # Executors are processes, as in a Spark cluster.
            master="local-cluster[2,1,1024]" if "executor" in options.kinds else "local[*]",
            naive=options.naive,
            kafka=",".join(cluster.kafka_addresses.values()) if options.kafka else "",
        )
    run.report(outcome, options.dir)
    return 0 if outcome.good else 1


assert run.TOPIC == TOPIC, "what is killed are this topic's leaders"

if __name__ == "__main__":
    sys.exit(main())
