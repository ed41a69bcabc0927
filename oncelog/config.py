"""Settings of producers, consumers and admin clients: defaults, checks, Kafka's names.

Place in the flow: each client class builds one of these from its keyword arguments (or from a
mapping with dotted Kafka names, `from_config`) and hands it to the engine. A setting is accepted as
given or rejected; none is silently repaired. An error names every setting that takes part in a
contradiction.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, get_args

from oncelog.errors import ConfigError
from oncelog.settings import (
    Assignor,
    CompressionType,
    OffsetReset,
    OnPartitions,
    OnRevoked,
    Partitioner,
)
from oncelog.types import ProducerIdentity
from oncelog.wire.batch import BATCH_OVERHEAD, MAX_PAYLOAD_BYTES
from oncelog.wire.compression import CODECS, require_codec

# Nodes to start from, if the caller names none: this variable's, or a node on this machine.
BOOTSTRAP_ENV = "ONCELOG_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "127.0.0.1:7001"
MAX_NAME_CHARS = 249
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
# Read from ONCELOG_CLIENT_* if the caller gives none of them.
SECURITY_SETTINGS = (
    "tls", "tls_ca_file", "tls_cert_file", "tls_key_file", "token_file", "token",
)  # fmt: skip
ENV_PREFIX = "ONCELOG_CLIENT_"
_NAME = re.compile(r"[A-Za-z0-9._:/@=+ -]+")


def _range(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        kind = type(value).__name__
        raise ConfigError(f"{name} must be an integer, got {value!r} of type {kind}", name)
    if not low <= value <= high:
        raise ConfigError(f"{name} must be from {low} to {high}, got {value}", name)


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}", name)


def _choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}", name)


# A name or an address; gRPC resolves it.
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]|[^\s:/?#%\[\]]+")
_PORT = re.compile(r"[0-9]{1,5}")


def parse_bootstrap(servers: object, name: str = "bootstrap_servers") -> tuple[str, ...]:
    """Parse `"a:1,b:2"`, or a sequence of such strings, into addresses."""
    if isinstance(servers, str):
        servers = [servers]
    if not isinstance(servers, list | tuple):
        raise ConfigError(f"{name} must be 'host:port,...' or a list, got {servers!r}", name)
    joined = ",".join(map(str, servers))
    if "@" in joined:  # not printed: it may hold a password
        text = f"{name}: an address has no user and no password; pass a token by token_file"
        raise ConfigError(text, name)
    parts = joined.split(",")
    addresses = [address for part in parts if (address := part.strip())]
    if not addresses:
        raise ConfigError(f"{name} is empty: name at least one node as host:port", name)
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
            is_ipv6 = address.count(":") > 1 and "/" not in address
            hint = "; an IPv6 host stands in brackets: [::1]:7001" if is_ipv6 else ""
            raise ConfigError(f"{name}: {address!r} is not host:port{hint}", name)
    return tuple(dict.fromkeys(addresses))


def default_bootstrap() -> tuple[str, ...]:
    """Return the addresses in BOOTSTRAP_ENV, or DEFAULT_BOOTSTRAP. Raises ConfigError."""
    return parse_bootstrap(os.environ.get(BOOTSTRAP_ENV) or DEFAULT_BOOTSTRAP, BOOTSTRAP_ENV)


def bootstrap_of(given: object) -> tuple[str, ...]:
    """Return the addresses of an argument; None: the default. Raises ConfigError."""
    return default_bootstrap() if given is None else parse_bootstrap(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of all clients. Times in milliseconds.

    bootstrap_servers: Nodes to start from, "host:port,..." or a list; the client learns of the
        others. By default the list in ONCELOG_BOOTSTRAP, or a node at 127.0.0.1:7001.
    client_id: Name of the client: its user agent, and its part in the hosts of a group's members.
    request_timeout_ms: Limit of one attempt; after it the request is tried again at another node.
    retry_backoff_ms: First pause before a retry; it doubles with each failure.
    retry_backoff_max_ms: Longest pause before a retry.
    metadata_max_age_ms: Interval between refreshes of topics and leaders without a reason.
    tls: Use TLS; implied by the files. Without a CA file the system's CAs are trusted.
    tls_ca_file: PEM file with the CAs of the nodes.
    tls_cert_file: PEM file with this client's certificate; needs tls_key_file.
    tls_key_file: PEM file with the key of the certificate.
    token_file: File with a token, read again when it changes; sent over TLS only.
    token: The token itself, instead of token_file.
    """

    bootstrap_servers: tuple[str, ...] = field(default_factory=default_bootstrap)
    client_id: str = "oncelog-python"
    request_timeout_ms: int = 10_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    token_file: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def secured(self) -> bool:
        """True if the client uses TLS."""
        return self.tls or self.tls_ca_file is not None or self.tls_cert_file is not None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap_servers", parse_bootstrap(self.bootstrap_servers))
        _range("request_timeout_ms", self.request_timeout_ms, 1, MAX_INT32)
        _range("retry_backoff_ms", self.retry_backoff_ms, 1, MAX_INT32)
        _range("retry_backoff_max_ms", self.retry_backoff_max_ms, 1, MAX_INT32)
        _range("metadata_max_age_ms", self.metadata_max_age_ms, 100, MAX_INT32)
        self._check_security()
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigError(
                f"retry_backoff_max_ms={self.retry_backoff_max_ms} is below "
                f"retry_backoff_ms={self.retry_backoff_ms}",
                "retry_backoff_max_ms",
                "retry_backoff_ms",
            )

    def _check_security(self) -> None:
        """Take the security settings of the environment if the caller gives none."""
        if not any(getattr(self, name) for name in SECURITY_SETTINGS):
            for name in SECURITY_SETTINGS:
                value: object = os.environ.get(ENV_PREFIX + name.upper()) or None
                if name == "tls":
                    _choice(ENV_PREFIX + "TLS", value or "false", ("true", "false"))
                    value = value == "true"
                object.__setattr__(self, name, value)
        _flag("tls", self.tls)
        for name in SECURITY_SETTINGS[1:]:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{name} must be a non-empty string", name)
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigError(
                "tls_cert_file and tls_key_file belong together", "tls_cert_file", "tls_key_file"
            )
        if self.token is not None and self.token_file is not None:
            raise ConfigError("token contradicts token_file", "token", "token_file")
        for name in ("token", "token_file"):
            if getattr(self, name) is not None and not self.secured:
                text = f"{name} needs tls: in the clear everybody on the way could use it"
                raise ConfigError(text, name, "tls")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Build from keyword arguments. Raises ConfigError for a name that does not exist."""
        names = {field.name for field in dataclasses.fields(cls)}
        for name in settings:
            if name not in names:
                raise ConfigError(f"{cls._what()} has no setting {name!r}", name)
        return cls(**settings)

    @classmethod
    def _what(cls) -> str:
        return "a " + cls.__name__.removesuffix("Config").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of a Producer, beside those of ClientConfig. Times in milliseconds, sizes in bytes.

    producer_name: Stable name: a restart with the same name fences the instance before it.
    enable_idempotence: Store each record once, however often it is sent again.
    acks: Only "all": a record is acknowledged when it is on disk on a majority.
    retries: Attempts to send a batch again before delivery_timeout_ms is over.
    linger_ms: How long a batch that is not full waits for more records.
    batch_size: Payload size, before compression, at which a batch is closed; the topic's
        max_batch_bytes closes it too. It is closed earlier when linger_ms is over and it may be
        sent at once.
    buffer_memory: Limit of unsent and unacknowledged records in this process.
    max_block_ms: How long send may wait for room in the buffer or for a topic's metadata.
    compression_type: Codec of whole batches: "none", "zstd" or "lz4".
    compression_level: Level of the codec, for zstd from -131072 to 22; None: the codec's default.
    delivery_timeout_ms: Time after which an unacknowledged record fails.
    max_in_flight: Batches of one partition in flight. Up to 5 the cluster knows the offset of a
        repeated batch without looking it up.
    partitioner: Function of topic, key and partition count that returns the partition; None: by the
        key as in Kafka, and without a key one partition until its batch is closed.
    resume_from: Producer id, epoch and sequences to go on with, instead of a leased id.
    """

    producer_name: str | None = None
    enable_idempotence: bool = True
    acks: str | int = "all"
    retries: int = MAX_INT32
    linger_ms: int = 5
    batch_size: int = 1024 * 1024
    buffer_memory: int = 64 * 1024 * 1024
    max_block_ms: int = 60_000
    compression_type: CompressionType = "none"
    compression_level: int | None = None
    delivery_timeout_ms: int = 120_000
    max_in_flight: int = 5
    partitioner: Partitioner | None = None
    resume_from: ProducerIdentity | None = None

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _flag("enable_idempotence", self.enable_idempotence)
        _range("retries", self.retries, 0, MAX_INT32)
        _range("linger_ms", self.linger_ms, 0, MAX_INT32)
        _range("batch_size", self.batch_size, BATCH_OVERHEAD, MAX_PAYLOAD_BYTES)
        _range("buffer_memory", self.buffer_memory, 1, MAX_INT64)
        _range("max_block_ms", self.max_block_ms, 0, MAX_INT32)
        _range("delivery_timeout_ms", self.delivery_timeout_ms, 1, MAX_INT32)
        _range("max_in_flight", self.max_in_flight, 1, 1000)
        _choice("compression_type", self.compression_type, tuple(CODECS))
        if self.partitioner is not None and not callable(self.partitioner):
            raise ConfigError("partitioner must be callable", "partitioner")
        self._check_idempotence()
        self._check_identity()
        self._check_sizes_and_times()
        require_codec(CODECS[self.compression_type])

    def _check_idempotence(self) -> None:
        if self.acks not in ("all", -1, "-1"):
            also = " contradicts enable_idempotence=True" if self.enable_idempotence else ""
            raise ConfigError(
                f"acks={self.acks!r}{also}: acks must be 'all', a record is acknowledged when "
                "it is on stable storage on a majority",
                *(("acks", "enable_idempotence") if self.enable_idempotence else ("acks",)),
            )
        if self.enable_idempotence and self.retries < 1:
            raise ConfigError(
                "retries=0 contradicts enable_idempotence=True: without a retry a lost "
                "acknowledgement leaves a record's fate open",
                "retries",
                "enable_idempotence",
            )

    def _check_identity(self) -> None:
        if self.producer_name is not None:
            check_name("producer_name", self.producer_name)
            if not self.enable_idempotence:
                raise ConfigError(
                    f"producer_name={self.producer_name!r} contradicts enable_idempotence=False",
                    "producer_name",
                    "enable_idempotence",
                )
        if self.resume_from is None:
            return
        if not isinstance(self.resume_from, ProducerIdentity):
            raise ConfigError("resume_from must be a ProducerIdentity", "resume_from")
        if not self.enable_idempotence:
            raise ConfigError(
                "resume_from contradicts enable_idempotence=False",
                "resume_from",
                "enable_idempotence",
            )
        if self.producer_name is not None:
            raise ConfigError(
                "resume_from contradicts producer_name: a name has its own producer id",
                "resume_from",
                "producer_name",
            )
        _range("resume_from.producer_id", self.resume_from.producer_id, 1, MAX_INT64)
        _range("resume_from.epoch", self.resume_from.epoch, 0, MAX_INT32)
        for partition, sequence in self.resume_from.next_sequences.items():
            _range(f"resume_from.next_sequences[{partition}]", sequence, 0, MAX_INT64)

    def _check_sizes_and_times(self) -> None:
        if self.batch_size > self.buffer_memory:
            raise ConfigError(
                f"batch_size={self.batch_size} does not fit into "
                f"buffer_memory={self.buffer_memory}",
                "batch_size",
                "buffer_memory",
            )
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery_timeout_ms={self.delivery_timeout_ms} is below "
                f"linger_ms={self.linger_ms} + request_timeout_ms={self.request_timeout_ms}: "
                "a record would be given up while it waits for its first answer",
                "delivery_timeout_ms",
                "linger_ms",
                "request_timeout_ms",
            )
        if self.compression_level is not None:
            _range("compression_level", self.compression_level, -131072, 22)
            if self.compression_type == "none":
                raise ConfigError(
                    f"compression_level={self.compression_level} contradicts "
                    "compression_type='none'",
                    "compression_level",
                    "compression_type",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Settings of a Consumer, beside those of ClientConfig. Times in milliseconds, sizes in bytes.

    group_id: Group that keeps the offsets, and shares its topics out among its members.
    membership: "assigned": the nodes share topics out among the group's members. "manual": the
        group only keeps offsets, and each consumer reads its assigned partitions.
    group_instance_id: Name that outlives the process: a restart within the session continues the
        membership.
    assignor: How the group shares partitions out: "uniform", over all topics, or "range", by topic.
        The group's first member sets this and the next three.
    session_timeout_ms: Time without a heartbeat after which a member expires.
    revoke_timeout_ms: Time that a member has to give a partition back.
    processing_timeout_ms: Longest time between two reads before a member loses its partitions.
    enable_auto_commit: Commit the records of earlier reads: periodically, and before partitions are
        given back.
    auto_commit_interval_ms: Period of these commits.
    on_assigned: Called with new partitions, by reading calls and close, on their thread. A
        coroutine function in oncelog.aio; the same for the next two.
    on_revoked: Called before partitions are given back, with a deadline (time.monotonic).
    on_lost: Called with partitions that are gone: nothing can be committed for them.
    auto_offset_reset: Start without a position, or after it is out of range: "earliest", "latest",
        or "none", which raises OffsetOutOfRangeError.
    isolation_level: Has no effect, kept for programs that set it: staged records of a transaction
        have no offset yet, so they are unreadable and hold up no reader.
    fetch_min_bytes: Bytes that a node waits for before it answers.
    fetch_max_wait_ms: How long a node waits for fetch_min_bytes.
    fetch_max_bytes: Limit of one answer.
    max_partition_fetch_bytes: Limit of one partition in an answer, and of its read-ahead in this
        process.
    max_poll_records: Most records that one getmany returns.
    consumer_timeout_ms: Iteration ends after this long without a record; None: never.
    check_crcs: Compare each batch with its checksum.
    any_replica: Read from any replica up to its own high watermark, not only from leaders.
    replica_node_id: With any_replica: only from this node.
    rack: Read from a replica in this rack that keeps up with its leader; where there is none, from
        the leader.
    """

    group_id: str | None = None
    membership: str = "assigned"
    group_instance_id: str | None = None
    assignor: Assignor = "uniform"
    session_timeout_ms: int = 10_000
    revoke_timeout_ms: int = 60_000
    processing_timeout_ms: int = 300_000
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    on_assigned: OnPartitions | None = None
    on_revoked: OnRevoked | None = None
    on_lost: OnPartitions | None = None
    auto_offset_reset: OffsetReset = "latest"
    isolation_level: str = "read_committed"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 16 * 1024 * 1024
    max_partition_fetch_bytes: int = 4 * 1024 * 1024
    max_poll_records: int = 10_000
    consumer_timeout_ms: int | None = None
    check_crcs: bool = True
    any_replica: bool = False
    replica_node_id: int | None = None
    rack: str | None = None

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _choice("auto_offset_reset", self.auto_offset_reset, get_args(OffsetReset))
        _choice("isolation_level", self.isolation_level, ("read_committed", "read_uncommitted"))
        _range("fetch_min_bytes", self.fetch_min_bytes, 0, MAX_INT32)
        _range("fetch_max_wait_ms", self.fetch_max_wait_ms, 0, MAX_INT32)
        _range("fetch_max_bytes", self.fetch_max_bytes, 1, MAX_INT32)
        _range("max_partition_fetch_bytes", self.max_partition_fetch_bytes, 1, MAX_INT32)
        _range("max_poll_records", self.max_poll_records, 1, MAX_INT32)
        _flag("check_crcs", self.check_crcs)
        _flag("any_replica", self.any_replica)
        self._check_group()
        if self.consumer_timeout_ms is not None:
            _range("consumer_timeout_ms", self.consumer_timeout_ms, 0, MAX_INT32)
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                f"fetch_max_wait_ms={self.fetch_max_wait_ms} must be below "
                f"request_timeout_ms={self.request_timeout_ms}",
                "fetch_max_wait_ms",
                "request_timeout_ms",
            )
        if self.replica_node_id is not None:
            _range("replica_node_id", self.replica_node_id, 1, MAX_INT32)
            if not self.any_replica:
                raise ConfigError(
                    "replica_node_id needs any_replica=True", "replica_node_id", "any_replica"
                )
        if self.rack is not None:
            check_name("rack", self.rack)
            if self.any_replica:
                raise ConfigError("rack excludes any_replica", "rack", "any_replica")

    def _check_group(self) -> None:
        for name in ("group_id", "group_instance_id"):
            if getattr(self, name) is not None:
                check_name(name, getattr(self, name))
        _choice("membership", self.membership, ("assigned", "manual"))
        _choice("assignor", self.assignor, get_args(Assignor))
        _range("session_timeout_ms", self.session_timeout_ms, 1000, 30 * 60_000)
        _range("revoke_timeout_ms", self.revoke_timeout_ms, 1000, 60 * 60_000)
        _range("processing_timeout_ms", self.processing_timeout_ms, 1000, 24 * 60 * 60_000)
        _range("auto_commit_interval_ms", self.auto_commit_interval_ms, 1, MAX_INT32)
        _flag("enable_auto_commit", self.enable_auto_commit)
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ConfigError(f"{name} must be callable", name)
        if self.group_id is None or self.membership == "manual":
            given = (
                "group_instance_id", "enable_auto_commit", "on_assigned", "on_revoked", "on_lost",
            )  # fmt: skip
            for name in given:
                if getattr(self, name):
                    text = f"{name} is for members of a group"
                    raise ConfigError(
                        f"{text}: it needs a group_id, and membership='assigned'",
                        name, "group_id", "membership",
                    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Settings of an Admin: those of ClientConfig."""


def reading_config(config: ClientConfig) -> ConsumerConfig:
    """Return the settings of a consumer with the connections of another client."""
    shared = {one.name: getattr(config, one.name) for one in dataclasses.fields(ClientConfig)}
    return ConsumerConfig(**shared, fetch_max_wait_ms=0)


def check_name(setting: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{setting} must be a non-empty string, got {name!r}", setting)
    if len(name) > MAX_NAME_CHARS:
        raise ConfigError(f"{setting} has {len(name)} characters, limit {MAX_NAME_CHARS}", setting)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{setting} {name!r} has a character outside A-Z a-z 0-9 ._:/@=+-", setting
        )


__all__ = [
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "ProducerConfig",
    "bootstrap_of",
    "default_bootstrap",
    "parse_bootstrap",
    "reading_config",
]
