"""examples/lakehouse: log -> Delta table -> log. Each fault is shown on plain appends first."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from tests.spark.copies import TIMEOUT_S, contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pa = pytest.importorskip("pyarrow")
deltalake = pytest.importorskip("deltalake")

from examples import lakehouse  # noqa: E402

RECORDS = 60


def send(producer: Producer, topic: str, numbers: range) -> None:
    for n in numbers:
        producer.send(topic, b"%d" % n, b"key %d" % (n % 5), partition=n % 2)
    producer.flush()


@pytest.fixture
def filled(admin: Admin, producer: Producer, topic: str) -> str:
    admin.create_topic(topic, 2, 3)
    send(producer, topic, range(RECORDS))
    return topic


def numbers(path: Path) -> list[int]:
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    return sorted(int(value) for value in rows["value"].to_pylist())


def forget_commit(checkpoint: Path) -> None:
    """Puts the state back to a driver's death between the table's commit and Spark's."""
    for path in (checkpoint / "commits").iterdir():
        path.unlink()


class Plain:
    """The sink that people write first: each batch is appended."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, path: str, topic: str, partitions: int, rows: Any) -> int:
        deltalake.write_deltalake(str(self.path), rows, mode="append")
        return int(rows.num_rows)


@pytest.mark.parametrize("fault", ["commit", "checkpoint"])
def test_what_is_in_the_log_is_in_the_table_once(
    fault: str,
    spark: SparkSession,
    cluster: LocalCluster,
    producer: Producer,
    filled: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies behind the table's commit, or the checkpoint is lost."""

    def run(way: str) -> None:
        query = lakehouse.to_table(
            spark, cluster.bootstrap, filled, str(tmp_path / way), str(tmp_path / f"{way}-notes")
        )
        assert query.awaitTermination(int(TIMEOUT_S))

    def twice(way: str) -> None:
        run(way)
        notes = tmp_path / f"{way}-notes"
        forget_commit(notes) if fault == "commit" else shutil.rmtree(notes)
        run(way)

    with monkeypatch.context() as patched:
        patched.setattr(lakehouse, "append", Plain(tmp_path / "plain").append)
        twice("unused")
    assert len(numbers(tmp_path / "plain")) == 2 * RECORDS
    twice("table")
    assert numbers(tmp_path / "table") == list(range(RECORDS))
    send(producer, filled, range(RECORDS, RECORDS + 10))
    run("table")
    assert numbers(tmp_path / "table") == list(range(RECORDS + 10))


def rows_of(partition: int, offsets: range) -> Any:
    columns = {
        "key": [b"k"] * len(offsets),
        "value": [b"%d" % n for n in offsets],
        "partition": [partition] * len(offsets),
        "offset": list(offsets),
        "timestamp": [0] * len(offsets),
    }
    return pa.table(columns, schema=lakehouse.SCHEMA)


def test_a_gap_and_a_second_writer_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "table")
    assert lakehouse.append(path, "t", 1, rows_of(0, range(10))) == 10
    assert lakehouse.append(path, "t", 1, rows_of(0, range(5, 12))) == 2
    with pytest.raises(lakehouse.LakehouseError, match="do not follow the table"):
        lakehouse.append(path, "t", 1, rows_of(0, range(13, 15)))
    assert numbers(tmp_path / "table") == list(range(12))

    # Both have read the same version: the second may not commit.
    late = lakehouse.opened(path)
    assert lakehouse.append(path, "t", 1, rows_of(0, range(12, 20))) == 8
    monkeypatch.setattr(lakehouse, "opened", lambda path: late)
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        lakehouse.append(path, "t", 1, rows_of(0, range(12, 20)))
    assert numbers(tmp_path / "table") == list(range(20))


def test_what_is_in_the_table_is_in_the_log_once(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """The job dies before its second version, and behind the first: it is called again."""
    path, sink = str(tmp_path / "table"), f"{topic}-sink"
    for number in range(3):
        lakehouse.append(path, "t", 1, rows_of(0, range(number * 10, number * 10 + 10)))
    deltalake.DeltaTable(path).optimize.compact()
    admin.create_topic(topic, 2, 3)

    def dies(version: int) -> None:
        if version == 2:
            raise InterruptedError("the driver is killed")

    with pytest.raises(InterruptedError):
        lakehouse.to_log(spark, cluster.bootstrap, path, topic, sink, before=dies)
    assert lakehouse.to_log(spark, cluster.bootstrap, path, topic, sink) == [2, 3]
    assert lakehouse.to_log(spark, cluster.bootstrap, path, topic, sink) == []
    stored = contents(cluster.bootstrap, topic)
    assert sorted(int(row[0] or b"") for rows in stored.values() for row in rows) == list(range(30))
    deltalake.DeltaTable(path).delete("offset = 3")
    with pytest.raises(lakehouse.LakehouseError, match="changed rows"):
        lakehouse.to_log(spark, cluster.bootstrap, path, topic, sink)
