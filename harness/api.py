"""Raw gRPC to one node, and batches made by hand.

There is no retry, no leader search and no cache: a test sees each of the node's answers. Only
lease tokens are filled in (`lease_tokens.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import crc32c
import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.lease_tokens import Tokens
from oncelog.v1 import (
    batch_pb2,
    cluster_pb2,
    cluster_pb2_grpc,
    group_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    observe_pb2_grpc,
    producer_pb2,
    producer_pb2_grpc,
    sink_pb2_grpc,
    transaction_pb2_grpc,
)

CALL_TIMEOUT = 20.0  # seconds
FETCH_BYTES = 4 * 1024 * 1024
PAGE = 1000  # producers per DescribeProducers
CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 2000),  # the shortest limit of an attempt to connect
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]

Batch = batch_pb2.Batch
Result = log_pb2.BatchResult
Stored = batch_pb2.StoredBatch


def batch(
    topic: str,
    partition: int,
    producer_id: int,
    sequence: int,
    payload: bytes,
    *,
    epoch: int = 0,
    count: int = 1,
    last: int | None = None,
    prev: int | None = None,
    expected_offset: int | None = None,
    crc: int | None = None,
    batch_id: int = 0,
    codec: int = 1,  # a node does not read compressed bytes: any bytes will do
    transaction_id: int = 0,
) -> Batch:
    """A batch with the header fields of the arguments, right or wrong."""
    header = batch_pb2.BatchHeader(
        topic=topic,
        partition=partition,
        producer_id=producer_id,
        epoch=epoch,
        base_sequence=sequence,
        record_count=count,
        last_sequence=last,
        prev_sequence=prev,
        expected_offset=expected_offset,
        transaction_id=transaction_id,
        codec=codec,  # type: ignore[arg-type]
        crc32c=crc32c.crc32c(payload) if crc is None else crc,
    )
    return Batch(header=header, payload=payload, id=batch_id)


def verdict(result: Result) -> str:
    """The verdict's name without its prefix."""
    return log_pb2.Verdict.Name(result.verdict).removeprefix("VERDICT_")


def as_call(error: grpc.RpcError) -> grpc.Call:
    """Casts a failed call's error to the call that it also is."""
    return cast(grpc.Call, error)


def reason(error: grpc.RpcError) -> str:
    """ErrorInfo.reason of a failed call; empty if the error carries none."""
    for key, value in as_call(error).trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return str(info.reason)
    return ""


FILES = ("tls_ca_file", "tls_key_file", "tls_cert_file")


def environment_files() -> dict[str, str]:
    found = {name: os.environ.get(f"ONCELOG_CLIENT_{name.upper()}", "") for name in FILES}
    return {name: path for name, path in found.items() if path}


def credentials(files: Mapping[str, str]) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        *(Path(files[name]).read_bytes() if name in files else None for name in FILES)
    )


@dataclass(frozen=True, slots=True)
class Lease:
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


