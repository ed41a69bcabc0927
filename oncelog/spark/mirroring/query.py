"""Mirror query: copies a topic into another one with Spark, each record once.

    query = oncelog.spark.mirror(spark, source="orders", target="orders-eu",
                                 bootstrap_servers="a:7001", target_bootstrap_servers="b:7001",
                                 transform=lambda df: df.filter("value is not null"))

Place in the flow: checks the arguments, then takes the target over from earlier runs
(`run`), then starts a streaming query with both ends in `data_source`. docs/spark.md lists
the guarantees. `oncelog.mirror` does the same without Spark and without transformations. Both use
the same producer names, so each can continue the other's copy.
"""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelog.admin import Admin
from oncelog.config import ProducerConfig, check_name, parse_bootstrap
from oncelog.errors import (
    ConfigError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from oncelog.mirror import default_name
from oncelog.settings import CompressionType
from oncelog.spark.mirroring.plan import check_transformed
from oncelog.spark.mirroring.run import CLIENT_ID, OPTION, MirrorSettings, claim
from oncelog.spark.mirroring.writer import COLUMNS
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import Planner
from oncelog.types import TopicInfo, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

_TRIGGERS = ("processingTime", "availableNow", "once")
_BATCH_BYTES = 1024 * 1024  # if a topic has no limit of its own
_ARROW_LIMITS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 * 1024 * 1024),
}


def mirror(
    spark: SparkSession,
    *,
    source: str,
    target: str,
    bootstrap_servers: str | Sequence[str],
    target_bootstrap_servers: str | Sequence[str] | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    name: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
    starting_offsets: Mapping[int, int] | None = None,
    max_offsets_per_trigger: int | None = None,
    compression_type: CompressionType = "none",
    skip_deleted: bool = False,
) -> StreamingQuery:
    """Start copying topic `source` into topic `target`; return the running query.

    `target_bootstrap_servers`: the target's cluster, default the same. The target topic is created
    if it does not exist, with as many partitions as the source.
    `transform`: gets the source's DataFrame (key, value, topic, partition, offset, timestamp,
    headers) and returns the rows to copy. It may drop rows and change key, value, timestamp and
    headers; it may not move, multiply or reorder rows.
    `name`: prefix of the producers' names, and the group that marks the run; by default made of the
    source cluster's id and both topics. Of two runs with one name the later goes on, and the
    earlier one's query fails with FENCED.
    `trigger`: arguments of Spark's `DataStreamWriter.trigger`; {"availableNow": True} copies the
    present records and ends.
    `checkpoint`: Spark's own checkpoint. A mirror does not need it: its progress is in the target.
    `starting_offsets`: source offsets to begin at, by partition, for partitions of which this
    mirror has stored nothing yet; default the beginning. Required if the target already has other
    records.
    `skip_deleted`: go on behind records that retention deleted before they were copied.

    Raises ConfigError with the name of the argument, OffsetOutOfRangeError, BrokerUnavailableError.
    A rejected plan, or an argument that does not fit the topics, leaves the target and a running
    mirror alone.
    """
    settings = MirrorSettings(
        run=secrets.token_hex(8),
        name="" if name is None else name,
        source_bootstrap=_servers("bootstrap_servers", bootstrap_servers),
        source_topic=_topic("source", source),
        source_id="",
        target_bootstrap=_servers(
            "target_bootstrap_servers", target_bootstrap_servers or bootstrap_servers
        ),
        target_topic=_topic("target", target),
        target_topic_id=0,
        partitions=0,
        max_batch_bytes=0,
        compression_type=compression_type,
        skip_deleted=skip_deleted,
        max_offsets_per_trigger=max_offsets_per_trigger,
    )
    starting = starting_offsets or {}
    settings = _checked(settings, starting, named=name is not None)
    settings = replace(settings, by_range=transform is None)
    query, keeps_all = _query(spark, settings, transform)
    if trigger is not None:
        query = _triggered(query, trigger)
    settings = _with_target(replace(settings, keeps_all=keeps_all and not skip_deleted))
    claim(settings, starting)
    query = query.option("checkpointLocation", checkpoint or _passing_checkpoint())
    with _small_arrow_batches(spark):
        return query.option(OPTION, settings.to_option()).start()


# --- the query -----------------------------------------------------------------------


def _query(
    spark: SparkSession,
    settings: MirrorSettings,
    transform: Callable[[DataFrame], DataFrame] | None,
) -> tuple[DataStreamWriter, bool]:
    """Build it; tell whether it keeps every record."""
    from oncelog.spark.mirroring.data_source import MirrorDataSource

    spark.dataSource.register(MirrorDataSource)
    what = MirrorDataSource.name()
    frame = spark.readStream.format(what).option(OPTION, settings.to_option()).load()
    if transform is None:
        return frame.writeStream.format(what), True
    result = transform(frame)
    keeps_all = check_transformed(frame, result)
    return result.select(*COLUMNS).writeStream.format(what), keeps_all


