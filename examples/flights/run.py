"""The job from end to end: send and compute at the same time, compare, draw.

    python -m examples.flights.run --bootstrap localhost:7001

`scripts/flights` calls `run` with a cluster of its own, and kills leaders on the way. Exit
code 1 if the table differs from the one that pandas makes of the same files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.flights import check, data, job, page, send
from oncelog import Admin, OncelogError, Producer

TOPIC, RESULTS = "departures", "delays"
PARTITIONS = 3
SECONDS = 120.0
FIRST = 500  # flights that are sent before the clock starts
SHOWN = 10  # differences


class Faults:
    """What happens to the cluster during the replay. Here: nothing."""

    kills: list[tuple[float, int]]  # (seconds since 1970, node)

    def __init__(self) -> None:
        self.kills = []

    def at(self, sent: int) -> None:
        """So many flights are sent."""

    def wait(self) -> None:
        """All flights are sent: wait until the cluster is whole again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the page shows beside the table. Times in seconds since 1970."""

    records: int
    rows: int
    differences: list[str]
    figures: dict[str, int | float]  # the producer's
    dropped: int  # records that Spark took for late
    moments: list[send.Moment]
    triggers: list[dict[str, Any]]  # at, rows, watermark
    kills: list[tuple[float, int]] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.differences and self.rows > 0


def run(
    bootstrap: str,
    directory: Path,
    records: int = data.TOTAL,
    seconds: float = SECONDS,
    faults: Faults | None = None,
    idempotent: bool = True,
) -> Outcome:
    """Do all of it; outcome.json and index.html are in `directory` afterwards."""
    faults = faults or Faults()
    flights = data.departures(records)
    shutil.rmtree(directory / "checkpoint", ignore_errors=True)
    # Before anything of gRPC: PySpark forks to start its JVM, and a process that has gRPC's
    # threads may not come out of a fork whole.
    spark = job.session()
    try:
        with Admin(bootstrap) as admin:
            for topic in (TOPIC, RESULTS):
                admin.create_topic(topic, PARTITIONS)
        stream = job.departures(spark, bootstrap, TOPIC, PARTITIONS)
        rows = job.delays(job.with_tables(spark, stream))
        query = job.start(rows, directory, bootstrap, RESULTS)
        with Producer(bootstrap, enable_idempotence=idempotent, linger_ms=20) as producer:
            moments = _send(producer, flights, seconds, query, faults)
            figures = dict(producer.metrics())
        # Until all of the topic is read, and what became complete by that is written.
        query.processAllAvailable()
        query.stop()
        progress = query.recentProgress
        found = job.results(bootstrap, RESULTS)
    finally:
        spark.stop()
    outcome = Outcome(
        records=len(flights),
        rows=len(found),
        differences=check.differences(found, check.expected(flights)),
        figures=figures,
        dropped=sum(op.numRowsDroppedByWatermark for p in progress for op in p.stateOperators),
        moments=moments,
        triggers=[_trigger(one) for one in progress],
        kills=faults.kills,
    )
    page.write(found, outcome, directory)
    (directory / "outcome.json").write_text(json.dumps(asdict(outcome)))
    return outcome


def _send(
    producer: Producer, flights: Any, seconds: float, query: Any, faults: Faults
) -> list[send.Moment]:
    # Spark's first micro-batch takes seconds, which are weeks here: the clock waits for it.
    send.all_at_once(producer, TOPIC, flights[:FIRST])
    query.processAllAvailable()
    moments = []
    for moment in send.replay(producer, TOPIC, flights[FIRST:], seconds):
        moments.append(moment)
        faults.at(FIRST + moment.sent)
    faults.wait()
    send.end_of_stream(producer, TOPIC, PARTITIONS, flights)
    producer.flush()
    return moments


def _trigger(progress: Any) -> dict[str, Any]:
    """When one of Spark's micro-batches was done, how much it read, where time stood."""
    began = datetime.fromisoformat(progress.timestamp).timestamp()
    return {
        "at": began + progress.batchDuration / 1000,
        "rows": progress.numInputRows,
        "watermark": progress.eventTime.get("watermark", ""),
    }


def report(outcome: Outcome, directory: Path) -> None:
    """Print what was found."""
    figures = outcome.figures
    print(
        f"{outcome.records:,} flights, {len(outcome.kills)} leaders killed; "
        f"{figures['batches_retried']:,} batches sent again, "
        f"{figures['duplicates']:,} of them were stored already"
    )
    print(
        f"{outcome.rows:,} airport-hours, {len(outcome.differences):,} differences from pandas; "
        f"Spark dropped {outcome.dropped:,} records as late"
    )
    for text in outcome.differences[:SHOWN]:
        print(f"  {text}")
    print(f"to look at: {directory / 'index.html'}")


def add_options(parser: argparse.ArgumentParser, directory: Path) -> None:
    """The options that this program and scripts/flights have in common."""

    def records(text: str) -> int:
        number = int(text)
        if not 2 * FIRST <= number <= data.TOTAL:
            raise argparse.ArgumentTypeError(f"{number} is not in {2 * FIRST}..{data.TOTAL}")
        return number

    parser.add_argument(
        "--records", type=records, default=data.TOTAL,
        help=f"how many of the flights to send (default all, {data.TOTAL:,})",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=SECONDS,
        help=f"how long sending them takes (default {SECONDS:.0f}; 0: as fast as it can)",
    )  # fmt: skip
    parser.add_argument(
        "--dir", type=Path, default=directory, help="where the results go (default %(default)s)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="examples.flights.run",
        description="A year of departures through a topic and Spark, compared with pandas.",
    )
    parser.add_argument("--bootstrap", required=True, help="a node's host:port, or several")
    add_options(parser, Path("flights"))
    options = parser.parse_args()
    try:
        outcome = run(options.bootstrap, options.dir, options.records, options.seconds)
    except (OncelogError, data.DataError) as error:
        print(f"flights: {error}", file=sys.stderr)
        return 1
    report(outcome, options.dir)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
