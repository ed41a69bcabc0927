"""Mirrors with real PySpark over real nodes: copies, restarts, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog.errors import ConfigError, FencedError
from oncelog.mirror import Mirror
from oncelog.spark import mirror
from tests.integration.client.test_client_programs import Program
from tests.integration.conftest import MakeCluster
from tests.spark.copies import (
    TIMEOUT_S,
    contents,
    put,
    put_large,
    sent_on_unseen,
    wait_stored,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ALL_THAT_IS_THERE = {"availableNow": True}
Copy = Callable[..., "StreamingQuery"]


@pytest.fixture
def copy(spark: SparkSession, cluster: LocalCluster, topic: str) -> Iterator[Copy]:
    """`copy(**arguments)`: mirror `topic` into `topic`-copy; stopped at the end."""
    started: list[StreamingQuery] = []

    def start(**arguments: Any) -> StreamingQuery:
        given = {
            "source": topic,
            "target": f"{topic}-copy",
            "bootstrap_servers": cluster.bootstrap,
            **arguments,
        }
        query = mirror(spark, **given)
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()


def finish(query: StreamingQuery) -> int:
    """Wait for the end; how many rows Spark has seen: without a transformation, batches."""
    assert query.awaitTermination(int(TIMEOUT_S)), "the query ends"
    return sum(progress.numInputRows for progress in query.recentProgress)


def failure(query: StreamingQuery) -> str:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        finish(query)
    return str(caught.value)


# --- copies --------------------------------------------------------------------------


def test_a_copy_is_identical_and_goes_on(
    spark: SparkSession, admin: Admin, cluster: LocalCluster, producer: Producer,
    topic: str, copy: Copy,
) -> None:  # fmt: skip
    """Each run has a checkpoint of its own: only the target knows the copied records."""
    admin.create_topic(topic, 3, 3)
    there = cluster.bootstrap
    limit = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert finish(copy(trigger=ALL_THAT_IS_THERE)) == 0
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for numbers in (range(300), range(300, 420)):
            put(producer, topic, numbers, partitions=2)  # one stays empty
            # A limit makes several micro-batches.
            assert finish(copy(trigger=ALL_THAT_IS_THERE, max_offsets_per_trigger=100)) > 0
            assert contents(there, f"{topic}-copy") == contents(there, topic)
        assert finish(copy(trigger=ALL_THAT_IS_THERE)) == 0
        # As rows, with a transformation, the copy is the same.
        finish(copy(target=f"{topic}-rows", trigger=ALL_THAT_IS_THERE, transform=lambda df: df))
        assert contents(there, f"{topic}-rows") == contents(there, topic)
        assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == limit
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_large_batches_are_sent_on_as_they_are_stored(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy
) -> None:
    admin.create_topic(topic, 1, 3)
    put(producer, topic, range(30), partitions=1)
    for first in range(30, 230, 50):
        put_large(producer, topic, 0, range(first, first + 50))
    put(producer, topic, range(230, 260), partitions=1)
    there = cluster.bootstrap
    finish(copy(trigger=ALL_THAT_IS_THERE))
    assert contents(there, f"{topic}-copy") == contents(there, topic)
    assert sent_on_unseen(there, f"{topic}-copy", 0) == sent_on_unseen(there, topic, 0) == 4
    finish(copy(target=f"{topic}-rows", trigger=ALL_THAT_IS_THERE, transform=lambda df: df))
    finish(copy(target=f"{topic}-lz4", trigger=ALL_THAT_IS_THERE, compression_type="lz4"))
    for other in ("rows", "lz4"):
        assert contents(there, f"{topic}-{other}") == contents(there, topic)
        assert sent_on_unseen(there, f"{topic}-{other}", 0) == 0


def test_a_stream_is_followed_across_clusters(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy,
    make_cluster: MakeCluster,
) -> None:  # fmt: skip
    target = make_cluster(1, cluster_id="target")
    admin.create_topic(topic, 2, 3)
    put(producer, topic, range(100))
    arguments = {"target": topic, "target_bootstrap_servers": target.bootstrap}
    query = copy(**arguments, compression_type="zstd")
    wait_stored(target.bootstrap, topic, 0, 50)
    put(producer, topic, range(100, 300))
    wait_stored(target.bootstrap, topic, 1, 150)
    query.stop()
    put(producer, topic, range(300, 320))
    finish(copy(**arguments, trigger=ALL_THAT_IS_THERE))
    assert contents(target.bootstrap, topic) == contents(cluster.bootstrap, topic)


def test_a_filter_and_a_map(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy
) -> None:
    from pyspark.sql import functions as f

    def transform(df: DataFrame) -> DataFrame:
        few = df.alias("d").where("offset % 10 = 3 and offset < 40").hint("broadcast")
        return few.withColumn("key", f.expr("cast(key as string)")).withColumn(
            "value", f.udf(lambda value: None if value is None else value[::-1], "binary")("value")
        )

    there, target = cluster.bootstrap, f"{topic}-copy"
    admin.create_topic(topic, 2, 3)
    read = []
    for numbers in (range(60), range(60, 130), range(130, 140)):
        put(producer, topic, numbers)
        read.append(
            finish(copy(transform=transform, trigger=ALL_THAT_IS_THERE, max_offsets_per_trigger=40))
        )
    wanted = {
        p: [
            (None if value is None else value[::-1], *rest)
            for offset, (value, *rest) in enumerate(records)
            if offset % 10 == 3 and offset < 40
        ]
        for p, records in contents(there, topic).items()
    }
    assert contents(there, target) == wanted
    # The next run reads again only the records that were dropped at the end.
    assert read == [60, 2 * 6 + 70, 2 * 31 + 10]
    (name,) = (one for one in admin.list_producer_names() if one.name.endswith(f"{target}/0"))
    (state,) = admin.describe_producers(target, 0, name.producer_id)
    assert state.last_sequence == 33


def test_rows_from_python_code_are_checked(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy
) -> None:
    admin.create_topic(topic, 2, 3)
    put(producer, topic, range(40))

    def code(change: Callable[[Any], Any]) -> Callable[[DataFrame], DataFrame]:
        return lambda df: df.mapInArrow(lambda rows: map(change, rows), df.schema)

    reverse = code(lambda rows: rows.take(list(range(rows.num_rows))[::-1]))
    assert "the offsets of its rows do not rise" in failure(copy(transform=reverse))
    half = copy(transform=code(lambda rows: rows.slice(0, 10)), trigger=ALL_THAT_IS_THERE)
    finish(half)
    wanted = {p: records[:10] for p, records in contents(cluster.bootstrap, topic).items()}
    assert contents(cluster.bootstrap, f"{topic}-copy") == wanted


# --- where it goes on ----------------------------------------------------------------


def test_no_checkpoint_is_believed(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy, tmp_path: Path
) -> None:
    """Tries an old checkpoint, and one of another copy that is ahead of this one."""
    there = cluster.bootstrap
    admin.create_topic(topic, 2, 3)
    put(producer, topic, range(50))
    notes = {"checkpoint": str(tmp_path / "notes"), "trigger": ALL_THAT_IS_THERE}
    finish(copy(**notes))
    put(producer, topic, range(50, 90))
    finish(copy(trigger=ALL_THAT_IS_THERE))
    put(producer, topic, range(90, 100))
    finish(copy(**notes))
    assert contents(there, f"{topic}-copy") == contents(there, topic)
    # Spark sees no reason to run a micro-batch until there is something new.
    assert finish(copy(**notes, target=f"{topic}-other")) == 0
    put(producer, topic, range(100, 101))
    finish(copy(**notes, target=f"{topic}-other"))
    assert contents(there, f"{topic}-other") == contents(there, topic)


def test_both_engines_take_over_from_each_other(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy
) -> None:
    there, target = cluster.bootstrap, f"{topic}-copy"
    admin.create_topic(topic, 2, 3)

    def plainly() -> int:
        with Mirror(topic, target, bootstrap_servers=there) as one:
            return sum(progress.copied for progress in one.run(exit_at_end=True).values())

    put(producer, topic, range(20))
    assert plainly() == 20
    put(producer, topic, range(20, 50))
    finish(copy(trigger=ALL_THAT_IS_THERE))
    put(producer, topic, range(50, 60))
    assert plainly() == 10

    def taken_over() -> None:
        with Mirror(topic, target, bootstrap_servers=there) as one:
            put(producer, topic, range(60, 70))
            finish(copy(trigger=ALL_THAT_IS_THERE))
            put(producer, topic, range(70, 80))
            one.run(exit_at_end=True)

    with pytest.raises(FencedError):
        taken_over()
    assert plainly() == 10
    assert contents(there, target) == contents(there, topic)


def test_the_later_of_two_runs_goes_on(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy
) -> None:
    there, target = cluster.bootstrap, f"{topic}-copy"
    admin.create_topic(topic, 2, 3)
    put(producer, topic, range(20))
    first = copy()
    wait_stored(there, target, 1, 10)
    second = copy()
    put(producer, topic, range(20, 60))
    text = failure(first)
    assert "was started again elsewhere" in text or "FencedError" in text
    wait_stored(there, target, 1, 30)
    put(producer, topic, range(60, 80))
    wait_stored(there, target, 1, 40)
    wait_stored(there, target, 0, 40)
    assert second.isActive
    assert contents(there, target) == contents(there, topic)


# --- refusals ------------------------------------------------------------------------


def shuffles() -> Mapping[str, tuple[Callable[[DataFrame], Any], str]]:
    from pyspark.sql import functions as f

    return {
        "repartition": (lambda df: df.repartition(2), "Repartition: repartition and coalesce"),
        "coalesce": (lambda df: df.coalesce(1), "Repartition: repartition and coalesce"),
        "by column": (lambda df: df.repartition("key"), "RepartitionByExpression: repartition by"),
        "distinct": (lambda df: df.distinct(), "Deduplicate: dropDuplicates"),
        "dropDuplicates": (lambda df: df.dropDuplicates(["key"]), "Deduplicate: dropDuplicates"),
        "groupBy": (lambda df: df.groupBy("key").count(), "Aggregate: groupBy"),
        "orderBy": (lambda df: df.orderBy("offset"), "Sort: orderBy and sort"),
        "limit": (lambda df: df.limit(5), "GlobalLimit: limit moves rows"),
        "join": (lambda df: df.join(df.select("key"), "key"), "Join: a join moves rows"),
        "union": (lambda df: df.union(df), "Union: union brings rows"),
        "explode": (
            lambda df: df.withColumn("value", f.explode(f.array("value", "key"))),
            "Generate: explode makes several records",
        ),
        "sample": (lambda df: df.sample(0.5), "Sample: it is not known to keep each row"),
        "subquery": (
            lambda df: df.where("offset in (select id from range(9))"),
            "Filter: a subquery reads other rows",
        ),
        "another": (
            lambda df: df.sparkSession.readStream.format("rate").load(),
            "another stream than the one",
        ),
        "table": (lambda df: df.sparkSession.range(3), "Range: it is not known"),
        "nothing": (lambda df: None, "it returned NoneType, not a DataFrame"),
        "no value": (lambda df: df.drop("value"), "the column value is missing"),
        "no offset": (lambda df: df.select("key", "value"), "the column timestamp is missing"),
        "more": (lambda df: df.withColumn("n", f.lit(1)), "no place for the column n"),
        "type": (lambda df: df.withColumn("value", f.lit(1)), "the column value is int, and must"),
        "headers": (
            lambda df: df.withColumn("headers", f.lit("x")), "the column headers is string",
        ),
        "offset": (
            lambda df: df.withColumn("offset", f.expr("offset + 1")),
            "the column offset was changed",
        ),
        "partition": (
            lambda df: df.withColumn("partition", f.lit(0)), "the column partition was changed",
        ),
    }  # fmt: skip


def test_a_shuffle_is_refused_before_anything_happens(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy
) -> None:
    there, target = cluster.bootstrap, f"{topic}-copy"
    admin.create_topic(topic, 2, 3)
    put(producer, topic, range(20))
    running = copy()
    wait_stored(there, target, 1, 10)
    for name, (transform, problem) in shuffles().items():
        with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
            copy(transform=transform)
        assert caught.value.settings == ("transform",), name
    # A refused start takes nothing over.
    put(producer, topic, range(20, 40))
    wait_stored(there, target, 1, 20)
    assert running.isActive


def test_wrong_arguments_are_named(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy
) -> None:
    admin.create_topic(topic, 2, 3)
    admin.create_topic(f"{topic}-3", 3, 3)
    put(producer, topic, range(4))
    for arguments, name, problem in (
        ({"source": f"{topic}-no"}, "subscribe", "does not exist"),
        ({"source": "a,b"}, "source", "must be the name of one topic"),
        ({"target": ""}, "target", "must be the name of one topic"),
        ({"target": topic}, "target", "is the source topic itself"),
        ({"target": f"{topic}-3"}, "target", "has 3 partitions, the source 2"),
        ({"bootstrap_servers": "nowhere"}, "bootstrap_servers", "is not host:port"),
        ({"target_bootstrap_servers": "x:0"}, "target_bootstrap_servers", "is not host:port"),
        ({"name": "a\nb"}, "name", "has a character outside"),
        ({"trigger": {"continuous": "1 second"}}, "trigger", "must have one of"),
        ({"trigger": {"processingTime": "soon"}}, "trigger", "trigger: "),
        ({"max_offsets_per_trigger": 0}, "maxOffsetsPerTrigger", "must be an integer from 1"),
        ({"compression_type": "zip"}, "compression_type", "compression_type"),
        ({"starting_offsets": {2: 0}}, "starting_offsets", "from 0 to 1, got 2: 0"),
        ({"starting_offsets": {0: -1}}, "starting_offsets", "got 0: -1"),
        ({"starting_offsets": {0: 5}}, "starting_offsets", "has the offsets 0 to 2, not 5"),
    ):
        with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
            copy(**arguments)
        assert name in caught.value.settings, arguments
    assert f"{topic}-copy" not in admin.list_topics()


def test_a_source_that_is_deleted_fails_the_query(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, copy: Copy
) -> None:
    admin.create_topic(topic, 2, 3)
    put(producer, topic, range(20))
    query = copy()
    wait_stored(cluster.bootstrap, f"{topic}-copy", 1, 10)
    admin.delete_topic(topic)
    assert "TopicGoneError" in failure(query)


# --- the command ---------------------------------------------------------------------


def test_the_command_copies_with_spark(
    admin: Admin, cluster: LocalCluster, producer: Producer, topic: str, tmp_path: Path
) -> None:
    there, target = cluster.bootstrap, f"{topic}-copy"
    admin.create_topic(topic, 2, 3)
    put(producer, topic, range(50))
    words = ("-m", "oncelog.cli", "mirror", topic, target, "-b", there, "--engine", "spark")
    program = Program(*words, "--exit-at-end", "--format", "json")
    code, errors = program.wait()
    assert code == 0, errors
    assert json.loads("".join(program.lines)) == [
        {"partition": 0, "resumed_at": 0, "copied": 25, "position": 24},
        {"partition": 1, "resumed_at": 0, "copied": 25, "position": 24},
    ]
    assert contents(there, target) == contents(there, topic)
    code, errors = Program(*words, "--partition", "1").wait()
    assert code == 2
    assert "--partition" in errors and "spark" in errors