@contextmanager
def _small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """Limit Spark's Arrow batches for a Python worker, in queries that start meanwhile.

    A query keeps the session's settings of its start. The number of rows matters beside the bytes:
    Spark counts the bytes after each row, which takes longer the more nested rows (here headers) it
    has already put together.
    """
    before = {name: spark.conf.get(name) for name in _ARROW_LIMITS}
    try:
        for name, value in _ARROW_LIMITS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, old)


def _triggered(query: DataStreamWriter, trigger: Mapping[str, Any]) -> DataStreamWriter:
    if len(trigger) != 1 or trigger.keys() - set(_TRIGGERS):
        raise ConfigError(
            f"trigger must have one of {', '.join(_TRIGGERS)}, got {dict(trigger)!r}", "trigger"
        )
    from pyspark.errors import PySparkException

    try:
        return query.trigger(**trigger)
    except PySparkException as error:
        raise ConfigError(f"trigger: {error}", "trigger") from None


def _passing_checkpoint() -> str:
    """Return a temporary folder on the driver, removed at the program's end: Spark requires one."""
    path = Path(tempfile.mkdtemp(prefix="oncelog-mirror-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path.as_uri()


# --- arguments -----------------------------------------------------------------------


def _servers(argument: str, servers: str | Sequence[str]) -> tuple[str, ...]:
    try:
        return parse_bootstrap(servers)
    except ConfigError as error:
        message = error.message.replace("bootstrap_servers", argument, 1)
        raise ConfigError(message, argument) from None


def _topic(argument: str, topic: str) -> str:
    if not isinstance(topic, str) or not topic or "," in topic:
        raise ConfigError(f"{argument} must be the name of one topic, got {topic!r}", argument)
    return topic


def _check_starting(
    planner: Planner, starting: Mapping[int, int], tps: list[TopicPartition]
) -> None:
    """Raises ConfigError if a partition does not exist or does not have the offset."""
    for partition, offset in starting.items():
        good = isinstance(partition, int) and 0 <= partition < len(tps)
        if not good or not isinstance(offset, int) or offset < 0:
            raise ConfigError(
                f"starting_offsets must be source offsets by partition, from 0 to "
                f"{len(tps) - 1}, got {partition!r}: {offset!r}",
                "starting_offsets",
            )
    wanted = {tps[partition]: offset for partition, offset in starting.items()}
    starts, ends = planner.earliest(wanted), planner.latest(wanted, wanted)
    for tp, offset in wanted.items():
        if not starts[tp] <= offset <= ends[tp]:
            raise ConfigError(
                f"starting_offsets: {tp} has the offsets {starts[tp]} to {ends[tp]}, not {offset}",
                "starting_offsets",
            )


# --- topics --------------------------------------------------------------------------


def _checked(
    settings: MirrorSettings, starting: Mapping[int, int], *, named: bool
) -> MirrorSettings:
    """Add facts of the source to the settings. Changes nothing in any cluster."""
    source, target = settings.source_topic, settings.target_topic
    options = SourceOptions.parse(settings.source_options())
    options.for_stream()
    # Rejects wrong settings of a producer.
    ProducerConfig(
        bootstrap_servers=settings.target_bootstrap,
        compression_type=settings.compression_type,
        client_id=CLIENT_ID,
    )
    with Planner(options) as planner:
        place = planner.look()
        if starting:
            _check_starting(planner, starting, sorted(place.offsets))
    count = len(place.offsets)
    with Admin(bootstrap_servers=settings.source_bootstrap, client_id=CLIENT_ID) as admin:
        cluster_id = admin.describe_cluster().cluster_id
    with settings.admin() as admin:
        if admin.describe_cluster().cluster_id == cluster_id and source == target:
            raise ConfigError(f"target: {target!r} is the source topic itself", "target")
        try:
            _check_count(admin.describe_topic(target), count)
        except UnknownTopicOrPartitionError:
            pass  # it is created when all else is valid
    name = settings.name if named else default_name(cluster_id, source, target)
    check_name("name", f"{name}/{count - 1}")
    return replace(settings, name=name, source_id=place.ids[source], partitions=count)


def _check_count(there: TopicInfo, count: int) -> None:
    if there.partition_count != count:
        raise ConfigError(
            f"target: topic {there.name!r} has {there.partition_count} partitions, the source "
            f"{count}",
            "target",
        )


def _with_target(settings: MirrorSettings) -> MirrorSettings:
    """Create the target if it is missing, and add its facts to the settings."""
    with settings.admin() as admin:
        try:
            there = admin.create_topic(settings.target_topic, settings.partitions)
        except TopicAlreadyExistsError:
            there = admin.describe_topic(settings.target_topic)
    _check_count(there, settings.partitions)
    return replace(
        settings,
        target_topic_id=there.topic_id,
        max_batch_bytes=there.config.max_batch_bytes or _BATCH_BYTES,
    )
