"""examples/lakehouse: each version of a Delta table into a topic, each row once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin
from tests.spark.copies import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pa = pytest.importorskip("pyarrow")
deltalake = pytest.importorskip("deltalake")

from examples import lakehouse  # noqa: E402


def test_what_is_in_the_table_is_in_the_log_once(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """The job dies before its second version, and behind the first: it is called again."""
    path, sink = str(tmp_path / "table"), f"{topic}-sink"
    moment = pa.scalar(0, pa.timestamp("us", tz="UTC"))
    for first in range(0, 30, 10):
        numbers = [b"%d" % n for n in range(first, first + 10)]
        rows = pa.table(
            {
                "key": [b"k"] * 10,
                "value": numbers,
                "timestamp": pa.repeat(moment, 10),
                "number": list(range(first, first + 10)),
            }
        )
        deltalake.write_deltalake(path, rows, mode="append")
    deltalake.DeltaTable(path).optimize.compact()
    admin.create_topic(topic, 2, 3)

    def dies(version: int) -> None:
        if version == 1:
            raise InterruptedError("the driver is killed")

    with pytest.raises(InterruptedError):
        lakehouse.to_log(spark, cluster.bootstrap, path, topic, sink, before=dies)
    assert lakehouse.to_log(spark, cluster.bootstrap, path, topic, sink) == [1, 2]
    assert lakehouse.to_log(spark, cluster.bootstrap, path, topic, sink) == []
    stored = contents(cluster.bootstrap, topic)
    assert sorted(int(row[0] or b"") for rows in stored.values() for row in rows) == list(range(30))
    deltalake.DeltaTable(path).delete("number = 3")
    with pytest.raises(lakehouse.LakehouseError, match="changed rows"):
        lakehouse.to_log(spark, cluster.bootstrap, path, topic, sink)