class Api:
    """All services of the node at one address. Closes its channel with `close`."""

    def __init__(
        self,
        address: str,
        tokens: Tokens | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Opens a channel to the node at `address`.

        tokens: the cluster's, for a test that leases at one node and writes at another.
        files: TLS files by the names of the client's settings; empty: no TLS; None: the files
        of the environment, as for every client.
        """
        files = environment_files() if files is None else files
        self.address = address
        if files:
            self.channel = grpc.secure_channel(address, credentials(files), options=CHANNEL_OPTIONS)
        else:
            self.channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        proving = grpc.intercept_channel(self.channel, tokens or Tokens())
        self.log = log_pb2_grpc.LogServiceStub(proving)
        self.producers = producer_pb2_grpc.ProducerServiceStub(proving)
        self.transactions = transaction_pb2_grpc.TransactionServiceStub(proving)
        self.sinks = sink_pb2_grpc.SinkServiceStub(proving)
        self.cluster = cluster_pb2_grpc.ClusterServiceStub(self.channel)
        self.groups = group_pb2_grpc.GroupServiceStub(self.channel)
        self.observe = observe_pb2_grpc.ObserveServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def serving(self, timeout: float) -> bool:
        """Waits until the node reports SERVING; False after the timeout or if the node ends first.

        A node that shuts down during the watch cancels the call.
        """
        watch = self.health.Watch(
            health_pb2.HealthCheckRequest(), timeout=timeout, wait_for_ready=True
        )
        try:
            for answer in watch:
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return True
        except grpc.RpcError as error:
            expected = (
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.CANCELLED,
            )
            if as_call(error).code() not in expected:
                raise
        finally:
            watch.cancel()
        return False

    def lease(self, name: str = "") -> Lease:
        answer = self.producers.LeaseProducer(
            producer_pb2.LeaseProducerRequest(producer_name=name), timeout=CALL_TIMEOUT
        )
        return Lease(answer.producer_id, answer.epoch)

    def produce(
        self, *batches: Batch, timeout_ms: int = 0, timeout: float = CALL_TIMEOUT
    ) -> list[Result]:
        """Sends one unary call; `timeout` is the client's, in seconds. Raises grpc.RpcError."""
        answer = self.log.Produce(
            log_pb2.ProduceRequest(batches=batches, timeout_ms=timeout_ms), timeout=timeout
        )
        return list(answer.results)

    def produce_stream(self, *batches: Batch) -> list[Result]:
        """Sends batches on one stream, one request each; returns results in order of arrival."""
        requests = (log_pb2.ProduceRequest(batches=[one]) for one in batches)
        answers = self.log.ProduceStream(requests, timeout=CALL_TIMEOUT)
        return [result for answer in answers for result in answer.results]

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 0, **config: int
    ) -> cluster_pb2.TopicInfo:
        """Creates a topic. `config`: fields of TopicConfig."""
        request = cluster_pb2.CreateTopicRequest(
            name=name,
            partitions=partitions,
            replicas=replicas,
            config=cluster_pb2.TopicConfig(**config),  # type: ignore[arg-type]
        )
        answer: cluster_pb2.TopicInfo = self.cluster.CreateTopic(
            request, timeout=CALL_TIMEOUT
        ).topic
        return answer

    def topic(self, name: str, *, timeout: float = CALL_TIMEOUT) -> cluster_pb2.TopicInfo:
        answer = self.cluster.DescribeTopics(
            cluster_pb2.DescribeTopicsRequest(names=[name]), timeout=timeout
        )
        info: cluster_pb2.TopicInfo = answer.topics[0]
        return info

    def topics(self, *, timeout: float = CALL_TIMEOUT) -> list[cluster_pb2.TopicInfo]:
        """Lists all topics."""
        request = cluster_pb2.DescribeTopicsRequest()
        return list(self.cluster.DescribeTopics(request, timeout=timeout).topics)

    def describe(self) -> cluster_pb2.DescribeClusterResponse:
        answer: cluster_pb2.DescribeClusterResponse = self.cluster.DescribeCluster(
            cluster_pb2.DescribeClusterRequest(), timeout=CALL_TIMEOUT
        )
        return answer

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        any_replica: bool = False,
        max_bytes: int = FETCH_BYTES,
        min_bytes: int = 0,
        max_wait_ms: int = 0,
        timeout: float = CALL_TIMEOUT,
    ) -> log_pb2.PartitionRecords:
        """Fetches from one partition once."""
        answer = self.log.Fetch(
            log_pb2.FetchRequest(
                partitions=[
                    log_pb2.PartitionFetch(topic=topic, partition=partition, offset=offset)
                ],
                max_bytes=max_bytes,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
                any_replica=any_replica,
            ),
            timeout=timeout + max_wait_ms / 1000,
        )
        records: log_pb2.PartitionRecords = answer.partitions[0]
        return records

    def offset(self, topic: str, partition: int, which: str, *, any_replica: bool = False) -> int:
        """Asks for an offset. `which`: earliest or latest. Raises AssertionError if refused."""
        asked: dict[str, Any] = {which: True}
        answer = self.log.ListOffsets(
            log_pb2.ListOffsetsRequest(
                queries=[log_pb2.OffsetQuery(topic=topic, partition=partition, **asked)],
                any_replica=any_replica,
            ),
            timeout=CALL_TIMEOUT,
        )
        result = answer.results[0]
        assert not result.error, result
        return int(result.offset)

    def stored(
        self, topic: str, partition: int, *, any_replica: bool = True, start: int | None = None
    ) -> Iterator[Stored]:
        """All batches from the log's start (or `start`) to the high watermark."""
        offset = start
        if offset is None:
            offset = self.offset(topic, partition, "earliest", any_replica=any_replica)
        while True:
            records = self.fetch(topic, partition, offset, any_replica=any_replica)
            assert not records.error, records
            if not records.batches:
                assert offset >= records.high_watermark, (offset, records)
                return
            yield from records.batches
            last = records.batches[-1]
            offset = last.base_offset + last.header.record_count

    def last_seen(
        self, topic: str, partition: int, *, any_replica: bool = True
    ) -> list[producer_pb2.ProducerState]:
        """Reads the partition's whole last-seen map."""
        states: list[producer_pb2.ProducerState] = []
        while True:
            page = self.producers.DescribeProducers(
                producer_pb2.DescribeProducersRequest(
                    topic=topic,
                    partition=partition,
                    after_producer_id=states[-1].producer_id if states else 0,
                    limit=PAGE,
                    any_replica=any_replica,
                ),
                timeout=CALL_TIMEOUT,
            ).producers
            states += page
            if len(page) < PAGE:
                return states
