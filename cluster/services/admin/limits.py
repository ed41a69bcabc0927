"""Limits of one request, for DescribeCluster: the numbers that the services enforce."""

from __future__ import annotations

from cluster.config.node_config import NodeConfig
from cluster.services.admin.producer_service import MAX_PARTITIONS_PER_CALL
from cluster.services.log.produce import MAX_BATCHES, MAX_WAITING_BYTES
from cluster.services.log.service import MAX_PARTITIONS, MAX_WAIT_MS
from oncelog.v1.cluster_pb2 import RequestLimits


def request_limits(config: NodeConfig) -> RequestLimits:
    return RequestLimits(
        produce_batches=MAX_BATCHES,
        fetch_partitions=MAX_PARTITIONS,
        fetch_wait_ms=MAX_WAIT_MS,
        producer_partitions=MAX_PARTITIONS_PER_CALL,
        produce_timeout_ms=config.request_timeout_ms,
        stream_waiting_bytes=MAX_WAITING_BYTES,
        fetch_bytes=config.fetch_max_bytes,
        message_bytes=config.max_message_bytes + config.fetch_max_bytes,
    )
