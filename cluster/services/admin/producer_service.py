"""ProducerService: producer ids and names, and the partitions' state of producers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from cluster.dedup.last_seen import ProducerEntry
from cluster.dedup.verdict import Kind, Verdict, validate_open
from cluster.errors import NotReadyError
from cluster.events.recorder import PRODUCER
from cluster.metadata.lease_tokens import SECRET_BYTES, sign
from cluster.metadata.producer_names import check_producer_name
from cluster.metadata.topics import (
    INVALID_REQUEST,
    UNKNOWN_TOPIC_OR_PARTITION,
    Rejected,
    is_internal,
)
from cluster.partition.types import Answer
from cluster.security.caller import CALLER
from cluster.services.context import NodeContext
from cluster.services.errors import accepted
from cluster.services.log.lease_checks import Leases
from cluster.services.log.quota_checks import new_producer
from cluster.services.outcomes import called_back
from cluster.services.requests import (
    count_in_range,
    invalid,
    not_negative,
    page_size,
    timeout_s,
)
from cluster.services.routing import leading, locate, replica_here
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1 import batch_pb2
from oncelog.v1 import producer_pb2 as pb

MAX_PARTITIONS_PER_CALL = 20_000
DEFAULT_DESCRIBED = 100
MAX_DESCRIBED = 1000


class ProducerService:
    """Answers for one node.

    `now_ms` is the wall clock, milliseconds since the Unix epoch; `new_nonce` gives
    random 64-bit numbers that no one can guess.
    """

    def __init__(
        self,
        node: NodeContext,
        *,
        now_ms: Callable[[], int],
        new_nonce: Callable[[], int],
    ) -> None:
        self.node = node
        self._now_ms = now_ms
        self._new_nonce = new_nonce
        self._leases = Leases(node)

    async def LeaseProducer(self, request: pb.LeaseProducerRequest) -> pb.LeaseProducerResponse:
        count_in_range("partitions", len(request.partitions), 0, MAX_PARTITIONS_PER_CALL)
        secret = await self.lease_secret()
        if request.producer_name:
            producer_id, epoch, since_ms = await self._lease_name(request)
        else:
            for field in ("nonce", "held_producer_id", "held_epoch"):
                if getattr(request, field):
                    raise invalid(field, "needs a producer_name")
            producer_id, epoch, since_ms = await self._lease_fresh()
        expire_ms = since_ms + self.node.metadata.lease_lifetime_ms
        lifetime_ms = expire_ms - self._now_ms()
        if lifetime_ms <= 0:
            # Only a clock that jumped, or an equally slow commit, causes this.
            raise NotReadyError(f"producer id {producer_id} expired before it was handed out")
        self.node.metrics.leases += 1
        if request.producer_name:
            self._note("leased", request.producer_name, producer_id, epoch)
        return pb.LeaseProducerResponse(
            producer_id=producer_id,
            epoch=epoch,
            expire_ms=expire_ms,
            lifetime_ms=lifetime_ms,
            lease_token=sign(secret, producer_id, epoch, expire_ms, CALLER.get().principal),
            partitions=[
                self._partition_lease(partition, producer_id, epoch, expire_ms)
                for partition in request.partitions
            ],
        )

    async def OpenProducer(self, request: pb.OpenProducerRequest) -> pb.OpenProducerResponse:
        count_in_range("partitions", len(request.partitions), 0, MAX_PARTITIONS_PER_CALL)
        fault = validate_open(request.producer_id, request.epoch)
        if fault is not None:
            raise Rejected(INVALID_REQUEST, fault.message)
        pid, epoch = request.producer_id, request.epoch
        verdict = await self._leases.check(request.lease_token, pid, epoch)
        if verdict is not None:
            return pb.OpenProducerResponse(
                partitions=[_refused(partition, verdict) for partition in request.partitions]
            )
        answers: list[Awaitable[pb.OpenedPartition]] = [
            self._open(partition, pid, epoch) for partition in request.partitions
        ]
        return pb.OpenProducerResponse(partitions=await asyncio.gather(*answers))

    async def DescribeProducers(
        self, request: pb.DescribeProducersRequest
    ) -> pb.DescribeProducersResponse:
        limit = page_size(request.limit, DEFAULT_DESCRIBED, MAX_DESCRIBED)
        not_negative(request, "producer_id", "after_producer_id")
        find = replica_here if request.any_replica else leading
        replica = find(self.node, request.topic, request.partition)
        if request.producer_id:
            entry = replica.last_seen.describe(request.producer_id)
            entries = [] if entry is None else [entry]
        else:
            entries = replica.last_seen.scan(request.after_producer_id, limit)
        return pb.DescribeProducersResponse(producers=[_state(entry) for entry in entries])

    async def FenceProducer(self, request: pb.FenceProducerRequest) -> pb.FenceProducerResponse:
        result = await self._change_name(
            meta.LeaseName(name=request.producer_name, fence_only=True, nonce=request.nonce)
        )
        self._note("fenced", request.producer_name, result.producer_id, result.epoch)
        return pb.FenceProducerResponse(producer_id=result.producer_id, epoch=result.epoch)

    async def ListProducerNames(
        self, request: pb.ListProducerNamesRequest
    ) -> pb.ListProducerNamesResponse:
        return pb.ListProducerNamesResponse(
            names=[
                pb.ProducerName(
                    name=name.name,
                    producer_id=name.producer_id,
                    epoch=name.epoch,
                    last_lease_ms=name.last_lease_ms,
                )
                for name in self.node.metadata.names()
            ]
        )

    def _note(self, what: str, name: str, producer_id: int, epoch: int) -> None:
        """Note an event of a named producer. Ids without a name are leased too often for that."""
        self.node.metrics.events.note(
            PRODUCER,
            "producer",
            name,
            f"{what} producer {producer_id} as epoch {epoch}",
            same=(what, producer_id, epoch),
            producer_id=producer_id,
            epoch=epoch,
            principal=CALLER.get().principal,
            address=CALLER.get().address,
        )

    # --- leases --------------------------------------------------------------------

    async def lease_secret(self) -> bytes:
        """Return the key of lease tokens; made with the cluster's first lease."""
        if not self.node.metadata.lease_secret:
            words = [self._new_nonce() for _ in range(SECRET_BYTES // 8)]
            secret = b"".join(word.to_bytes(8, "little") for word in words)
            command = meta.MetadataCommand(
                create_lease_secret=meta.CreateLeaseSecret(secret=secret)
            )
            timeout = self.node.config.request_timeout_ms / 1000
            accepted(await self.node.propose_metadata(command, timeout))
        return self.node.metadata.lease_secret

    async def _lease_fresh(self) -> tuple[int, int, int]:
        """Lease an unnamed id; returns (producer id, epoch, start of the lease)."""
        producer_id = await self.node.next_producer_id()
        since_ms = self.node.metadata.issued_ms(producer_id)
        if since_ms is None:
            raise NotReadyError(f"producer id {producer_id} expired before it was handed out")
        return producer_id, 0, since_ms

    async def _lease_name(self, request: pb.LeaseProducerRequest) -> tuple[int, int, int]:
        not_negative(request, "held_producer_id", "held_epoch")
        result = await self._change_name(
            meta.LeaseName(
                name=request.producer_name,
                nonce=request.nonce,
                held_producer_id=request.held_producer_id,
                held_epoch=request.held_epoch,
            )
        )
        return result.producer_id, result.epoch, result.stamp_ms

    async def _change_name(self, change: meta.LeaseName) -> meta.MetadataResult:
        check_producer_name(change.name)
        # This call and its client may propose it more than once; the nonce makes it one change.
        change.nonce = change.nonce or self._new_nonce()
        result = await self.node.propose_metadata(
            meta.MetadataCommand(lease_name=change), self.node.config.request_timeout_ms / 1000
        )
        held = self.node.metadata.name(change.name)
        epoch = 0 if held is None else held.epoch
        return accepted(result, producer_name=change.name, current_epoch=epoch)

    def _partition_lease(
        self, partition: batch_pb2.TopicPartition, producer_id: int, epoch: int, expire_ms: int
    ) -> pb.PartitionLease:
        lease = pb.PartitionLease(topic=partition.topic, partition=partition.partition)
        if self.node.metadata.group_of(partition.topic, partition.partition) is None:
            lease.error = UNKNOWN_TOPIC_OR_PARTITION
            return lease
        # A fresh id and a raised epoch both start at sequence 0.
        lease.producer_id, lease.epoch, lease.expire_ms = producer_id, epoch, expire_ms
        return lease

    # --- partitions ----------------------------------------------------------------

    async def _open(
        self, partition: batch_pb2.TopicPartition, producer_id: int, epoch: int
    ) -> pb.OpenedPartition:
        """Return one partition's line; the client asks each leader for its own."""
        opened = _line(partition)
        located = locate(self.node, partition.topic, partition.partition)
        if located is None or is_internal(partition.topic):
            opened.error = UNKNOWN_TOPIC_OR_PARTITION
            return opened
        if located.replica is None:
            return self._not_leader(opened, located.leader_id)
        exceeded = new_producer(located.replica, producer_id)
        if exceeded is not None:
            opened.error, opened.message = exceeded.kind.name, exceeded.message
            return opened
        open_producer = partial(located.replica.open_producer, producer_id, epoch)
        try:
            async with asyncio.timeout(timeout_s(0, self.node)):
                answer: Answer = await called_back(open_producer)
        except TimeoutError:
            opened.error = Kind.TIMEOUT.name
            return opened
        verdict = answer.verdict
        if verdict.kind is Kind.NOT_LEADER:
            return self._not_leader(opened, answer.leader_id)
        opened.current_epoch = verdict.current_epoch
        opened.message = verdict.message
        if verdict.kind is Kind.APPENDED:
            opened.last_sequence, opened.last_offset = verdict.last_sequence, verdict.base_offset
            self.node.metrics.events.note(
                PRODUCER,
                "topic",
                partition.topic,
                f"producer {producer_id} opened epoch {epoch}, lower epochs are fenced",
                partition=partition.partition,
                producer_id=producer_id,
                epoch=epoch,
                sequences=(verdict.last_sequence, verdict.last_sequence),
                offset=verdict.base_offset,
                principal=CALLER.get().principal,
                address=CALLER.get().address,
            )
        else:
            opened.error = verdict.kind.name
        return opened

    def _not_leader(self, opened: pb.OpenedPartition, leader: int) -> pb.OpenedPartition:
        opened.error = Kind.NOT_LEADER.name
        opened.leader_id = leader
        opened.leader_address = self.node.metadata.nodes.get(leader, "")
        return opened


def _line(partition: batch_pb2.TopicPartition) -> pb.OpenedPartition:
    return pb.OpenedPartition(
        topic=partition.topic,
        partition=partition.partition,
        last_sequence=-1,
        last_offset=-1,
        current_epoch=-1,
    )


def _refused(partition: batch_pb2.TopicPartition, verdict: Verdict) -> pb.OpenedPartition:
    opened = _line(partition)
    opened.error, opened.message = verdict.kind.name, verdict.message
    return opened


def _state(entry: ProducerEntry) -> pb.ProducerState:
    return pb.ProducerState(
        producer_id=entry.producer_id,
        epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_append_ms=entry.last_append_ms,
        recent=[
            pb.RecentBatch(
                first_sequence=batch.first,
                last_sequence=batch.last,
                base_offset=batch.base_offset,
                record_count=batch.count,
                crc32c=batch.crc,
            )
            for batch in entry.recent
        ],
    )
