"""Committed offsets of groups: finds the node that keeps a group, and calls it.

Place in the flow: under `Consumer.commit`, `committed` and the start positions of a consumer with a
`group_id`, and under the admin clients' group methods. A group lies in one partition of the topic
`__offsets`; nodes other than its leader name the leader.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import grpc.aio

from oncelog import errors, types
from oncelog._engine.net.attempts import Attempts, may_have_been_done
from oncelog._engine.net.cluster import Cluster, cluster_stub
from oncelog.types import CommittedOffset, OffsetCommit, TopicPartition
from oncelog.v1 import batch_pb2, cluster_pb2, group_pb2, group_pb2_grpc
from oncelog.wire.reasons import BY_REASON

log = logging.getLogger("oncelog.consumer")

# A hanging node must not hold up a question that another one answers.
ATTEMPT_S = 2.0
_LIST_PAGE = 1000


class CommitTerms(NamedTuple):
    """Terms of a group member for a commit, or for a look at committed offsets."""

    member_id: str
    number: int
    ownerships: Mapping[TopicPartition, int]


class StagingHolder(Protocol):
    """A transaction that offsets are stored with."""

    @property
    def transaction_id(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...


class Method(Protocol):
    def __call__(self, stub: Any) -> Any: ...


class Groups:
    """Calls of GroupService. Runs on the engine's loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[str, str] = {}

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetCommit],
        terms: CommitTerms | None = None,
    ) -> dict[TopicPartition, bool]:
        """Store offsets; tell for each whether it was stored before, as a duplicate.

        `terms`: of a member of the group. Raises the error of the first rejected offset; the others
        are stored.
        """
        request = group_pb2.CommitOffsetsRequest(
            group=group,
            member_id=terms.member_id if terms is not None else "",
            commit_number=terms.number if terms is not None else 0,
            offsets=_commits(offsets, terms),
        )
        answer = await self._call(group, lambda stub: stub.CommitOffsets, request)
        for result in answer.results:
            if result.error:
                raise _refused(result)
        return {TopicPartition(r.topic, r.partition): r.duplicate for r in answer.results}

    async def stage(
        self,
        holder: StagingHolder,
        group: str,
        offsets: Mapping[TopicPartition, OffsetCommit],
        number: int,
        terms: CommitTerms | None = None,
    ) -> None:
        """Store offsets with a transaction, all or none; a repeat has the same `number`.

        Raises the reason if nothing is staged.
        """
        request = group_pb2.StageOffsetsRequest(
            transaction_id=holder.transaction_id,
            producer_id=holder.producer_id,
            epoch=holder.epoch,
            group=group,
            member_id=terms.member_id if terms is not None else "",
            number=number,
            offsets=_commits(offsets, terms),
        )
        answer = await self._call(group, lambda stub: stub.StageOffsets, request)
        if answer.error:
            text = f"group {group}: offsets not staged: {answer.message or answer.error}"
            raise _kind(answer.error)(text)

    async def committed(
        self,
        group: str,
        partitions: Sequence[TopicPartition] = (),
        *,
        terms: CommitTerms | None = None,
        ignore_transactions: bool = False,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the offsets of these partitions (None: nothing), or all of the group.

        terms: of a member of the group; their `number` is ignored.
        ignore_transactions: a read-only look ends no transaction that has staged offsets there.
        """
        request = group_pb2.FetchOffsetsRequest(
            group=group,
            partitions=[
                batch_pb2.TopicPartition(topic=tp.topic, partition=tp.partition)
                for tp in partitions
            ],
            ignore_transactions=ignore_transactions,
        )
        if terms is not None:
            request.member_id = terms.member_id
            request.ownerships[:] = [terms.ownerships[tp] for tp in partitions]
        answer = await self._call(group, lambda stub: stub.FetchOffsets, request)
        return {
            TopicPartition(offset.topic, offset.partition): _committed(offset)
            for offset in answer.offsets
        }

    async def committed_now(self, group: str, tp: TopicPartition) -> CommittedOffset | None:
        """Return the offset for a read-only look: open transactions go on."""
        return (await self.committed(group, [tp], ignore_transactions=True)).get(tp)

    async def describe(self, group: str) -> types.GroupDescription:
        answer = await self._call(
            group,
            lambda stub: stub.DescribeGroup,
            group_pb2.DescribeGroupRequest(group=group),
        )
        offsets = {}
        for offset in answer.offsets:
            if (known := _committed(offset)) is not None:
                offsets[TopicPartition(offset.topic, offset.partition)] = known
        return types.GroupDescription(
            group,
            answer.exists,
            answer.last_commit_ms,
            answer.coordinator_id,
            offsets,
            tuple(_member(one) for one in answer.members),
            answer.epoch,
            answer.assignor,
            answer.protocol,
        )

    async def delete(self, group: str) -> bool:
        """Delete a group and its offsets; tell whether there was one."""
        request, failed = group_pb2.DeleteGroupRequest(group=group), list[errors.OncelogError]()
        answer = await self._call(group, lambda stub: stub.DeleteGroup, request, failed)
        # A lost answer to an earlier attempt may mean that we deleted it.
        return bool(answer.existed) or any(map(may_have_been_done, failed))

    # --- one node --------------------------------------------------------------------

    async def _call(
        self,
        group: str,
        method: Method,
        request: Any,
        failed: list[errors.OncelogError] | None = None,
    ) -> Any:
        """Call the group's present coordinator; failed: errors of earlier attempts."""
        deadline = time.monotonic() + self._cluster.config.request_timeout_ms / 1000
        failures, attempts = 0, Attempts()
        while True:
            address = self.coordinator(group)
            left = max(0.05, deadline - time.monotonic())
            try:
                answer = await self._cluster.call(
                    lambda channel: method(group_stub(channel)),
                    request,
                    address=address,
                    timeout_s=min(left, ATTEMPT_S),
                )
            except errors.RetriableError as error:
                failures += 1
                attempts.failed(error)
                if failed is not None:
                    failed.append(error)
                pause = self.failed(group, address, error, failures)
                if time.monotonic() + pause >= deadline:
                    raise attempts.error() from None
                await asyncio.sleep(pause)
            except errors.OncelogError as error:
                raise attempts.final(error) from None
            else:
                self.answered(group, address)
                return answer

    def coordinator(self, group: str) -> str:
        """Return the known coordinator of the group, or one node after the other."""
        return self._coordinators.get(group) or self._cluster.addresses()[0]

    def answered(self, group: str, address: str) -> None:
        self._coordinators[group] = address

    def failed(
        self, group: str, address: str, error: errors.RetriableError, failures: int
    ) -> float:
        """Note a failed coordinator; returns the seconds until the next attempt."""
        log.debug("group %s at %s: %s", group, address, error)
        self._coordinators.pop(group, None)
        hint = error.leader_address if isinstance(error, errors.NotLeaderError) else ""
        if hint and hint != address:
            self._coordinators[group] = hint
        else:
            self._cluster.avoid(address)
        # The first hint needs no pause; a second one means that a node is wrong.
        return 0.0 if hint and failures == 1 else self._cluster.backoff.delay(failures)

    # --- all nodes -------------------------------------------------------------------

    async def all(self) -> list[types.GroupInfo]:
        """Return all groups, by name. Raises NotReadyError if a part of them has no leader, or the
        error of a node that did not list its part.
        """
        deadline = time.monotonic() + self._cluster.config.request_timeout_ms / 1000
        failures, attempts = 0, Attempts()
        while True:
            found: dict[str, types.GroupInfo] = {}
            covered: set[int] = set()
            count = 0
            for address in await self._nodes():
                try:
                    count = max(count, await self._list_node(address, found, covered))
                except errors.RetriableError as error:
                    attempts.failed(error)
                    log.debug("list groups at %s: %s", address, error)
            if covered >= set(range(count)):
                return [found[name] for name in sorted(found)]
            failures += 1
            pause = self._cluster.backoff.delay(failures)
            if time.monotonic() + pause >= deadline:
                missing = sorted(set(range(count)) - covered)
                text = f"partitions {missing} of __offsets have no leader that answers"
                if attempts.telling is None:
                    raise errors.NotReadyError(text)
                raise attempts.late(text)
            await asyncio.sleep(pause)

    async def _nodes(self) -> list[str]:
        answer = await self._cluster.call(
            lambda channel: cluster_stub(channel).DescribeCluster,
            cluster_pb2.DescribeClusterRequest(),
        )
        return [node.address for node in answer.nodes if node.address and node.alive]

    async def _list_node(
        self, address: str, found: dict[str, types.GroupInfo], covered: set[int]
    ) -> int:
        after = ""
        while True:
            answer = await self._cluster.call(
                lambda channel: group_stub(channel).ListGroups,
                group_pb2.ListGroupsRequest(after_group=after, limit=_LIST_PAGE),
                address=address,
                timeout_s=ATTEMPT_S,
            )
            for info in answer.groups:
                found[info.group] = types.GroupInfo(
                    info.group, info.offsets, info.last_commit_ms, info.members, info.protocol
                )
            if len(answer.groups) < _LIST_PAGE:
                covered.update(answer.partitions)
                return int(answer.partition_count)
            after = answer.groups[-1].group


def group_stub(channel: grpc.aio.Channel) -> Any:
    return group_pb2_grpc.GroupServiceStub(channel)


def _committed(offset: group_pb2.CommittedOffset) -> CommittedOffset | None:
    if offset.offset < 0:
        return None
    return CommittedOffset(
        offset.offset,
        offset.metadata,
        offset.producer_id,
        offset.epoch,
        offset.sequence,
        offset.commit_ms,
    )


def _member(member: group_pb2.GroupMember) -> types.GroupMember:
    return types.GroupMember(
        member.member_id,
        member.instance_id,
        member.client_host,
        {TopicPartition(one.topic, one.partition): one.ownership for one in member.owned},
        tuple(TopicPartition(one.topic, one.partition) for one in member.revoking),
        member.idle_ms,
        member.connected,
    )


def _commits(
    offsets: Mapping[TopicPartition, OffsetCommit], terms: CommitTerms | None
) -> list[group_pb2.OffsetCommit]:
    return [
        group_pb2.OffsetCommit(
            topic=tp.topic,
            partition=tp.partition,
            offset=commit.offset,
            metadata=commit.metadata,
            producer_id=commit.producer_id,
            epoch=commit.epoch,
            sequence=commit.sequence,
            ownership=0 if terms is None else terms.ownerships[tp],
        )
        for tp, commit in offsets.items()
    ]


def _kind(error: str) -> type[errors.OncelogError]:
    if error == "TRANSACTION_CONFLICT":
        return errors.NotReadyError  # another transaction has to end first
    return BY_REASON.get(error, errors.InternalError)


def _refused(result: group_pb2.OffsetCommitResult) -> errors.OncelogError:
    where = f"{result.topic}-{result.partition}"
    text = f"{where}: offset not committed: {result.message or result.error}"
    kind = _kind(result.error)
    if kind is errors.FencedError:
        return errors.FencedError(text, current_epoch=result.current_epoch)
    if kind is errors.OutOfOrderError:
        return errors.OutOfOrderError(text, last_sequence=result.last_sequence)
    return kind(text)
