"""Planner on the driver: the partitions of the cluster, and their start and end offsets.

Place in the flow: both readers ask it, in Spark's planner processes, for ranges to read: a batch
query once, a stream at each trigger. Records are read elsewhere (`reading`).

It rides out elections and restarts for `pollTimeoutMs`. A stream goes on with the other partitions
if one has no leader for longer than an election. Lost records are an error or, with
failOnDataLoss=false, skipped and noted in the driver's log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Self, TypeVar

from oncelog._engine.net import runtime
from oncelog._engine.net.backoff import Backoff
from oncelog._engine.net.cluster import UNKNOWN_TOPIC_GRACE_S
from oncelog.admin import Admin
from oncelog.consumer import Consumer
from oncelog.errors import (
    ConfigError,
    FatalError,
    OffsetOutOfRangeError,
    OncelogError,
    RetriableError,
    UnknownTopicOrPartitionError,
)
from oncelog.spark.source.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    StreamPosition,
    split,
)
from oncelog.spark.source.options import Bound, SourceOptions
from oncelog.table.files import owner_of
from oncelog.types import TopicInfo, TopicPartition

T = TypeVar("T")

# Not below "oncelog", which a library keeps silent: Spark's processes do not set up logging, and
# skipped records must be seen.
log = logging.getLogger("pyspark_oncelog")
CLIENT_ID = "oncelog-spark"
# A deposed leader steps down, and another is elected, within two election timeouts.
_DEPOSED_S = 5.0
_AT_ONCE_S = 0.1
_RETRY_S = 0.1


class TopicGoneError(FatalError):
    """A topic of the query was deleted, or deleted and recreated."""

    reason = "TOPIC_GONE"


def id_of(known: str) -> int:
    """Return the number in an id of `look`."""
    return int(known.partition("-")[0])


def gone(topic: str) -> TopicGoneError:
    return TopicGoneError(f"topic {topic!r} was deleted while the query read it")


class Planner:
    """Two clients, made on first use. One per reader; not thread safe."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._admin: Admin | None = None
        self._consumer: Consumer | None = None
        self._timeout_s = options.poll_timeout_ms / 1000

    # --- topics and partitions -------------------------------------------------------

    def look(self, known: StreamPosition | None = None) -> StreamPosition:
        """Return the selected partitions, with offsets 0, and their topics' ids.

        known: those of an earlier look. A topic may have got more partitions since; it never has
        fewer, even if a lagging node says so. Raises ConfigError if a named topic or partition does
        not exist, TopicGoneError if it is one of the topics `known`.
        """
        before = StreamPosition({}) if known is None else known
        chosen = self.options.selection
        if chosen.pattern:
            topics = [t for t in self._describe((), {}) if chosen.matches(t.name)]
            if not topics and not before.ids:
                raise ConfigError(
                    f"subscribePattern: no topic matches {chosen.pattern!r}", "subscribePattern"
                )
        else:
            names = chosen.topics or tuple(dict.fromkeys(tp.topic for tp in chosen.partitions))
            topics = self._describe(names, before.ids)
        counts = {topic.name: topic.partition_count for topic in topics}
        ids = {topic.name: _id(topic) for topic in topics}
        for tp in before.offsets:
            if tp.topic in ids and before.ids.get(tp.topic) == ids[tp.topic]:
                counts[tp.topic] = max(counts[tp.topic], tp.partition + 1)
        for tp in chosen.partitions:
            if tp.partition >= counts[tp.topic]:
                raise ConfigError(
                    f"assign: topic {tp.topic!r} has the partitions 0 to "
                    f"{counts[tp.topic] - 1}, not {tp.partition}",
                    "assign",
                )
        tps = chosen.partitions or tuple(
            TopicPartition(name, number)
            for name, count in counts.items()
            for number in range(count)
        )
        return StreamPosition(dict.fromkeys(tps, 0), ids)

    def _describe(self, names: Sequence[str], known: Mapping[str, str]) -> list[TopicInfo]:
        def ask() -> list[TopicInfo]:
            if self._admin is None:
                self._admin = Admin(
                    bootstrap_servers=self.options.bootstrap_servers,
                    client_id=CLIENT_ID,
                    **self.options.client_settings,
                )
            return self._admin.describe_topics(names)

        try:
            return self._with_retries(ask)
        except UnknownTopicOrPartitionError as error:
            if error.topic in known:
                raise gone(error.topic) from None
            option = self.options.selection.option
            raise ConfigError(f"{option}: {error.message}", option) from None

    # --- offsets ---------------------------------------------------------------------

    def earliest(self, tps: Iterable[TopicPartition]) -> Offsets:
        """Return the first offsets; with a table, those of the older records in it."""
        wanted = list(tps)
        found = self._list(lambda consumer: consumer.beginning_offsets(wanted))
        return self._with_table(found) if self.options.table else found

    def _with_table(self, log_starts: Offsets) -> Offsets:
        from oncelog.spark.source.history import first_offsets

        (topic,) = self._describe(self.options.selection.topics, {})
        assert self._admin is not None
        cluster = owner_of(self._with_retries(self._admin.describe_cluster))
        deleted = self.deleted(log_starts)
        return first_offsets(self.options, cluster, topic.topic_id, log_starts, deleted)

    def deleted(self, tps: Iterable[TopicPartition]) -> Offsets:
        """Return the ends of the deleted records: compaction may have left a hole behind them."""
        wanted: dict[TopicPartition, str | int] = dict.fromkeys(tps, "deleted")

        def ask(consumer: Consumer) -> Offsets:
            return runtime.run(consumer._fetcher.positions.list_offsets(wanted))

        return self._list(ask) if wanted else {}

    def latest(self, tps: Iterable[TopicPartition], at_least: Offsets | None = None) -> Offsets:
        """Return the high watermarks.

        A deposed leader that does not know it yet answers with an old one. So if it is below
        `at_least`, the leader is asked again for a few seconds.
        """
        wanted = list(tps)
        floors = at_least or {}
        start = time.monotonic()
        while True:
            found = self._list(lambda consumer: consumer.end_offsets(wanted))
            old = any(found[tp] < floors.get(tp, 0) for tp in wanted)
            if not old or time.monotonic() - start > min(_DEPOSED_S, self._timeout_s):
                return found
            time.sleep(_RETRY_S)  # no event: a node does not say that it was deposed

    def latest_led(self, tps: Iterable[TopicPartition], away: Container[TopicPartition]) -> Offsets:
        """Return the high watermarks of the partitions with a leader.

        Waits for an election, except of the partitions `away`. If no partition has a leader, it
        waits for pollTimeoutMs and raises the error.
        """
        wanted = set(tps)
        asked = [
            ({tp for tp in wanted if tp not in away}, min(_DEPOSED_S, self._timeout_s)),
            ({tp for tp in wanted if tp in away}, _AT_ONCE_S),
        ]

        def ask(consumer: Consumer) -> Offsets:
            found: Offsets = {}
            problems: dict[TopicPartition, OncelogError] = {}
            for some, limit_s in asked:
                if some:
                    positions = consumer._fetcher.positions
                    latest: dict[TopicPartition, str | int] = dict.fromkeys(some, "latest")
                    here, missing = runtime.run(positions.find_offsets(latest, limit_s))
                    found |= here
                    problems |= missing
            others = [one for one in problems.values() if not _is_leaderless(one)]
            if others or (problems and not found):
                raise [*others, *problems.values()][0]
            return found

        return self._list(ask)

    def _at_times(self, times_ms: Offsets) -> tuple[Offsets, Offsets]:
        """Return the offsets of these times, -1 where no record is that recent, and the ends.

        The ends are older: a record that comes meanwhile is not below the end, and missed.
        """
        ends = self.latest(times_ms)
        asked = {(tp.topic, tp.partition): ms for tp, ms in times_ms.items()}
        return self._list(lambda consumer: consumer.offsets_for_times(asked)), ends

    def _list(self, question: Callable[[Consumer], Offsets]) -> Offsets:
        try:
            return self._with_retries(lambda: question(self._offsets()))
        except UnknownTopicOrPartitionError as error:
            # A moment ago it was there.
            raise gone(error.topic) from None

    def _offsets(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                bootstrap_servers=self.options.bootstrap_servers,
                client_id=CLIENT_ID,
                **self.options.client_settings,
                auto_offset_reset="none",
            )
        return self._consumer

    def _with_retries(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer; raise the last error when the time is over.

        A topic unknown to one node may have been created a moment ago through another one.
        """
        start = time.monotonic()
        backoff = Backoff(0.05, 1.0)
        failures = 0
        while True:
            try:
                return ask()
            except RetriableError as error:
                unknown = isinstance(error, UnknownTopicOrPartitionError)
                limit = min(self._timeout_s, UNKNOWN_TOPIC_GRACE_S if unknown else 1e9)
                failures += 1
                pause = backoff.delay(failures)
                if time.monotonic() - start + pause > limit:
                    if not unknown:
                        limit_ms = self.options.poll_timeout_ms
                        error.args = (f"{error.message}, for pollTimeoutMs={limit_ms}",)
                    raise
            time.sleep(pause)  # no event: a node does not say when it is there again

    # --- where to begin and to end ---------------------------------------------------

    def starting(self, place: StreamPosition, earliest: Offsets, default: int) -> Offsets:
        """Return the start offsets of the options; `default`: without an option.

        They may be below the log's start: `kept` decides about that.
        """
        bound = self.options.starting or Bound("startingOffsets", everywhere=default)
        asked = self._asked(bound, place)
        if not bound.by_time:
            latest = self._ends(bound, asked)
            words = {EARLIEST: earliest, LATEST: latest}
            return {tp: words.get(at, asked)[tp] for tp, at in asked.items()}
        found, ends = self._at_times(asked)
        missing = sorted(tp for tp in found if found[tp] < 0)
        if missing and self.options.unmatched_time == "error":
            names = ", ".join(f"{tp} ({asked[tp]} ms)" for tp in missing)
            raise ConfigError(
                f"{bound.option}: no record at or after this time in {names}; "
                "startingOffsetsByTimestampStrategy=latest starts those at their end",
                bound.option,
            )
        return found | {tp: ends[tp] for tp in missing}

    def ending(self, place: StreamPosition) -> Offsets:
        """Return the end offsets of the options."""
        bound = self.options.ending or Bound("endingOffsets", everywhere=LATEST)
        asked = self._asked(bound, place)
        found, latest = (
            self._at_times(asked) if bound.by_time else (asked, self._ends(bound, asked))
        )
        return {tp: at if at >= 0 else latest[tp] for tp, at in found.items()}

    def _ends(self, bound: Bound, asked: Offsets) -> Offsets:
        """Return the ends of all partitions. Raises ConfigError if an offset is past one."""
        latest = self.latest(asked, at_least=asked)
        for tp, at in asked.items():
            if at > latest[tp]:
                raise ConfigError(
                    f"{bound.option}: offset {at} of {tp} is past its end, {latest[tp]}",
                    bound.option,
                )
        return latest

    def _asked(self, bound: Bound, place: StreamPosition) -> Offsets:
        """Return all partitions' numbers. Raises ConfigError if they do not fit the topics."""
        if bound.each is None:
            assert bound.everywhere is not None
            return dict.fromkeys(place.offsets, bound.everywhere)
        for topic, known in bound.each.ids.items():
            if place.ids.get(topic, known) != known:
                raise ConfigError(
                    f"{bound.option}: these are offsets of another topic {topic!r}, which was "
                    "deleted or is in another cluster",
                    bound.option,
                )
        missing = [str(tp) for tp in sorted(place.offsets.keys() - bound.each.offsets.keys())]
        unknown = [str(tp) for tp in sorted(bound.each.offsets.keys() - place.offsets.keys())]
        if missing or unknown:
            what = [f"misses {', '.join(missing)}"] if missing else []
            what += [f"names {', '.join(unknown)}, not selected or not there"] if unknown else []
            raise ConfigError(
                f"{bound.option} {' and '.join(what)}: it must name all partitions of "
                f"{self.options.selection.option} and no other",
                bound.option,
            )
        return bound.each.offsets

    # --- batch -----------------------------------------------------------------------

    def batch(self) -> list[OffsetRange]:
        """Return a batch query's ranges, at least minPartitions if the records suffice."""
        place = self.look()
        earliest = self.earliest(place.offsets)
        starts, ends = self.starting(place, earliest, EARLIEST), self.ending(place)
        for tp, at in sorted(starts.items()):
            if ends[tp] < at:
                ending, starting = self.options.ending, self.options.starting
                names = [one.option for one in (ending, starting) if one is not None]
                raise ConfigError(
                    f"{' and '.join(names)}: {tp} would end at {ends[tp]}, before its start {at}",
                    *names,
                )
        starts = self.kept(starts, earliest, "startingOffsets")
        ranges = [OffsetRange(tp, at, ends[tp]) for tp, at in sorted(starts.items())]
        return split(ranges, self.options.min_partitions)

    # --- loss ------------------------------------------------------------------------

    def kept(self, starts: Offsets, earliest: Offsets, what: str) -> Offsets:
        """Return the offsets; those below the log's start are moved up to it if allowed."""
        for tp, end in self.deleted(tp for tp, at in starts.items() if at < earliest[tp]).items():
            if starts[tp] < end:
                self.lost(
                    OffsetOutOfRangeError(
                        f"{what}: {tp} begins at offset {earliest[tp]}: {starts[tp]} to "
                        f"{earliest[tp] - 1} are deleted by retention",
                        topic=tp.topic,
                        partition=tp.partition,
                        offset=starts[tp],
                        log_start_offset=earliest[tp],
                    )
                )
        return {tp: max(at, earliest[tp]) for tp, at in starts.items()}

    def lost(self, error: FatalError) -> None:
        """Raise the error or, with failOnDataLoss=false, log it."""
        if self.options.fail_on_data_loss:
            raise type(error)(
                f"{error.message} (failOnDataLoss=false goes on without)", **error.details
            )
        log.warning("failOnDataLoss=false: %s", error.message)

    # --- life ------------------------------------------------------------------------

    def close(self) -> None:
        for client in (self._admin, self._consumer):
            if client is not None:
                client.close()
        self._admin = self._consumer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


def _is_leaderless(error: OncelogError) -> bool:
    return isinstance(error, RetriableError) and not isinstance(error, UnknownTopicOrPartitionError)


def _id(topic: TopicInfo) -> str:
    """Return an id that no other topic has: ids count up in a cluster, clusters differ in time."""
    return f"{topic.topic_id}-{topic.created_ms}"
