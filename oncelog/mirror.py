"""Mirror of a topic: copies it into another one, in the same cluster or across, each record once.

Place in the flow: a consumer of the source and one named producer for each source partition;
`oncelog mirror` is a thin layer over it.

No progress is kept outside of the target. A record's sequence is its source offset, so the target's
last-seen map knows the copy's position (`Producer.position`), and `prev_sequence` proves that
nothing is missing in between. A batch is forwarded as it is stored (KIP-712) unless it is small or
the copy uses another compression.

The producer's name belongs to the source partition and the target. If several copies run at once,
the one that began last fences the others, which stop with FencedError. If a copy is killed, the
next one continues behind the last stored record.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

from oncelog._engine.net import runtime
from oncelog.admin import Admin
from oncelog.config import bootstrap_of, check_name, parse_bootstrap
from oncelog.consumer import Consumer
from oncelog.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from oncelog.producer import Producer
from oncelog.settings import ClientSettings, CompressionType
from oncelog.types import BatchMetadata, Record, TopicPartition
from oncelog.wire.compression import CODECS
from oncelog.wire.stored import StoredBatch

# Payload bytes of a batch that the copy builds from records, roughly counted; far below any topic's
# limit.
_BATCH_BYTES = 256 * 1024
_RECORD_BYTES = 64
# Memory limit of one partition's producer.
_BUFFER_BYTES = 16 * 1024 * 1024
_POLL_MS = 200
_LOOK_S = 60.0  # between checks for new partitions of the source
# The start waits so long for a partition's leader, as its producers do (max_block_ms).
_START_S = 60.0


@dataclass(slots=True)
class Progress:
    """Progress of one partition's copy."""

    partition: int
    resumed_at: int  # source offset of the first record of this run
    copied: int = 0  # records acknowledged in this run
    position: int = -1  # source offset of the last stored record


