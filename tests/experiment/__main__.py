"""scripts/duplicates-experiment: four runs, one table.

A client sends integers while its TCP connections and the brokers are killed, with linger 0
and 100 ms, without and with idempotence, each run on a fresh cluster of three nodes. The
experiment that this repeats had 6,502 duplicates among 6,723,843 confirmed messages
without idempotence and none with it.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.arguments import number
from harness.local_cluster import LocalCluster
from harness.node_process import ROOT, HarnessError
from oncelog import OncelogError
from tests.experiment.plan import CLIENTS, ONCELOG, PUBLISHED_RECORDS, Outcome, Plan
from tests.experiment.report import table, write
from tests.experiment.run import run
from tests.experiment.verify import VerifyError

OUT = ROOT / "data" / "duplicates-experiment"
LINGERS = (0, 100)
TABLE_WIDTH = 156
MAX_RECORDS = 1_000_000_000


def experiment(plans: Sequence[Plan], folder: Path, console: Console, *, keep: bool) -> int:
    """Runs all plans; returns the exit code."""
    outcomes = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as bars:
        for plan in plans:
            bar = bars.add_task(plan.name, total=plan.records)

            def show(count: int, bar: Any = bar) -> None:
                bars.update(bar, completed=count)

            outcomes.append(_on_fresh_cluster(plan, folder / "cluster", show, keep=keep))
    # A wrapped table is unreadable: without room, lines are just long.
    Console(width=max(console.width, TABLE_WIDTH)).print(table(outcomes))
    for outcome in outcomes:
        for text in outcome.errors:
            console.print(f"  {outcome.plan.name}: {text}", highlight=False, markup=False)
    for path in write(outcomes, folder):
        console.print(str(path), highlight=False)
    faults = [fault for outcome in outcomes for fault in outcome.faults()]
    for fault in faults:
        console.print(fault, style="bold red", highlight=False)
    return 1 if faults else 0


def _on_fresh_cluster(
    plan: Plan, directory: Path, progress: Callable[[int], None], *, keep: bool
) -> Outcome:
    if directory.exists():
        shutil.rmtree(directory)
    is_kafka = plan.client != ONCELOG
    with LocalCluster(directory, settings={}, proxied=True, kafka=is_kafka) as cluster:
        outcome = run(cluster, plan, progress)
    if not keep:
        shutil.rmtree(directory)
    return outcome


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/duplicates-experiment",
        description="Integers while connections and brokers are killed: what comes twice.",
    )

    def option(name: str, text: str, **more: Any) -> None:
        parser.add_argument(name, help=text, **more)

    option(
        "--records",
        f"how many in each run (default {PUBLISHED_RECORDS:,})",
        type=number(int, 1, MAX_RECORDS),
        default=PUBLISHED_RECORDS,
    )
    option(
        "--seconds",
        "spread them over at least so long (default 60), so that few records meet kills, too",
        type=number(float, 1, 86_400),
        default=60.0,
    )
    option(
        "--connections-every",
        "seconds between kills of all client connections (default 2)",
        type=number(float, 0.1, 3600),
        default=2.0,
    )
    option(
        "--brokers-every",
        "seconds between kills of a broker (default 20)",
        type=number(float, 1, 3600),
        default=20.0,
    )
    option(
        "--linger",
        "only this linger time in ms (default: 0 and 100)",
        type=number(int, 0, 10_000),
        action="append",
    )
    option(
        "--lose-acknowledgements",
        "hold back acknowledgements before each kill of connections: duplicates for sure",
        action="store_true",
    )
    option(
        "--client",
        "whose producer sends: ours, or librdkafka's over Kafka's protocol (default oncelog)",
        choices=CLIENTS,
        default=ONCELOG,
    )
    option("--seed", "draws the brokers to kill (default 1)", type=number(int, 0, 2**31), default=1)
    option(
        "--out", f"folder of the results (default {OUT.relative_to(ROOT)})", type=Path, default=OUT
    )
    option("--keep", "leave the last run's data and logs in OUT/cluster", action="store_true")
    return parser


def main() -> int:
    options = _parser().parse_args()
    plans = [
        Plan(
            linger_ms=linger,
            idempotent=idempotent,
            records=options.records,
            seconds=options.seconds,
            connections_every=options.connections_every,
            brokers_every=options.brokers_every,
            lose_acknowledgements=options.lose_acknowledgements,
            seed=options.seed,
            client=options.client,
        )
        for linger in options.linger or LINGERS
        for idempotent in (False, True)
    ]
    console = Console(soft_wrap=True)
    # So that nodes do not outlive a run that is ended from outside.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return experiment(plans, options.out, console, keep=options.keep)
    except (HarnessError, VerifyError, OncelogError) as error:
        text = f"duplicates-experiment: {error}"
        console.print(text, style="red", highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
