"""Keyword arguments of the clients, with their types; `oncelog.config` explains them.

Place in the flow: constructors unpack these for type checkers and editors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from oncelog.types import ProducerIdentity, TopicPartition

# (topic, key, partition count) -> partition. A keyless record has the key None.
Partitioner = Callable[[str, bytes | None, int], int]
CompressionType = Literal["none", "zstd", "lz4"]
OffsetReset = Literal["earliest", "latest", "none"]
Assignor = Literal["uniform", "range"]
# Receives the partitions that a member gains or loses; a coroutine function in oncelog.aio.
OnPartitions = Callable[[list[TopicPartition]], Any]
OnRevoked = Callable[[list[TopicPartition], float], Any]


class ClientSettings(TypedDict, total=False):
    """Keyword arguments that every client takes."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    tls: bool
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    token_file: str | None
    token: str | None


class ProducerSettings(ClientSettings, total=False):
    """Keyword arguments of Producer; ProducerConfig explains them."""

    producer_name: str | None
    enable_idempotence: bool
    acks: str | int
    retries: int
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    compression_type: CompressionType
    compression_level: int | None
    delivery_timeout_ms: int
    max_in_flight: int
    partitioner: Partitioner | None
    resume_from: ProducerIdentity | None


class ConsumerSettings(ClientSettings, total=False):
    """Keyword arguments of Consumer; ConsumerConfig explains them."""

    group_id: str | None
    membership: str
    group_instance_id: str | None
    assignor: Assignor
    session_timeout_ms: int
    revoke_timeout_ms: int
    processing_timeout_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    on_assigned: OnPartitions | None
    on_revoked: OnRevoked | None
    on_lost: OnPartitions | None
    auto_offset_reset: OffsetReset
    isolation_level: str
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    consumer_timeout_ms: int | None
    check_crcs: bool
    any_replica: bool
    replica_node_id: int | None
    rack: str | None


__all__ = [
    "Assignor",
    "ClientSettings",
    "CompressionType",
    "ConsumerSettings",
    "OffsetReset",
    "OnPartitions",
    "OnRevoked",
    "Partitioner",
    "ProducerSettings",
]
