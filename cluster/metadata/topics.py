"""Topics of the metadata group, and their validity rules.

Pure values and checks. `MetadataState` holds the topics and runs the checks when a command is
applied. The services run the same checks before they propose, so most refusals cost no log entry. A
check raises `Rejected`.

The limits here decide whether a command in the log is accepted. All replicas must agree on that, so
a limit may be raised only together with a new field in the command that says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cluster.features import COMPACTION, Finalized
from cluster.features import KAFKA as FEATURE
from oncelog.v1.cluster_pb2 import ExpectedOffsets, TopicConfig

DAY_MS = 86_400_000
MIB = 1024 * 1024

MAX_TOPIC_NAME_CHARS = 249
MAX_TOPICS = 10_000
MAX_PARTITIONS_PER_TOPIC = 1000
MAX_PARTITIONS = 20_000  # of all topics together
MAX_REPLICAS = 9
MAX_RETENTION_MS = 100 * 366 * DAY_MS
MAX_RETENTION_BYTES = 2**62
MIN_MAX_BATCH_BYTES = 1024
MAX_MAX_BATCH_BYTES = 64 * MIB
UNLIMITED = -1
INTERNAL_PREFIX = "__"
OFFSETS_TOPIC = "__offsets"
# The only topics with that prefix: the nodes' own.
INTERNAL_TOPICS = (OFFSETS_TOPIC,)
# The values that the replicas agreed on, even if the enum has more by now.
EXPECTED_OFFSETS = (0, 1, 2)
COLUMNAR, KAFKA, BOTH = FORMATS = (0, 1, 2)
DELETE, COMPACT, COMPACT_DELETE = CLEANUP_POLICIES = (0, 1, 2)

COMPACTION_FIELDS = (
    "cleanup_policy",
    "min_compaction_lag_ms",
    "max_compaction_lag_ms",
    "delete_retention_ms",
    "min_cleanable_dirty_ratio",
)
# Fields of TopicConfig that a message may lack.
_OPTIONAL = ("retention_ms", "retention_bytes", "max_batch_bytes", "formats", *COMPACTION_FIELDS)
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")


# The protocol's words for why a command is rejected; `oncelog.errors` has a class for each.
INVALID_REQUEST = "INVALID_REQUEST"  # the message begins with the field at fault and ": "
TOPIC_ALREADY_EXISTS = "TOPIC_ALREADY_EXISTS"
UNKNOWN_TOPIC_OR_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
PRODUCER_NAME_NOT_FOUND = "PRODUCER_NAME_NOT_FOUND"
NOT_SUPPORTED = "NOT_SUPPORTED"
NOT_READY = "NOT_READY"
FENCED = "FENCED"


class Rejected(Exception):
    """A command breaks a rule: `reason` is one of the words above, the text is for people.

    `limit`: the allowed range, if there is one.
    """

    def __init__(self, reason: str, message: str, limit: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.limit = limit


def invalid(field: str, text: str, limit: str = "") -> Rejected:
    """The rejection of a request because of one of its fields."""
    return Rejected(INVALID_REQUEST, f"{field}: {text}", limit)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's complete configuration. -1 means without limit."""

    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    max_batch_bytes: int = 4 * MIB
    expected_offsets: int = ExpectedOffsets.EXPECTED_OFFSETS_CHECKED
    formats: int = COLUMNAR
    cleanup_policy: int = DELETE
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5

    def altered(self, config: TopicConfig, *, set_expected_offsets: bool) -> TopicSettings:
        """Returns the settings with the fields that `config` sets. Raises Rejected."""
        settings = self.overlaid(config, set_expected_offsets=set_expected_offsets)
        settings._check()
        return settings

    def overlaid(self, config: TopicConfig, *, set_expected_offsets: bool) -> TopicSettings:
        """Returns the settings with the fields that `config` sets, unchecked."""
        given = {name: getattr(config, name) for name in _OPTIONAL if config.HasField(name)}
        if set_expected_offsets:
            given["expected_offsets"] = config.expected_offsets
        return replace(self, **given)

    def to_proto(self) -> TopicConfig:
        return TopicConfig(
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            max_batch_bytes=self.max_batch_bytes,
            expected_offsets=self.expected_offsets,  # type: ignore[arg-type]
            # Releases before the feature do not know the field.
            formats=self.formats or None,  # type: ignore[arg-type]
            **self._compaction(),
        )

    def _compaction(self) -> dict[str, Any]:
        """Returns the settings of compaction, if they are not those that all releases have."""
        known = TopicSettings()
        given = {name: getattr(self, name) for name in COMPACTION_FIELDS}
        return given if any(given[name] != getattr(known, name) for name in given) else {}

    def check_compaction(self, finalized: Finalized) -> None:
        """Raises Rejected unless a topic may have these settings of compaction."""
        if self._compaction() and not finalized.has(COMPACTION):
            text = (
                f"cleanup_policy: {self.cleanup_policy} and its settings need the feature "
                f"{COMPACTION!r}, which is not on"
            )
            raise Rejected(NOT_SUPPORTED, text)

    def check_formats(self, before: int | None, finalized: Finalized) -> None:
        """Raises Rejected unless a topic may have these formats after `before`.

        before: the formats of an existing topic; None: it is new.
        """
        if self.formats == COLUMNAR == (before or COLUMNAR):
            return
        if not finalized.has(FEATURE):
            text = f"formats: {self.formats} needs the feature {FEATURE!r}, which is not on"
            raise Rejected(NOT_SUPPORTED, text)
        if before not in (None, self.formats) and self.formats != BOTH:
            text = f"{self.formats} must be {BOTH} (both), the only change from {before}"
            raise invalid("formats", text, str(BOTH))

    def _check(self) -> None:
        _limit("retention_ms", self.retention_ms, 1, MAX_RETENTION_MS, unlimited=True)
        _limit("retention_bytes", self.retention_bytes, 1, MAX_RETENTION_BYTES, unlimited=True)
        _limit("max_batch_bytes", self.max_batch_bytes, MIN_MAX_BATCH_BYTES, MAX_MAX_BATCH_BYTES)
        if self.expected_offsets not in EXPECTED_OFFSETS:
            text = f"{self.expected_offsets} must be 0 (checked), 1 (ignored) or 2 (required)"
            raise invalid("expected_offsets", text)
        if self.formats not in FORMATS:
            text = f"{self.formats} must be 0 (columnar), 1 (kafka) or 2 (both)"
            raise invalid("formats", text, "0..2")
        self._check_compaction()

    def _check_compaction(self) -> None:
        if self.cleanup_policy not in CLEANUP_POLICIES:
            text = f"{self.cleanup_policy} must be 0 (delete), 1 (compact) or 2 (compact_delete)"
            raise invalid("cleanup_policy", text, "0..2")
        lag, most = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        _limit("min_compaction_lag_ms", lag, 0, MAX_RETENTION_MS)
        _limit("max_compaction_lag_ms", most, 1, MAX_RETENTION_MS, unlimited=True)
        if 0 <= most < lag:
            text = f"{most} must be at least min_compaction_lag_ms, {lag}, or -1 for no limit"
            raise invalid("max_compaction_lag_ms", text, f"{lag}..{MAX_RETENTION_MS}")
        _limit("delete_retention_ms", self.delete_retention_ms, 0, MAX_RETENTION_MS)
        if not 0 <= self.min_cleanable_dirty_ratio <= 1:
            text = f"{self.min_cleanable_dirty_ratio} must be 0..1"
            raise invalid("min_cleanable_dirty_ratio", text, "0..1")


