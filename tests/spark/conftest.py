"""One Spark session and one cluster for all tests of this folder: both are slow to start.

A test that injects faults takes `make_cluster` for a cluster of its own; one that needs a
driver of its own (to kill it) starts a program with `spark_builder`'s settings. Where
PySpark is not installed nothing here is collected.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from tests.integration.conftest import (
    STEADY,
    _running,
    make_cluster,
    pytest_runtest_makereport,
    topic,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["make_cluster", "pytest_runtest_makereport", "topic"]

ROOT = Path(__file__).resolve().parent.parent.parent
# Retention is quick, so that a test can have records deleted.
SETTINGS = {**STEADY, "retention_check_ms": 100, "checkpoint_entries": 20}
# Where nobody waits for a new leader, nodes need not hear of theirs so often.
CALM = {**SETTINGS, "election_timeout_ms": 1500, "heartbeat_ms": 150}
Read = Callable[..., "DataFrame"]
collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["test_*.py"]


def spark_builder(directory: Path, master: str = "local[2,2]") -> Any:
    """A SparkSession.Builder with small settings, Java found, workers set up.

    `local[N,F]`: N tasks at a time, F attempts for each of them.
    """
    from pyspark.sql import SparkSession

    from oncelog.spark import ensure_java

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Workers import functions of test modules by name.
    path = os.environ.get("PYTHONPATH", "")
    if str(ROOT) not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [path])])
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        # A test's code is over before the best machine code for it would be compiled.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        # Spark must not have read everything before a test holds up the job.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        # A Python worker may keep running between jobs, as in production.
        "spark.python.worker.reuse": "true",
        "spark.sql.streaming.stopTimeout": "60s",
    }
    builder = SparkSession.builder.master(master).appName("oncelog tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share; two tasks at a time, two attempts each."""
    session = spark_builder(tmp_path_factory.mktemp("spark")).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that nobody harms. Each test has topics of its own in it."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), settings=CALM, kafka=True) as made:
        _running.append(made)
        yield made
        _running.remove(made)


@pytest.fixture(scope="session")
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as made:
        yield made


@pytest.fixture(scope="session")
def producer(cluster: LocalCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as made:
        yield made


def _frame(reader: Any, bootstrap: str, topic: str | None, options: dict[str, object]) -> DataFrame:
    reader = reader.format("oncelog").option("bootstrap.servers", bootstrap)
    if topic is not None:
        reader = reader.option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.fixture
def read(spark: SparkSession, cluster: LocalCluster) -> Read:
    """`read(topic, option=value, ...)`: a batch query over the shared cluster."""

    def make(topic: str | None, bootstrap: str = cluster.bootstrap, **options: object) -> DataFrame:
        return _frame(spark.read, bootstrap, topic, options)

    return make


@pytest.fixture
def read_stream(spark: SparkSession, cluster: LocalCluster) -> Read:
    """The same for a streaming query, without a sink."""

    def make(topic: str | None, bootstrap: str = cluster.bootstrap, **options: object) -> DataFrame:
        return _frame(spark.readStream, bootstrap, topic, options)

    return make
