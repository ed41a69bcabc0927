"""Outcome of a batch whose acknowledgement was lost: ResolveSequence, old duplicates.

LogService, Appender --> Resolver --> last-seen map, after a confirmation
                                  --> partition.lookup, for batches that left the map
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from cluster.dedup.sequences import placed
from cluster.dedup.verdict import (
    KAFKA_IDS,
    MAX_INT32,
    MAX_INT64,
    BatchMeta,
    Kind,
    ResolutionKind,
    Resolved,
    Verdict,
    conflict,
    out_of_order,
    same_content,
)
from cluster.errors import NotLeaderError, NotReadyError
from cluster.partition.lookup import ANY_EPOCH, Found, Miss, find_batch, search_from, settled
from cluster.partition.replica import Answer, AnswerTo, Partition
from cluster.services.context import NodeContext
from cluster.services.log.batch_checks import unissued
from cluster.services.log.lease_checks import Leases
from cluster.services.outcomes import called_back, confirm, confirmed, unable
from cluster.services.requests import in_range, timeout_s
from cluster.services.routing import has_stopped, leading, unreadable
from oncelog import errors
from oncelog.v1 import log_pb2 as pb
from storage.errors import StorageError

log = logging.getLogger(__name__)

MAX_DUPLICATE_BATCHES = 20_000  # read back for the offset of one old duplicate
MAX_LOOKUPS = 256  # old duplicates with an offset lookup in progress


class Resolver:
    """Answers from the state of partitions that this node leads."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._leases = Leases(node)
        self._lookups: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Semaphore(1)

    # -- ResolveSequence ----------------------------------------------------------------

    async def answer(self, request: pb.ResolveSequenceRequest) -> pb.ResolveSequenceResponse:
        """Answer the request. Raises OncelogError, ClusterError."""
        in_range("producer_id", request.producer_id, 1, MAX_INT64)
        in_range("epoch", request.epoch, ANY_EPOCH, MAX_INT32)
        in_range("sequence", request.sequence, 0, MAX_INT64)
        partition = leading(self._node, request.topic, request.partition)
        pid = request.producer_id
        try:
            async with asyncio.timeout(timeout_s(0, self._node)):
                if not await self._leases.is_issued(pid):
                    raise errors.UnknownProducerError(unissued(pid).message)
                if request.epoch == ANY_EPOCH:
                    epoch, found = await self._resolve_any(partition, pid, request.sequence)
                else:
                    epoch = request.epoch
                    found = await self._resolve(partition, pid, epoch, request.sequence)
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
            epoch=epoch,
        )

    async def _resolve_any(
        self, partition: Partition, producer_id: int, sequence: int
    ) -> tuple[int, Resolved]:
        """Return the newest epoch that stored the sequence, or the newest of all, with its answer.

        NOT_YET: no epoch is known to have stored it, and the newest one may.
        """
        while True:
            newest = _newest_epoch(partition, producer_id)
            found = await self._resolve(partition, producer_id, newest, sequence)
            # Its confirmation may have brought a newer one.
            if newest == _newest_epoch(partition, producer_id):
                break
        if found.resolution is ResolutionKind.COMMITTED:
            return newest, found
        known = partition.last_seen.known(producer_id) is not None
        not_yet = producer_id < KAFKA_IDS and found.resolution is ResolutionKind.NOT_YET
        if not newest and (known or not_yet):
            return newest, found  # there was no other; of a forgotten producer only the log knows
        run = partition.machine.runs.by_producer.get(producer_id)
        if run is not None and run.first <= sequence <= run.last:
            # Under an older epoch, but its commit may be decided.
            return newest, found._replace(resolution=ResolutionKind.NOT_YET)
        stored = partition.last_seen.stored_epoch(producer_id)
        if known and stored < newest:
            older = await self._resolve(partition, producer_id, stored, sequence)
            if older.resolution is ResolutionKind.COMMITTED:
                return stored, older
        below = search_from(partition, producer_id)
        try:
            place = await find_batch(partition, producer_id, ANY_EPOCH, sequence, below=below)
        except StorageError as error:
            raise unreadable(self._node, partition, error) from error
        if isinstance(place, Found):
            offset = place.offset_of(sequence)
            committed = found._replace(resolution=ResolutionKind.COMMITTED, offset=offset)
            return place.entry.epoch, committed
        if place is Miss.UNKNOWN and found.resolution is ResolutionKind.NEVER:
            return newest, found._replace(resolution=ResolutionKind.UNSPECIFIED)
        return newest, found

    async def _resolve(
        self, partition: Partition, producer_id: int, epoch: int, sequence: int
    ) -> Resolved:
        # The confirmation comes after everything this term had in flight before it.
        await confirm(partition)
        names, last_seen = partition.policy.names, partition.last_seen
        if partition.machine.runs.may_publish(producer_id, epoch, sequence):
            # Also under a fenced epoch: a commit may be decided, and its marker on its way.
            return Resolved(ResolutionKind.NOT_YET, -1, -1, -1)
        if names.applied_index < partition.names_index:
            raise NotReadyError("the leader's copy of the producer names is behind")
        found = last_seen.resolve(producer_id, epoch, sequence)
        veto = partition.lease_verdict(producer_id, epoch)
        held = names.holder(producer_id)
        if held is not None and (veto is None or veto.kind is not Kind.FENCED):
            # A name's id that is not in the map has never written here, but may come.
            if last_seen.known(producer_id) is None:
                return Resolved(ResolutionKind.NOT_YET, -1, -1, -1)
        elif veto is not None and found.resolution is ResolutionKind.NOT_YET:
            await _shut_out(partition, producer_id, veto)
            found = last_seen.resolve(producer_id, epoch, sequence)
        try:
            found = await settled(partition, producer_id, epoch, sequence, found)
        except StorageError as error:
            raise unreadable(self._node, partition, error) from error
        if has_stopped(partition):
            raise NotLeaderError("this replica has stopped")
        return found

    # -- old duplicates -----------------------------------------------------------------

    def with_offset(self, partition: Partition, meta: BatchMeta, answer_to: AnswerTo) -> AnswerTo:
        """Wrap `answer_to` to look up the offset of an old duplicate first."""

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


def _newest_epoch(partition: Partition, producer_id: int) -> int:
    """Return the newest epoch that is known here; 0 if none is."""
    known = partition.last_seen.known(producer_id)
    held = partition.policy.names.holder(producer_id)
    return max(0 if known is None else known.epoch, 0 if held is None else held.epoch)


async def _shut_out(partition: Partition, producer_id: int, veto: Verdict) -> None:
    """Ensure here that a producer ended in the metadata writes no more.

    Its batch could otherwise still be taken by a leader that has not heard of it.
    """
    if veto.kind is not Kind.FENCED:
        confirmed(await called_back(partition.advance_clock))
        return
    open_producer = partial(partition.open_producer, producer_id, veto.current_epoch)
    answer: Answer = await called_back(open_producer)
    if answer.verdict.kind not in (Kind.APPENDED, Kind.FENCED):
        raise unable(answer)


async def _located(partition: Partition, meta: BatchMeta, given: Answer) -> Answer:
    """Return the log's answer to a batch that is older than the map's window."""
    below = search_from(partition, meta.producer_id)
    if meta.kafka:
        following = partition.last_seen.next_sequence(meta.producer_id, meta.epoch)
        meta = placed(meta, following)
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
