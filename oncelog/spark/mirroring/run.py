"""Run of a mirror: its claim on the target, and the records the target already holds.

Place in the flow: the driver `claim`s the target when a mirror starts; the reader asks for the
`RunStart` when it plans a micro-batch, each task before it writes. Nothing here needs Spark.

All progress of a run lies in the target cluster:

- the last stored sequence of one named producer for each partition is the source offset of
  the last copied record. The names are those of `oncelog.mirror`;
- the offsets of a group, which has the mirror's name, name the latest run. `claim` writes the
  run's id there, together with each producer's last stored sequence at that moment. A run that
  finds another id has been replaced, and ends.

The order in `claim` is: open each producer, which fences the writing tasks of earlier runs; then
write the run's id, which keeps their other tasks from opening it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from oncelog.admin import Admin
from oncelog.consumer import Consumer
from oncelog.errors import (
    ConfigError,
    FencedError,
    UnknownTopicOrPartitionError,
)
from oncelog.mirror import kept_from, offsets_at_start
from oncelog.producer import Producer
from oncelog.settings import CompressionType
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.planning import Planner
from oncelog.types import OffsetCommit, TopicPartition

CLIENT_ID = "oncelog-spark-mirror"
OPTION = "mirror"  # of the data source: the settings as JSON
# Offsets in one commit, and producers that are opened at the same time.
_COMMITS = 500
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """Settings of a run, for all its processes. `run` is the run's own id."""

    run: str
    name: str
    source_bootstrap: tuple[str, ...]
    source_topic: str
    source_id: str  # of the topic, as `offsets.Place` has it
    target_bootstrap: tuple[str, ...]
    target_topic: str
    target_topic_id: int
    partitions: int
    max_batch_bytes: int
    compression_type: CompressionType = "none"
    skip_deleted: bool = False
    max_offsets_per_trigger: int | None = None
    # Nothing is filtered out or skipped: each task can prove that no record is missing.
    keeps_all: bool = False
    # No operator uses the rows in between: each task reads the records it copies.
    by_range: bool = False

    def to_option(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_option(cls, text: str) -> MirrorSettings:
        values = json.loads(text)
        for name in ("source_bootstrap", "target_bootstrap"):
            values[name] = tuple(values[name])
        return cls(**values)

    def source_options(self) -> dict[str, str]:
        """Return the source half's options, by the names of `format("oncelog")`."""
        options = {
            "bootstrap.servers": ",".join(self.source_bootstrap),
            "subscribe": self.source_topic,
            "includeHeaders": "true",
            "failOnDataLoss": str(not self.skip_deleted).lower(),
        }
        if self.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        return options

    def producer_name(self, partition: int) -> str:
        return f"{self.name}/{partition}"

    def target(self, partition: int) -> TopicPartition:
        return TopicPartition(self.target_topic, partition)

    def admin(self) -> Admin:
        """Return a client of the target cluster."""
        return Admin(bootstrap_servers=self.target_bootstrap, client_id=CLIENT_ID)

    def producer(self, partition: int) -> Producer:
        """Return a producer under the partition's name: its first use fences all before it."""
        return Producer(
            bootstrap_servers=self.target_bootstrap,
            client_id=CLIENT_ID,
            producer_name=self.producer_name(partition),
            compression_type=self.compression_type,
            linger_ms=0,
            buffer_memory=max(16 * 1024 * 1024, 4 * self.max_batch_bytes),
        )


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run's start in one partition of the target, and its producer."""

    begin: int  # source offset; all before it is copied, or excluded
    producer_id: int


# --- starting a run ------------------------------------------------------------------


def claim(settings: MirrorSettings, starting: Mapping[int, int]) -> dict[int, RunStart]:
    """Fence all earlier runs and find their progress; return the start offsets.

    `starting`: the source offsets of partitions of which this mirror has stored nothing; default
    the beginning. Raises ConfigError, OffsetOutOfRangeError, UnknownTopicOrPartitionError.
    """
    sources = [TopicPartition(settings.source_topic, p) for p in range(settings.partitions)]
    targets = [settings.target(p) for p in range(settings.partitions)]
    with Planner(SourceOptions.parse(settings.source_options())) as planner:
        # Before the earlier runs are fenced: they go on if the source has no leader.
        starts = planner.earliest(sources)
        deleted = planner.deleted(sources)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            opened = list(pool.map(lambda p: _open(settings, p), range(settings.partitions)))
        # Asked for last: an earlier run may have copied newer records in the meantime.
        ends = planner.latest(sources, {sources[p]: one.last + 1 for p, one in enumerate(opened)})
    with Consumer(bootstrap_servers=settings.target_bootstrap, client_id=CLIENT_ID) as consumer:
        filled = offsets_at_start(consumer, targets, "latest")
    claims: dict[int, RunStart] = {}
    for p, one in enumerate(opened):
        if one.last >= 0:
            tp = sources[p]
            begin = _go_on(settings, tp, one.last, starts[tp], deleted[tp], ends[tp])
        elif p in starting:
            begin = starting[p]
        elif filled[targets[p]]:
            raise ConfigError(
                f"target: {targets[p]} has {filled[targets[p]]} records, and none of them is "
                f"known to be of the mirror {settings.name!r}. Either somebody else wrote them, "
                "or the mirror stood still so long that its producer names expired. Say with "
                "starting_offsets at which source offset to begin",
                "target",
                "starting_offsets",
            )
        else:
            begin = starts[sources[p]]
        claims[p] = RunStart(begin, one.producer_id)
    with settings.admin() as admin:
        _check_same_source(admin, settings, any(one.last >= 0 for one in opened))
        _commit(admin, settings, claims, opened)
    return claims


@dataclass(frozen=True, slots=True)
class _OpenedTarget:
    producer_id: int
    epoch: int
    last: int  # source offset of the last stored record; -1: none


def _open(settings: MirrorSettings, partition: int) -> _OpenedTarget:
    with settings.producer(partition) as producer:
        last = producer.position(settings.target_topic, partition)
        assert producer.producer_id is not None and producer.epoch is not None
        return _OpenedTarget(producer.producer_id, producer.epoch, last)


def _go_on(
    settings: MirrorSettings, tp: TopicPartition, last: int, start: int, deleted: int, end: int
) -> int:
    """Return the next offset to copy. `deleted`: the end of the deleted records."""
    begin = last + 1
    if begin > end:
        raise ConfigError(
            f"source: {tp} ends at offset {end}, but {settings.target_topic!r} has a copy of its "
            f"offset {last}: this is not the topic that the mirror {settings.name!r} copied",
            "source",
        )
    return kept_from(
        tp, begin, deleted=deleted, start=start, skips=settings.skip_deleted,
        copied="known to be copied",
    )  # fmt: skip


def _check_same_source(admin: Admin, settings: MirrorSettings, copied: bool) -> None:
    """Check for a recreated topic, which counts its offsets from 0 again."""
    before = _committed(admin, settings).get(0)
    if not copied or before is None:
        return
    if before[1].get("source_id") != settings.source_id:
        raise ConfigError(
            f"source: topic {settings.source_topic!r} was deleted and made again since the mirror "
            f"{settings.name!r} copied it: its offsets are others; use another target or name",
            "source",
        )


def _commit(
    admin: Admin,
    settings: MirrorSettings,
    claims: Mapping[int, RunStart],
    opened: list[_OpenedTarget],
) -> None:
    metadata = json.dumps({"run": settings.run, "source_id": settings.source_id})
    commits = {
        settings.target(p): OffsetCommit(
            one.begin, metadata, opened[p].producer_id, opened[p].epoch, 0
        )
        for p, one in claims.items()
    }
    places = list(commits)
    for first in range(0, len(places), _COMMITS):
        some = places[first : first + _COMMITS]
        admin.commit_offsets(settings.name, {tp: commits[tp] for tp in some})


# --- during a run --------------------------------------------------------------------


def claims(admin: Admin, settings: MirrorSettings) -> dict[int, RunStart]:
    """Return this run's claims; raises FencedError if another run came after it."""
    found: dict[int, RunStart] = {}
    for partition, (one, metadata) in _committed(admin, settings).items():
        if metadata.get("run") != settings.run:
            raise FencedError(
                f"the mirror {settings.name!r} was started again elsewhere: that run goes on, "
                "this one ends"
            )
        found[partition] = one
    if len(found) != settings.partitions:
        raise FencedError(
            f"the target does not know this run any more: the group {settings.name!r} or the "
            f"topic {settings.target_topic!r} was deleted"
        )
    return found


def _committed(
    admin: Admin, settings: MirrorSettings
) -> dict[int, tuple[RunStart, dict[str, object]]]:
    offsets = admin.describe_group(settings.name).offsets
    return {
        tp.partition: (RunStart(one.offset, one.producer_id), _parsed(one.metadata))
        for tp, one in offsets.items()
        if tp.topic == settings.target_topic
    }


def _parsed(metadata: str) -> dict[str, object]:
    try:
        parsed = json.loads(metadata)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def last_stored(admin: Admin, settings: MirrorSettings, partition: int, producer_id: int) -> int:
    """Return the source offset of the last copied record, by the target's answer; -1: none."""
    states = admin.describe_producers(settings.target_topic, partition, producer_id, 1)
    return states[0].last_sequence if states else -1


def check_target(admin: Admin, settings: MirrorSettings) -> None:
    """Raises UnknownTopicOrPartitionError if the target is not the claimed topic."""
    topic = admin.describe_topic(settings.target_topic)
    if topic.topic_id != settings.target_topic_id:
        raise UnknownTopicOrPartitionError(
            f"target {settings.target_topic!r} was deleted and made again during the copy",
            topic=settings.target_topic,
        )


def keep_names(admin: Admin, settings: MirrorSettings) -> None:
    """Lease each name again: a name without a lease for long is forgotten with its progress."""
    for partition in range(settings.partitions):
        admin.lease_producer(settings.producer_name(partition))