def as_known(config: TopicConfig, finalized: Finalized) -> TopicConfig:
    """Returns checked settings without the fields that not all releases in the cluster know.

    A feature that is off leaves such a field its default only. In the log, a field that a release
    does not know stops its replica, whatever the value.
    """
    known = TopicConfig()
    known.CopyFrom(config)
    for feature, names in ((COMPACTION, COMPACTION_FIELDS), (FEATURE, ("formats",))):
        for name in names if not finalized.has(feature) else ():
            known.ClearField(name)
    return known


class DamagedReplica(NamedTuple):
    """A stopped replica. rebuild: it is removed and rebuilt."""

    node: int
    instance: int
    rebuild: bool


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's Raft group and the nodes that hold it; the first is preferred as leader.

    founding: the nodes that the group began with; empty: those that hold it.
    instances: of the replicas, in their order (`cluster/consensus/configuration.py`); empty: 0.
    version, index, index_term: of the group's newest configuration that was reported, and of its
        entry; 0: it has none but the first.
    target: the nodes to hold it; empty: its present holders.
    before_balance: during a move by the balance, its former holders.
    lost: (node, instance) of replicas with a lost data directory; they are to be removed.
    damaged, repairs: see repairs.py.
    added_ms: when the topic got it; 0: with its creation.
    """

    group_id: int
    replicas: tuple[int, ...]
    founding: tuple[int, ...] = ()
    instances: tuple[int, ...] = ()
    version: int = 0
    index: int = 0
    index_term: int = 0
    target: tuple[int, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    before_balance: tuple[int, ...] = ()
    damaged: tuple[DamagedReplica, ...] = ()
    repairs: tuple[tuple[int, int], ...] = ()
    added_ms: int = 0

    @property
    def placed(self) -> tuple[int, ...]:
        """The nodes that hold it, or will after its change."""
        return self.target or self.replicas

    @property
    def to_remove(self) -> tuple[tuple[int, int], ...]:
        """The (node, instance) pairs of replicas to remove before any other step."""
        return self.lost + tuple((one.node, one.instance) for one in self.damaged if one.rebuild)

    def instance_of(self, node: int) -> int:
        """Returns the instance of the replica that `node` holds or will hold."""
        return self.instances[self.replicas.index(node)] if self.instances else 0

    @property
    def learner(self) -> int:
        """The node with a replica that is filled and has no vote yet, as reported; 0: none.

        There is one at a time, the newest. A target that is held stays until it has its vote.
        """
        if not self.target or not self.instances:
            return 0
        newest = max(self.replicas, key=self.instance_of)
        is_held = {*self.target} == {*self.replicas} and not self.to_remove
        instance = self.instance_of(newest)
        return newest if instance and (is_held or instance == self.version) else 0

    @property
    def counting(self) -> set[int]:
        """The nodes with replicas that count: not lost, damaged, or being filled."""
        return {*self.replicas} - {node for node, _ in self.to_remove} - {self.learner}


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic; `partitions` is indexed by partition number."""

    name: str
    topic_id: int
    partitions: tuple[PartitionState, ...]
    settings: TopicSettings
    created_ms: int

    @property
    def config(self) -> TopicConfig:
        """The settings as a message, with every field set."""
        return self.settings.to_proto()

    @property
    def replica_count(self) -> int:
        """Replicas of each partition; during a change, the highest of their targets."""
        return max(len(one.placed) for one in self.partitions)


