"""End-to-end run of the job: send and compute at the same time, compare, draw.

    python -m examples.flights.run --bootstrap localhost:7001

`scripts/flights` calls `run` with a cluster of its own, and kills leaders on the way. Exit code 1
if the table differs from the one that pandas makes of the same files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from examples.flights import check, data, driver, job, page, send
from oncelog import Admin, OncelogError, Producer, TopicConfig
from oncelog.types import TopicFormats

TOPIC, RESULTS, NAIVE = "departures", "delays", "delays-naive"
PARTITIONS = 3
SECONDS = 120.0
FIRST = 500  # flights that are sent before the clock starts
SHOWN = 10  # differences


class Faults:
    """Faults of the cluster during the replay. Here: none."""

    kills: list[tuple[float, str]]  # (seconds since 1970, name of the fault)

    def __init__(self) -> None:
        self.kills = []

    def begin(self, job: driver.Job) -> None:
        """Note that the job computes; no flight after the first is sent."""

    def at(self, sent: int) -> None:
        """Note that so many flights are sent."""

    def wait(self) -> None:
        """Wait until the cluster is whole again, after all flights are sent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results for the page, beside the table. Times in seconds since 1970."""

    records: int
    rows: int
    differences: list[str]
    figures: dict[str, int | float]  # the producer's
    dropped: int  # records that Spark dropped as late
    moments: list[send.Moment]
    triggers: list[dict[str, Any]]  # at, batch, rows, watermark, dropped
    kills: list[tuple[float, str]] = field(default_factory=list)
    mode: str = driver.MODES[0]
    written: int = 0  # records in the topic of results
    again: int = 0  # of them, repeats
    naive: dict[str, int] | None = None  # written, again, differences

    @property
    def good(self) -> bool:
        return not self.differences and not self.again and self.rows > 0


def run(
    bootstrap: str,
    directory: Path,
    records: int = data.TOTAL,
    seconds: float = SECONDS,
    faults: Faults | None = None,
    idempotent: bool = True,
    mode: str = driver.MODES[0],
    master: str = "local[*]",
    naive: bool = False,
    kafka: str = "",
) -> Outcome:
    """Run everything; outcome.json and index.html are in `directory` afterwards.

    kafka: the nodes' ports for Kafka's clients; the job then uses Spark's connector for Kafka.
    """
    faults = faults or Faults()
    flights = data.departures(records)
    for old in (*directory.glob("checkpoint*"), *directory.glob("tables")):
        shutil.rmtree(old)
    with Admin(bootstrap_servers=bootstrap) as admin:
        for topic in (TOPIC, *([NAIVE] if naive else [])):
            admin.create_topic(topic, PARTITIONS)
        formats = TopicFormats.KAFKA if kafka else TopicFormats.COLUMNAR
        admin.create_topic(RESULTS, PARTITIONS, config=TopicConfig(formats=formats))
    work = driver.Job(
        *("--bootstrap", bootstrap, "--dir", str(directory), "--mode", mode, "--master", master),
        *("--topic", TOPIC, "--partitions", str(PARTITIONS), "--results", RESULTS),
        *(("--naive", NAIVE) if naive else ()),
        *(("--kafka", kafka) if kafka else ()),
    )
    try:
        with Producer(
            bootstrap_servers=bootstrap, enable_idempotence=idempotent, linger_ms=20
        ) as producer:
            moments = _send(producer, flights, seconds, work, faults)
            figures = dict(producer.metrics())
        # Until all of the topic is read, and the rows completed by that are written.
        work.finish()
    finally:
        work.close()
    wanted = check.expected(flights)
    tables = directory / "tables"
    found = _found(job.archive(bootstrap, RESULTS, tables), mode, wanted)
    beside = _found(job.archive(bootstrap, NAIVE, tables), mode, wanted) if naive else None
    outcome = Outcome(
        records=len(flights),
        rows=len(found.rows),
        differences=found.differences,
        figures=figures,
        dropped=sum(one["dropped"] for one in work.triggers),
        moments=moments,
        triggers=work.triggers,
        kills=faults.kills,
        mode=mode,
        written=found.written,
        again=found.again,
        naive=None if beside is None else beside.counts(),
    )
    page.write(found.rows, outcome, directory)
    (directory / "outcome.json").write_text(json.dumps(asdict(outcome)))
    return outcome


@dataclass(frozen=True, slots=True)
class _Found:
    """Contents of a table of results: its last rows, and its faults."""

    rows: Any
    written: int
    again: int
    differences: list[str]

    def counts(self) -> dict[str, int]:
        counted = {"written": self.written, "again": self.again}
        return {**counted, "differences": len(self.differences)}


def _found(table: Path, mode: str, wanted: Any) -> _Found:
    written = job.results(table)
    last, again = check.last_of_each(written)
    # In append mode there is no second row of an hour, so a surplus row is a difference.
    rows = last if mode == "update" else written
    return _Found(rows, len(written), again, check.differences(rows, wanted))


def _send(
    producer: Producer, flights: Any, seconds: float, work: driver.Job, faults: Faults
) -> list[send.Moment]:
    # Spark's first micro-batch takes seconds, which are weeks here: the clock waits for it.
    send.all_at_once(producer, TOPIC, flights[:FIRST])
    work.wait_computed()
    faults.begin(work)
    moments = []
    for moment in send.replay(producer, TOPIC, flights[FIRST:], seconds):
        moments.append(moment)
        faults.at(FIRST + moment.sent)
    faults.wait()
    send.end_of_stream(producer, TOPIC, PARTITIONS, flights)
    producer.flush()
    return moments


def _killed(kills: list[tuple[float, str]]) -> str:
    counts = Counter("leader" if what.startswith("node") else what for _, what in kills)
    return ", ".join(f"{count} x {what}" for what, count in counts.items()) or "nothing"


def report(outcome: Outcome, directory: Path) -> None:
    """Print the results."""
    figures = outcome.figures
    print(
        f"{outcome.records:,} flights; killed: {_killed(outcome.kills)}; "
        f"{figures['batches_retried']:,} batches sent again, "
        f"{figures['duplicates']:,} of them were stored already"
    )
    print(
        f"{outcome.rows:,} airport-hours, {len(outcome.differences):,} differences from pandas; "
        f"Spark dropped {outcome.dropped:,} records as late"
    )
    print(f"{outcome.mode} mode: {outcome.written:,} rows written, {outcome.again:,} of them again")
    if outcome.naive is not None:
        print(
            "the naive sink beside it: {written:,} rows written, {again:,} of them again, "
            "{differences:,} differences".format(**outcome.naive)
        )
    for text in outcome.differences[:SHOWN]:
        print(f"  {text}")
    print(f"to look at: {directory / 'index.html'}; to query: {directory / 'tables' / RESULTS}")


def add_options(parser: argparse.ArgumentParser, directory: Path) -> None:
    """Add the options that this program and scripts/flights have in common."""

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
        "--mode", choices=driver.MODES, default=driver.MODES[0],
        help="Spark's output mode: a row when its hour is over, or at each change of it",
    )  # fmt: skip
    parser.add_argument(
        "--naive", action="store_true", help="beside it the same with a plain producer in each task"
    )
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
        outcome = run(
            options.bootstrap, options.dir, options.records, options.seconds,
            mode=options.mode, naive=options.naive,
        )  # fmt: skip
    except (OncelogError, data.DataError, driver.JobError) as error:
        print(f"flights: {error}", file=sys.stderr)
        return 1
    report(outcome, options.dir)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
