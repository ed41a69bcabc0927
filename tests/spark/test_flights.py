"""The job in examples/flights: its table is that of pandas, at any fault of the nodes."""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from examples.flights import check, data, job, send
from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT = 280


def flights(directory: Path, records: int, *words: str, timeout: int = TIMEOUT) -> Any:
    """Outcome of `scripts/flights`; its table is that of pandas, each row there once."""
    command = [*(sys.executable, "-m", "harness.flights", "--dir", str(directory)), *words]
    done = subprocess.run(
        [*command, "--records", str(records)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads((directory / "outcome.json").read_text())
    assert (outcome["differences"], outcome["again"], outcome["dropped"]) == ([], 0, 0)
    assert outcome["records"] == records
    return outcome


def test_the_whole_job_while_a_leader_is_killed(tmp_path: Path) -> None:
    # As long as a few micro-batches take on a busy machine, where one took 11 s.
    words = ("--seconds", "30", "--kills", "1", "--kinds", "leader")
    outcome = flights(tmp_path, 20_000, *words)
    assert len(outcome["kills"]) == 1
    # Hours were written while the stream went on, not only at its end.
    assert sum(one["rows"] > 0 for one in outcome["triggers"]) > 2
    assert list((tmp_path / "tables" / "delays").rglob("*.parquet"))
    for picture in ("delays.png", "causes.png", "run.png"):
        assert picture in (tmp_path / "index.html").read_text()
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "update"])
def test_the_whole_job_while_everything_is_killed(mode: str, tmp_path: Path) -> None:
    """Kills in turn the leader, a task, an executor, the driver. The naive sink beside it is
    wrong.
    """
    faulthandler.cancel_dump_traceback_later()  # the program may take longer, and has a limit
    words = ("--seconds", "60", "--kills", "4", "--mode", mode, "--naive")
    outcome = flights(tmp_path, 40_000, *words, timeout=900)
    assert {"task", "executor", "driver"} <= {what for _, what in outcome["kills"]}
    assert outcome["naive"]["again"] > 0


@pytest.mark.parametrize("policy", ["min", "max"])
def test_a_partition_that_stalls_is_not_late(
    policy: str,
    spark: SparkSession,
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    topic: str,
    tmp_path: Path,
) -> None:
    """One partition is read days ahead of the second, as when the second has no leader.

    With the fastest partition's watermark in place of the slowest one's, flights are lost.
    """
    flights = data.departures(2000)
    ahead = flights["origin"] == "EWR"
    admin.create_topic(topic, 2, 3)
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", policy)
    stream = job.departures(spark, cluster.bootstrap, topic, 2)
    results = f"{topic}-results"
    admin.create_topic(results, 2, 3)
    rows = job.delays(job.with_tables(spark, stream))
    query = job.start(rows, tmp_path, cluster.bootstrap, results)
    try:
        for partition, part in enumerate((flights[ahead], flights[~ahead])):
            for flight in part.itertuples(index=False):
                _, value = send.record(flight)
                at = int(flight.scheduled.timestamp() * 1000)
                producer.send(topic, value, partition=partition, timestamp_ms=at)
            producer.flush()
            query.processAllAvailable()
        send.end_of_stream(producer, topic, 2, flights)
        producer.flush()
        query.processAllAvailable()
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.multipleWatermarkPolicy")
    found = job.results(job.archive(cluster.bootstrap, results, tmp_path / "tables"))
    wrong = check.differences(found, check.expected(flights))
    if policy == "min":
        assert wrong == []
    else:
        assert any("JFK" in text and "missing" in text for text in wrong)


def test_the_comparison_finds_one_wrong_record_and_one_wrong_digit() -> None:
    flights = data.departures(2000)
    table = check.expected(flights)
    hour = f"{flights['origin'][700]} {flights['scheduled'][700].floor('h')}"

    assert check.differences(table.sample(frac=1), table) == []
    twice = check.expected(pd.concat([flights, flights.iloc[[700]]]))
    assert f"{hour}: flights is" in "\n".join(check.differences(twice, table))
    lost = check.expected(flights.drop(index=700))
    assert f"{hour}: flights is" in "\n".join(check.differences(lost, table))

    other = table.copy()
    other.loc[5, "mean_delay"] += 1e-7
    assert len(check.differences(other, table)) == 1
    assert check.differences(table.drop(index=5), table)[0].endswith("missing")
    assert check.differences(pd.concat([table, table[:1]]), table)[0].endswith("twice")
    assert check.differences(table.drop(columns="wind"), table) == ["column wind"]


def test_rows_of_update_mode_that_come_again_are_found() -> None:
    table = check.expected(data.departures(2000))
    earlier = table.assign(flights=table["flights"] - 1)
    last, again = check.last_of_each(pd.concat([earlier, table], ignore_index=True))
    assert check.differences(last, table) == []
    assert again == 0
    twice = pd.concat([earlier, table, table[:3]], ignore_index=True)
    assert check.last_of_each(twice)[1] == 3