class Mirror:
    """One run of a copy of topic `source` into topic `target`. `run` may be called once.

    `bootstrap_servers`: the source's cluster, by default as of any client.
    `target_bootstrap_servers`: the target's, by default the same.
    `name`: prefix of the producers' names, by default made of the source cluster's id and both
    topics. Two copies of one topic into the same target need different names to run side by side.
    `partitions`: copy only these. The target topic is created if it does not exist.
    `starting_offsets`: where to begin in source partitions of which this copy has stored nothing,
    by default at the beginning; a target that already has records requires it.
    `source_settings`, `target_settings`: of the clients of each cluster, such as `tls_ca_file` and
    `token_file`, by default as of any client. Raises
    InvalidRequestError if it is missing, or the partition counts differ. The start needs the
    leaders of all copied partitions: it waits a minute for each, then raises NotReadyError or
    RequestTimeoutError that names the partitions.
    """

    def __init__(
        self,
        source: str,
        target: str,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        target_bootstrap_servers: str | Sequence[str] | None = None,
        name: str | None = None,
        partitions: Iterable[int] | None = None,
        compression_type: CompressionType = "none",
        skip_deleted: bool = False,
        starting_offsets: Mapping[int, int] | None = None,
        source_settings: ClientSettings | None = None,
        target_settings: ClientSettings | None = None,
    ) -> None:
        self.source_topic = source
        self.target_topic = target
        self.progress: dict[int, Progress] = {}
        here = there = bootstrap_of(bootstrap_servers)
        if target_bootstrap_servers is not None:
            there = parse_bootstrap(target_bootstrap_servers, "target_bootstrap_servers")
        self._source: ClientSettings = {**(source_settings or {}), "bootstrap_servers": here}
        self._target: ClientSettings = {**(target_settings or {}), "bootstrap_servers": there}
        self._compression: CompressionType = compression_type
        self._largest = 0  # payload bytes of a batch that is forwarded as stored
        self._skip_deleted = skip_deleted
        self._starting = dict(starting_offsets or {})
        self._producers: dict[int, Producer] = {}
        self._pending: dict[int, deque[Future[BatchMetadata]]] = {}
        # Records of small batches that wait for more, with their rough size.
        self._small: dict[int, tuple[list[Record], int]] = {}
        cluster_id, count = self._inspect()
        # For a copy of the whole topic: its partition count.
        self._whole = count if partitions is None else None
        self._look_at = time.monotonic() + _LOOK_S
        chosen = sorted(set(range(count) if partitions is None else partitions))
        for partition in chosen:
            if not 0 <= partition < count:
                raise UnknownTopicOrPartitionError(
                    f"topic {source!r} has the partitions 0 to {count - 1}, not {partition}",
                    topic=source,
                    partition=partition,
                )
        self._name = name or default_name(cluster_id, source, target)
        check_name("name", f"{self._name}/{count - 1}")
        self._consumer = Consumer(**self._source, auto_offset_reset="none")
        try:
            self._open(chosen)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def _inspect(self) -> tuple[str, int]:
        """Return the source's cluster id and partition count; make the target topic."""
        with Admin(**self._source) as admin:
            count = admin.describe_topic(self.source_topic).partition_count
            cluster_id = admin.describe_cluster().cluster_id
        with Admin(**self._target) as admin:
            if (
                admin.describe_cluster().cluster_id == cluster_id
                and self.source_topic == self.target_topic
            ):
                raise InvalidRequestError(
                    f"target topic {self.target_topic!r} is the source topic itself",
                    field="target_topic",
                )
            try:
                admin.create_topic(self.target_topic, count)
            except TopicAlreadyExistsError:
                pass
            there = admin.describe_topic(self.target_topic)
        if there.partition_count != count:
            raise InvalidRequestError(
                f"target topic {self.target_topic!r} has {there.partition_count} partitions, "
                f"the source {count}",
                field="target_topic",
            )
        self._largest = min(there.config.max_batch_bytes or _BATCH_BYTES, _BUFFER_BYTES // 2)
        return cluster_id, count

    def _open(self, partitions: list[int]) -> None:
        """Fence earlier copies, read their progress, and seek there in the source."""
        places = [TopicPartition(self.source_topic, number) for number in partitions]
        # Before the earlier copies are fenced: they go on if the source has no leader.
        starts = offsets_at_start(self._consumer, places, "earliest")
        deleted = offsets_at_start(self._consumer, places, "deleted")
        for number in partitions:
            producer = self._producers[number] = Producer(
                **self._target,
                producer_name=f"{self._name}/{number}",
                compression_type=self._compression,
                linger_ms=0,
                buffer_memory=_BUFFER_BYTES,
            )
            self._pending[number] = deque()
            position = producer.position(self.target_topic, number)
            self.progress[number] = Progress(number, position + 1, 0, position)
        self._consumer.assign(places)
        filled = self._filled(partitions)
        for tp in places:
            one = self.progress[tp.partition]
            first = deleted[tp]
            if one.position < 0:
                one.resumed_at = self._first_start(tp.partition, filled[tp.partition])
                first = 0  # records deleted before the first run are not lost by the copy
            one.resumed_at = self._seek(tp, one.resumed_at, first, starts[tp])

    def _seek(self, tp: TopicPartition, offset: int, deleted: int, start: int) -> int:
        """Go on at the offset or at the log's start. Raises OffsetOutOfRangeError."""
        offset = kept_from(tp, offset, deleted=deleted, start=start, skips=self._skip_deleted)
        self._consumer.seek(tp, offset)
        return offset

    def _filled(self, partitions: list[int]) -> dict[int, int]:
        """Count the records that the target's partitions have had so far."""
        places = [TopicPartition(self.target_topic, number) for number in partitions]
        with Consumer(**self._target) as consumer:
            ends = offsets_at_start(consumer, places, "latest")
        return {tp.partition: end for tp, end in ends.items()}

    def _first_start(self, partition: int, filled: int) -> int:
        """Return the start of a partition that the target does not know from this copy."""
        if filled and partition not in self._starting:
            raise InvalidRequestError(
                f"{self.target_topic}-{partition} has {filled} records, and none of them is known "
                f"to be of the mirror {self._name!r}. Either somebody else wrote them, or the "
                "mirror stood still so long that its producer names expired. Say with "
                "starting_offsets at which source offset to begin",
                field="starting_offsets",
            )
        return self._starting.get(partition, 0)

    # --- copying ---------------------------------------------------------------------

    def run(
        self, *, exit_at_end: bool = False, stop: threading.Event | None = None
    ) -> dict[int, Progress]:
        """Copy until `stop` is set or, with `exit_at_end`, up to the present end.

        Returns each partition's progress. Raises FencedError when a later copy has taken over,
        InvalidRequestError when the source has got more partitions, and any other error that keeps
        a record from being copied.
        """
        left = self._left() if exit_at_end else None
        while (stop is None or not stop.is_set()) and left != {}:
            self._check_source()
            try:
                batch = self._consumer.stored_batch(timeout_ms=0 if self._small else _POLL_MS)
            except OffsetOutOfRangeError as error:
                number, reached = error.partition, self._skip(error)
            else:
                if batch is None:
                    self._send_all_small()
                    for number in self._pending:
                        self._take_acknowledged(number, wait=False)
                    continue
                self._copy(batch)
                self._take_acknowledged(batch.partition, wait=False)
                number, reached = batch.partition, batch.last_offset + 1
            if left is not None and reached >= left.get(number, 0):
                left.pop(number, None)
        self._finish()
        return self.progress

    def _skip(self, error: OffsetOutOfRangeError) -> int:
        """Go on behind deleted records; return where. Raises the error, or one that says how."""
        self._finish()  # the source may not have these records any more
        if error.offset >= error.log_start_offset:
            raise error
        tp, start = TopicPartition(error.topic, error.partition), error.log_start_offset
        return self._seek(tp, error.offset, start, start)

    def _finish(self) -> None:
        """Wait until the taken records are stored."""
        self._send_all_small()
        for number in self._pending:
            self._take_acknowledged(number, wait=True)

    def _check_source(self) -> None:
        """Reject new source partitions: their records would be missing unnoticed."""
        if self._whole is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        with Admin(**self._source) as admin:
            count = admin.describe_topic(self.source_topic).partition_count
        if count > self._whole:
            raise InvalidRequestError(
                f"source topic {self.source_topic!r} has {count} partitions by now, and "
                f"{self._whole} are copied: give the target as many and start again",
                field="source_topic",
            )

    def _left(self) -> dict[int, int]:
        """Return the ends of the partitions that are not fully copied."""
        ends = self._consumer.end_offsets(self._consumer.assignment())
        return {
            tp.partition: end
            for tp, end in ends.items()
            if self.progress[tp.partition].resumed_at < end
        }

    def _copy(self, batch: StoredBatch) -> None:
        number = batch.partition
        if batch.goes_whole(CODECS[self._compression], self._largest):
            self._send_small(number)
            future = self._producers[number].send_stored_batch(
                self.target_topic, number, batch, base_sequence=batch.base_offset
            )
            self._pending[number].append(future)
            return
        records = batch.records()
        waiting, size = self._small.get(number, ([], 0))
        waiting += records
        size += sum(map(_size, records))
        self._small[number] = (waiting, size)
        if size >= _BATCH_BYTES:
            self._send_small(number)

    def _send_all_small(self) -> None:
        for number in list(self._small):
            self._send_small(number)

    def _send_small(self, number: int) -> None:
        records, _ = self._small.pop(number, ([], 0))
        for some in _portions(records):
            future = self._producers[number].send_batch(
                self.target_topic, number, some, sequences=[record.offset for record in some]
            )
            self._pending[number].append(future)

    def _take_acknowledged(self, number: int, *, wait: bool) -> None:
        pending = self._pending[number]
        while pending and (wait or pending[0].done()):
            stored = pending.popleft().result()
            self.progress[number].copied += stored.record_count
            self.progress[number].position = stored.last_sequence

    # --- life ------------------------------------------------------------------------

    def close(self) -> None:
        """Free everything; raises UndeliveredRecordsError as `Producer.close` does."""
        self._consumer.close()
        for producer in self._producers.values():
            producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        self._consumer.close()
        for producer in self._producers.values():
            producer.__exit__(kind, error, trace)


def kept_from(
    tp: TopicPartition,
    offset: int,
    *,
    deleted: int,
    start: int,
    skips: bool,
    copied: str = "copied",
) -> int:
    """Return the offset, or the log's start if that is higher.

    deleted: the end of the deleted records. Raises OffsetOutOfRangeError if some of these are
    missing and the copy does not skip them.
    """
    if offset < deleted and not skips:
        raise OffsetOutOfRangeError(
            f"{tp}: retention deleted records of the offsets {offset} to {deleted - 1} before they "
            f"were {copied}. skip_deleted=True goes on without them",
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
            log_start_offset=start,
        )
    return max(offset, start)


def offsets_at_start(
    consumer: Consumer, places: Iterable[TopicPartition], where: str
) -> dict[TopicPartition, int]:
    """Return offsets of a query of `Positions`; waits for missing leaders as producers do."""
    positions = consumer._fetcher.positions
    return runtime.run(positions.list_offsets(dict.fromkeys(places, where), _START_S))


def default_name(source_cluster_id: str, source_topic: str, target_topic: str) -> str:
    """Return the prefix of the names of a copy's producers; `oncelog.spark` uses the same."""
    return f"mirror/{source_cluster_id}/{source_topic}/{target_topic}"


def _size(record: Record) -> int:
    """Estimate the payload size, never too low."""
    own = _RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
    return own + sum(len(name) + len(value or b"") + 16 for name, value in record.headers)


def _portions(records: list[Record]) -> Iterator[list[Record]]:
    """Split into lists of a batch's size; a larger record goes alone."""
    some: list[Record] = []
    size = 0
    for record in records:
        own = _size(record)
        if some and size + own > _BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append(record)
        size += own
    if some:
        yield some


__all__ = ["Mirror", "Progress", "default_name", "offsets_at_start"]