def is_internal(name: str) -> bool:
    """Whether the topic is the nodes' own: clients cannot write, alter or delete it."""
    return name.startswith(INTERNAL_PREFIX)


def check_topic_name(name: str) -> None:
    """Raises Rejected unless `name` may name a user's topic."""
    if not 1 <= len(name) <= MAX_TOPIC_NAME_CHARS:
        limit = f"1..{MAX_TOPIC_NAME_CHARS}"
        raise invalid("name", f"has {len(name)} characters, must have {limit}", limit)
    if not _TOPIC_NAME.fullmatch(name):
        raise invalid("name", f"{name!r} must only use A-Z a-z 0-9 . _ -")
    if name in (".", ".."):
        raise invalid("name", f"must not be {name!r}")
    if name.startswith(INTERNAL_PREFIX):
        raise invalid("name", f"{name!r} starts with {INTERNAL_PREFIX!r}, which is reserved")


def check_partition_count(count: int) -> None:
    """Raises Rejected unless a topic may have `count` partitions."""
    _limit("partitions", count, 1, MAX_PARTITIONS_PER_TOPIC)


def check_room(used: int, more: int) -> None:
    """Raises Rejected unless the cluster may have `more` partitions beside those it has."""
    if used + more > MAX_PARTITIONS:
        text = f"{more} more: the cluster has {used}, its limit is {MAX_PARTITIONS}"
        raise invalid("partitions", text, f"..{MAX_PARTITIONS - used}")


def check_more_partitions(now: int, wanted: int) -> None:
    """Raises Rejected unless a topic of `now` partitions may have `wanted`."""
    if wanted <= now:
        text = f"{wanted} must be more than the topic has, {now}: partitions are never taken away"
        raise invalid("partitions", text, f"{now + 1}..{MAX_PARTITIONS_PER_TOPIC}")
    check_partition_count(wanted)


def check_replica_count(count: int) -> None:
    """Raises Rejected unless a partition may have `count` replicas."""
    _limit("replicas", count, 1, MAX_REPLICAS)


def check_placements(placements: Sequence[Sequence[int]], known: Collection[int]) -> None:
    """Raises Rejected unless each partition has different, known nodes, all equally many."""
    check_partition_count(len(placements))
    count = len(placements[0])
    check_replica_count(count)
    for number, replicas in enumerate(placements):
        if len(replicas) != count:
            raise _misplaced(number, f"has {len(replicas)} replicas, partition 0 has {count}")
        if len(set(replicas)) != count:
            raise _misplaced(number, f"names a node twice: {list(replicas)}")
        for node_id in replicas:
            if node_id not in known:
                raise _misplaced(number, f"names node {node_id}, which is not in the cluster")


def check_replicas(replicas: Sequence[int], known: Collection[int]) -> None:
    """Raises Rejected unless a partition may be held by these nodes."""
    check_replica_count(len(replicas))
    if len(set(replicas)) != len(replicas):
        raise invalid("replicas", f"names a node twice: {list(replicas)}")
    for node_id in replicas:
        if node_id not in known:
            raise invalid("replicas", f"names node {node_id}, which is not in the cluster")


def _misplaced(number: int, text: str) -> Rejected:
    return invalid("placements", f"partition {number} {text}")


def _limit(name: str, value: int, low: int, high: int, *, unlimited: bool = False) -> None:
    if not low <= value <= high and not (unlimited and value == UNLIMITED):
        also = ", or -1 for no limit" if unlimited else ""
        limit = f"{low}..{high}{also}"
        raise invalid(name, f"{value} must be {limit}", limit)
