"""Types between a partition and its callers: settings, requests, answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from cluster.dedup.verdict import BatchMeta, Formats, OffsetRule, Verdict
from cluster.features import Features


class NameHolder(Protocol):
    """Producer name that holds an id. `NameState` of the metadata implements it."""

    @property
    def epoch(self) -> int:
        """Returns the epoch of the newest lease."""

    @property
    def fence_epoch(self) -> int:
        """Returns the lowest epoch that is not fenced."""


class Names(Protocol):
    """Producers in this node's copy of the metadata. `MetadataState` implements it."""

    @property
    def applied_index(self) -> int:
        """Returns the copy's position in the metadata log."""

    def is_issued(self, producer_id: int) -> bool:
        """Whether the copy knows that the id was issued. A name holds its id from then on."""

    def holder(self, producer_id: int) -> NameHolder | None:
        """Returns the name that holds the id, if any. A given-up id is never held again."""


class NoNames:
    """Empty names, for a partition without a cluster around it."""

    applied_index = 0

    def is_issued(self, producer_id: int) -> bool:
        return False

    def holder(self, producer_id: int) -> NameHolder | None:
        return None


NO_NAMES = NoNames()


class Cleanup(IntEnum):
    """Treatment of old records; the values are those of the protocol's CleanupPolicy."""

    DELETE = 0
    COMPACT = 1
    COMPACT_DELETE = 2


@dataclass(slots=True)
class Policy:
    """Topic and cluster settings that the leader stamps into entries. Times in ms.

    min_compaction_lag_ms: age of the records that a cleaner may touch. max_compaction_lag_ms: age
    at which it must; -1: never. delete_retention_ms: how long a tombstone stays after its first
    cleaning. min_cleanable_dirty_ratio: of the bytes that were never cleaned to all.
    """

    max_batch_bytes: int = 4 * 1024 * 1024
    expected_offsets: int = OffsetRule.CHECKED
    formats: int = Formats.COLUMNAR
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    cleanup: Cleanup = Cleanup.DELETE
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = -1
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    lease_lifetime_ms: int = 24 * 3600 * 1000
    expired_below: Callable[[], int] = lambda: 0
    names: Names = NO_NAMES


class AppendRequest(NamedTuple):
    """A batch as received, its header decoded and its crc compared.

    A batch of Kafka's protocol (`meta.kafka`) has its codec KAFKA_V2, and its sequences as its
    client sent them: modulo 2**31. The leader places them.
    """

    meta: BatchMeta
    codec: int
    transaction_id: int
    max_timestamp_us: int
    payload: bytes | memoryview


class Answer(NamedTuple):
    """Answer to a batch's sender. `leader_id` 0: unknown."""

    verdict: Verdict
    append_time_ms: int = 0
    leader_id: int = 0


AnswerTo = Callable[[Answer], None]


@dataclass(frozen=True, slots=True)
class NodeView:
    """Services and settings that a replica takes from its node.

    now_ms: the agreed time, milliseconds since the Unix epoch; stands still without one.
    clock_agreed: a majority shares this node's wall clock, so it may stamp entries.
    touch: the group has work for the driver.
    storage_full: writes wait for space on the disk.
    features: agreed on by the cluster; checked before a new kind of entry is proposed.
    """

    now_ms: Callable[[], int]
    touch: Callable[[], None]
    storage_full: Callable[[], bool]
    clock_agreed: Callable[[], bool]
    features: Features = field(default_factory=Features)


@dataclass(slots=True)
class Counters:
    """Counters of one replica since it was opened.

    verdicts: answers by verdict. producers_throttled: new producers refused. rebuilt: repeats whose
    producer sent other bytes (Kafka's protocol).
    """

    verdicts: dict[int, int] = field(default_factory=dict)
    producers_throttled: int = 0
    rebuilt: int = 0

    def count(self, kind: int) -> None:
        self.verdicts[kind] = self.verdicts.get(kind, 0) + 1
