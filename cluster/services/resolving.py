"""What became of a batch whose acknowledgement was lost: ResolveSequence, old duplicates.

LogService --> Resolver --> last-seen map, after a confirmation
                        --> cluster.partition.lookup, where the map no longer tells
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from cluster.dedup.verdict import (
    BatchMeta,
    Kind,
    Resolution,
    Resolved,
    Verdict,
    conflict,
    out_of_order,
    same_content,
)
from cluster.errors import ClusterError, NotLeaderError, NotReadyError
from cluster.partition.lookup import Found, Miss, find_batch, search_from, settled
from cluster.partition.replica import Answer, AnswerTo, Partition
from cluster.services.errors import to_public
from cluster.services.outcomes import applied, confirm, told
from oncelog import errors
from oncelog.v1 import log_pb2 as pb
from storage.errors import StorageError

log = logging.getLogger(__name__)

MAX_DUPLICATE_BATCHES = 20_000  # read back for the offset of one old duplicate
MAX_LOOKUPS = 256  # old duplicates whose offset is being looked up


class ResolverContext(Protocol):
    """What the node gives. Times in seconds."""

    request_timeout: float

    def address_of(self, node_id: int) -> str: ...

    def is_issued(self, producer_id: int) -> bool: ...

    async def confirm_issued(self, producer_id: int) -> bool: ...


class Resolver:
    """Answers from the state of partitions that this node leads."""

    def __init__(self, node: ResolverContext) -> None:
        self._node = node
        self._lookups: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Semaphore(1)

    # -- ResolveSequence ----------------------------------------------------------------

    async def answer(
        self,
        partition: Partition | None,
        why: pb.PartitionRecords,
        request: pb.ResolveSequenceRequest,
    ) -> pb.ResolveSequenceResponse | errors.OncelogError:
        """The answer, or the error to end the call with; `why` there is no partition here."""
        try:
            if partition is None:
                return _refusal(why)
            return await self._answered(partition, request)
        except NotLeaderError as error:
            address = self._node.address_of(error.leader_id)
            return errors.NotLeaderError(
                str(error), leader_id=error.leader_id, leader_address=address
            )
        except ClusterError as error:
            return to_public(error, {})
        except errors.OncelogError as error:
            return error

    async def _answered(
        self, partition: Partition, request: pb.ResolveSequenceRequest
    ) -> pb.ResolveSequenceResponse:
        for field in ("producer_id", "epoch", "sequence"):
            if getattr(request, field) < (field == "producer_id"):
                text = f"{field}: {getattr(request, field)} must be at least"
                raise errors.InvalidRequestError(
                    f"{text} {int(field == 'producer_id')}", field=field
                )
        pid = request.producer_id
        try:
            async with asyncio.timeout(self._node.request_timeout):
                if not self._node.is_issued(pid) and not await self._node.confirm_issued(pid):
                    text = f"producer_id: {pid} was never issued by this cluster"
                    raise errors.UnknownProducerError(text)
                found = await self._resolve(partition, pid, request.epoch, request.sequence)
        except TimeoutError:
            raise errors.RequestTimeoutError(
                "not resolved in time; the record may lie far back in the log"
            ) from None
        known = partition.last_seen.describe(pid)
        return pb.ResolveSequenceResponse(
            resolution=found.resolution,  # type: ignore[arg-type]  # the numbers are the same
            offset=found.offset,
            last_sequence=-1 if known is None else known.last_sequence,
            current_epoch=-1 if known is None else known.epoch,
        )

    async def _resolve(
        self, partition: Partition, producer_id: int, epoch: int, sequence: int
    ) -> Resolved:
        # Behind the confirmation lies all that this term had in flight before it.
        await confirm(partition)
        names, last_seen = partition.policy.names, partition.last_seen
        if names.applied_index < partition.names_index:
            raise NotReadyError("the leader's copy of the producer names is behind")
        found = last_seen.resolve(producer_id, epoch, sequence)
        veto = partition.lease_verdict(producer_id, epoch)
        held = names.holder(producer_id)
        if held is not None and (veto is None or veto.kind is not Kind.FENCED):
            # A name's id that is not in the map has never written here, but may come.
            if last_seen.known(producer_id) is None:
                return Resolved(Resolution.NOT_YET, -1, -1, -1)
        elif veto is not None and found.resolution is Resolution.NOT_YET:
            await _shut_out(partition, producer_id, veto)
            found = last_seen.resolve(producer_id, epoch, sequence)
        try:
            found = await settled(partition, producer_id, epoch, sequence, found)
        except StorageError as error:
            partition.unreadable(error)
            if not _has_stopped(partition):
                raise errors.CorruptLogError(
                    str(error), topic=partition.topic, partition=partition.index
                ) from error
        if _has_stopped(partition):
            raise NotLeaderError("this replica has stopped")
        return found

    # -- old duplicates -----------------------------------------------------------------

    def with_offset(self, partition: Partition, meta: BatchMeta, answer_to: AnswerTo) -> AnswerTo:
        """`answer_to` that first has the offset of an old duplicate looked up."""

        def answer(given: Answer) -> None:
            old = given.verdict.kind is Kind.DUPLICATE and given.verdict.base_offset < 0
            if not old or len(self._lookups) >= MAX_LOOKUPS:
                answer_to(given)
                return
            task = asyncio.ensure_future(self._locate(partition, meta, given, answer_to))
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)

        return answer

    async def _locate(
        self, partition: Partition, meta: BatchMeta, given: Answer, answer_to: AnswerTo
    ) -> None:
        answer = given
        try:
            async with self._one_at_a_time:
                answer = await _located(partition, meta, given)
        finally:
            answer_to(answer)


def _refusal(why: pb.PartitionRecords) -> errors.OncelogError:
    where = f"{why.topic}-{why.partition}"
    match why.error:
        case pb.PARTITION_ERROR_NOT_LEADER:
            return errors.NotLeaderError(
                f"this node does not lead {where}",
                leader_id=why.leader_id,
                leader_address=why.leader_address,
            )
        case pb.PARTITION_ERROR_UNKNOWN_TOPIC_OR_PARTITION:
            return errors.UnknownTopicOrPartitionError(
                f"there is no partition {where}", topic=why.topic, partition=why.partition
            )
        case pb.PARTITION_ERROR_NOT_READY:
            return errors.NotReadyError(f"this node has just begun to lead {where}")
    return errors.CorruptLogError(why.message, topic=why.topic, partition=why.partition)


def _has_stopped(partition: Partition) -> bool:
    return partition.closed or partition.group.failed is not None


async def _shut_out(partition: Partition, producer_id: int, veto: Verdict) -> None:
    """Makes it certain here that a producer which the metadata has ended writes no more.

    Its batch could otherwise still be taken by a leader that has not heard of it.
    """
    if veto.kind is not Kind.FENCED:
        applied(await told(partition.advance_clock))
        return
    open_producer = partial(partition.open_producer, producer_id, veto.current_epoch)
    answer: Answer = await told(open_producer)
    if answer.verdict.kind is Kind.NOT_LEADER:
        raise NotLeaderError("no longer the leader", answer.leader_id)
    if answer.verdict.kind not in (Kind.APPENDED, Kind.FENCED):
        raise NotReadyError(f"the older epoch is not fenced yet: {answer.verdict.message}")


async def _located(partition: Partition, meta: BatchMeta, given: Answer) -> Answer:
    """The answer to a batch that is older than the map's window, by what the log holds."""
    below = search_from(partition, meta.producer_id)
    try:
        place = await find_batch(
            partition,
            meta.producer_id,
            meta.epoch,
            meta.first,
            below=below,
            max_batches=MAX_DUPLICATE_BATCHES,
        )
    except StorageError as error:
        log.warning("the offset of a duplicate was not looked up: %s", error)
        partition.unreadable(error)
        return given
    known = partition.last_seen.describe(meta.producer_id)
    if place is Miss.UNKNOWN or known is None:
        return given
    if isinstance(place, Found):
        entry = place.entry
        stored = meta._replace(
            first=entry.first, last=entry.last, count=entry.record_count, crc=entry.crc
        )
        if (stored.first, stored.last) == (meta.first, meta.last):
            if same_content(stored, meta):
                return Answer(Verdict(Kind.DUPLICATE, place.base_offset), entry.stamp_ms)
            return Answer(conflict(meta, known.last_sequence))
    text = f"sequences {meta.first}..{meta.last} are not a batch as it was stored"
    return Answer(out_of_order(known.last_sequence, known.epoch, text))
