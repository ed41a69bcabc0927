"""GroupService: committed offsets of groups, in the replicated topic `__offsets`.

    any node --(which partition of __offsets? which leader?)--> NOT_LEADER or here
    commit, delete --> entry --> OffsetsTable.apply --> results
    fetch, describe, list --> confirmation of leadership --> OffsetsTable

A group is in one partition, so all its calls are answered by one node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial

from cluster.consensus.proposals import Outcome
from cluster.dedup.verdict import MAX_INT32, MAX_INT64
from cluster.errors import NotLeaderError, NotReadyError
from cluster.features import GROUPS, KAFKA
from cluster.groups.ownership import GROUP_HAS_MEMBERS, TopicIdPartition
from cluster.metadata.topics import (
    OFFSETS_TOPIC,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    TopicState,
    is_internal,
)
from cluster.partition.group_offsets import (
    MAX_COMMITS,
    MAX_METADATA_BYTES,
    OFFSETS_PARTITIONS,
    TRANSACTION_CONFLICT,
    OffsetsTable,
    pack_command,
    partition_of,
)
from cluster.partition.group_state import CommitResult, GroupState, Key, OffsetState
from cluster.partition.replica import Partition
from cluster.services.admin.placement import default_replicas, place_replicas
from cluster.services.context import NodeContext
from cluster.services.errors import accepted
from cluster.services.groups.classic_groups import ClassicCalls
from cluster.services.groups.descriptions import described, protocol_of
from cluster.services.groups.member_streams import Joining, check_name
from cluster.services.groups.offsets_wire import commit_result, committed_offset, offset_record
from cluster.services.groups.running_groups import AnyGroup, GroupMembers
from cluster.services.groups.staged_offsets import OffsetStaging
from cluster.services.outcomes import applied, confirm, one_answer, unable
from cluster.services.requests import (
    Deadline,
    Write,
    count_in_range,
    in_range,
    invalid,
    page_size,
)
from cluster.services.routing import leading
from cluster.services.transactions.permissions import TransactionRights
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import offsets_pb2 as internal
from oncelog import errors
from oncelog.v1 import cluster_pb2
from oncelog.v1 import group_pb2 as pb
from oncelog.v1.batch_pb2 import TopicPartition

DEFAULT_LISTED = 1000
MAX_LISTED = 10_000


class GroupService:
    """Answers for one node. `now_ms`: the wall clock, milliseconds since the Unix epoch."""

    def __init__(
        self,
        node: NodeContext,
        members: GroupMembers,
        rights: TransactionRights,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self.node = node
        self._rights = rights
        self._now_ms = now_ms
        self._members = members
        self._joining = Joining(node, members, self._replica_of)
        self._staging = OffsetStaging(node)
        self.classic = ClassicCalls(node, self._replica_of, members.classic, members.begun_classic)

    async def JoinGroup(self, requests: AsyncIterator[pb.JoinGroupRequest], write: Write) -> None:
        await self._joining.stream(requests, write)

    async def GroupHeartbeat(self, request: pb.GroupHeartbeatRequest) -> pb.JoinGroupResponse:
        return await self._joining.heartbeat(request)

    async def CommitOffsets(self, request: pb.CommitOffsetsRequest) -> pb.CommitOffsetsResponse:
        return await self.commit(request, None)

    async def commit(
        self, request: pb.CommitOffsetsRequest, classic: internal.ClassicCaller | None
    ) -> pb.CommitOffsetsResponse:
        """Store offsets. classic: the member of a classic group that commits them."""
        _check_commits(request)
        if request.member_id:
            self.node.metadata.features.require(GROUPS)
        if classic is not None:
            self.node.metadata.features.require(KAFKA)
        async with Deadline(request.timeout_ms, self.node):
            replica = await self._replica_of(request.group)
            missing, known = _UNKNOWN, [self._topic_id(one) for one in request.offsets]
            if any(known) and not self.node.controller_id:
                missing = _NOT_READY  # known topics do not wait for a leader of the metadata
            elif not all(known):
                known = await self._topic_ids(request.offsets)
            command = internal.CommitGroupOffsets(
                group=request.group,
                member=request.member_id,
                number=request.commit_number,
                classic=classic,
            )
            for commit, topic_id in zip(request.offsets, known, strict=True):
                if topic_id:
                    command.offsets.append(offset_record(commit, topic_id))
                    if request.member_id:
                        command.ownerships.append(commit.ownership)
            done: list[CommitResult] = []
            if command.offsets:
                outcome = await self._apply(replica, internal.OffsetsCommand(commit=command))
                assert isinstance(outcome, list)
                done = outcome
        left = iter(done)
        return pb.CommitOffsetsResponse(
            results=[
                commit_result(commit, next(left) if topic_id else missing)
                for commit, topic_id in zip(request.offsets, known, strict=True)
            ]
        )

    async def StageOffsets(self, request: pb.StageOffsetsRequest) -> pb.StageOffsetsResponse:
        return await self.stage(request, None)

    async def stage(
        self, request: pb.StageOffsetsRequest, classic: internal.ClassicCaller | None
    ) -> pb.StageOffsetsResponse:
        """Stage offsets. classic: as in `commit`; without a member for a producer by itself."""
        if classic is not None:
            self.node.metadata.features.require(KAFKA)
        _check_offsets(request)
        self._staging.check(request)
        await self._rights.check("write", request.transaction_id)
        async with Deadline(request.timeout_ms, self.node):
            replica = await self._replica_of(request.group)
            topic_ids = await self._topic_ids(request.offsets)
            return await self._staging.stage(replica, request, topic_ids, self._now_ms(), classic)

    async def next_call(self, group: str, transaction_id: int) -> int:
        """Return the number of a transaction's next StageOffsets for the group."""
        replica = await self._replica_of(group)
        known = replica.group_offsets.staged.calls(transaction_id, group)
        return known[-1].number + 1 if known else 1

    async def FetchOffsets(self, request: pb.FetchOffsetsRequest) -> pb.FetchOffsetsResponse:
        return (await self.fetch(request, is_classic=False))[0]

    async def fetch(
        self, request: pb.FetchOffsetsRequest, *, is_classic: bool
    ) -> tuple[pb.FetchOffsetsResponse, Collection[Key]]:
        """Fetch offsets; returns also those that open transactions may still change.

        is_classic: for one of Kafka's clients, which may be a member. Others have no such offsets.
        """
        check_name("group", request.group)
        count_in_range("partitions", len(request.partitions), 0, MAX_LISTED)
        wanted = [(p.topic, p.partition) for p in request.partitions]
        unstable: Collection[Key] = ()
        async with Deadline(0, self.node):
            replica = await self._replica_of(request.group)
            if request.member_id:
                await self._topic_ids(request.partitions)
            if request.ignore_transactions:
                await confirm(replica)
            else:
                check = partial(self._check_reader, replica, request, is_classic=is_classic)
                unstable = await self._staging.end_staged(
                    replica, request.group, wanted, check, is_classic=is_classic
                )
        group = replica.group_offsets.group(request.group)
        stored: dict[Key, OffsetState | None] = {}
        if group is not None and wanted:
            stored = {key: self._valid(key, group.get(key)) for key in wanted}
        elif group is not None:
            stored = {**self._all_valid(group)}
        answer = pb.FetchOffsetsResponse(
            offsets=[
                committed_offset(topic, number, stored.get((topic, number)))
                for topic, number in wanted or stored
            ]
        )
        return answer, unstable

    def _check_reader(
        self, replica: Partition, request: pb.FetchOffsetsRequest, *, is_classic: bool
    ) -> None:
        """Raises FencedMemberError, GroupHasMembersError, InvalidRequestError."""
        facts = replica.group_offsets.ownership(request.group)
        if not request.member_id:
            kafkas = replica.group_offsets.classic(request.group) is not None
            if facts.has_members or (kafkas and not is_classic):
                text = f"group {request.group} has members: only they read on from its offsets"
                raise errors.GroupHasMembersError(text)
            return
        if len(request.ownerships) != len(request.partitions) or not request.partitions:
            raise invalid("ownerships", "must be one for each of the partitions, and one at least")
        for wanted, number in zip(request.partitions, request.ownerships, strict=True):
            topic = self.node.metadata.topic(wanted.topic)
            part = TopicIdPartition(0 if topic is None else topic.topic_id, wanted.partition)
            if facts.check_owner(part, request.member_id, number):
                where = f"{wanted.topic}-{wanted.partition}"
                raise errors.FencedMemberError(f"{where} is not part of this member's assignment")

    async def DescribeGroup(self, request: pb.DescribeGroupRequest) -> pb.DescribeGroupResponse:
        check_name("group", request.group)
        replica, table = await self._read(request.group)
        group = table.group(request.group)
        running = self._members.of(replica, request.group)
        return pb.DescribeGroupResponse(
            **described(running),
            group=request.group,
            exists=group is not None or running is not None,
            last_commit_ms=0 if group is None else group.last_commit_ms,
            offsets=[
                committed_offset(*key, state) for key, state in self._all_valid(group).items()
            ],
            offsets_partition=replica.index,
            coordinator_id=self.node.config.node_id,
        )

    async def DeleteGroup(self, request: pb.DeleteGroupRequest) -> pb.DeleteGroupResponse:
        existed = await self.delete(request.group)
        if existed == TRANSACTION_CONFLICT:
            raise NotReadyError("group: an open transaction has staged offsets of it")
        if isinstance(existed, str):
            raise invalid("group", "has members; stop them, then delete it")
        return pb.DeleteGroupResponse(existed=bool(existed))

    async def delete(self, group: str) -> bool | str:
        """Delete a group; returns whether it was there, or why it stays. Raises ClusterError."""
        check_name("group", group)
        async with Deadline(0, self.node):
            replica = await self._replica_of(group)
            running = self._members.classic(replica, group)
            # The entry that the last member has left may be on its way: it comes before this one.
            if running is not None and running.size:
                return GROUP_HAS_MEMBERS
            command = internal.DeleteGroupOffsets(group=group)
            done = await self._apply(replica, internal.OffsetsCommand(delete=command))
        assert isinstance(done, bool | str)
        return done

    async def delete_offsets(self, group: str, keys: Sequence[Key]) -> list[CommitResult]:
        """Delete offsets of topics that no member reads. Raises ClusterError, OncelogError.

        An entry has as many as one of commits, for Kafka's clients know no limit.
        """
        self.node.metadata.features.require(KAFKA)
        check_name("group", group)
        results = list[CommitResult]()
        async with Deadline(0, self.node):
            replica = await self._replica_of(group)
            for first in range(0, len(keys), MAX_COMMITS):
                some = keys[first : first + MAX_COMMITS]
                offsets = [internal.OffsetKey(topic=t, partition=p) for t, p in some]
                command = internal.DeleteOffsets(group=group, offsets=offsets)
                done = await self._apply(replica, internal.OffsetsCommand(delete_offsets=command))
                assert isinstance(done, list)
                results += done
        return results

    async def look(self, group: str) -> tuple[GroupState | None, AnyGroup | None]:
        """Return a group's offsets, and its members. Raises ClusterError, OncelogError."""
        check_name("group", group)
        replica, table = await self._read(group)
        return table.group(group), self._members.of(replica, group)

    async def ListGroups(self, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        limit = page_size(request.limit, DEFAULT_LISTED, MAX_LISTED)
        topic = self.node.metadata.topic(OFFSETS_TOPIC)
        if topic is None:
            return pb.ListGroupsResponse()
        partitions, found = await self.listed(request.after_group, limit)
        return pb.ListGroupsResponse(
            partition_count=len(topic.partitions),
            partitions=partitions,
            groups=[
                pb.GroupInfo(
                    group=name,
                    offsets=0 if state is None else len(state),
                    last_commit_ms=0 if state is None else state.last_commit_ms,
                    members=0 if running is None else running.size,
                    protocol=protocol_of(running),
                )
                for name, state, running in found
            ],
        )

    async def listed(
        self, after: str, limit: int, *, is_classic: bool = False
    ) -> tuple[list[int], list[tuple[str, GroupState | None, AnyGroup | None]]]:
        """Return the partitions of `__offsets` led here, and the first groups above `after`.

        is_classic: for one of Kafka's clients, which does not learn the partitions; it raises
        NotReadyError if this node has just begun to lead one.
        """
        topic = self.node.metadata.topic(OFFSETS_TOPIC)
        led: list[int] = []
        found: list[tuple[str, GroupState | None, AnyGroup | None]] = []
        async with Deadline(0, self.node):
            for number in range(0 if topic is None else len(topic.partitions)):
                try:
                    replica = leading(self.node, OFFSETS_TOPIC, number)
                    await confirm(replica)
                except NotLeaderError:
                    continue
                except NotReadyError:
                    if is_classic:
                        raise
                    continue
                led.append(number)
                table = replica.group_offsets
                assert table is not None
                groups = dict(table.groups(after, limit))
                running = self._members.with_members(replica)
                names = groups.keys() | {name for name in running if name > after}
                found += [
                    (name, groups.get(name), running.get(name)) for name in sorted(names)[:limit]
                ]
        found.sort(key=lambda one: one[0])
        return led, found[:limit]

    # -- where a group lies ---------------------------------------------------------------

    async def coordinator(self, group: str) -> int:
        """Return the node that leads the group's partition; 0: none is known."""
        return self.node.leader_of(await self.raft_group(group))[0]

    async def raft_group(self, group: str) -> int:
        """Return the Raft group of the partition with the group's offsets."""
        check_name("group", group)
        topic = await self._offsets_topic()
        return topic.partitions[partition_of(group, len(topic.partitions))].group_id

    async def _replica_of(self, group: str) -> Partition:
        """Return this node's replica of the group's partition, if it leads. Raises ClusterError."""
        topic = await self._offsets_topic()
        number = partition_of(group, len(topic.partitions))
        return leading(self.node, OFFSETS_TOPIC, number)

    async def _offsets_topic(self) -> TopicState:
        """Return the topic, created if missing. Several nodes may create it at once."""
        node = self.node
        topic = node.metadata.topic(OFFSETS_TOPIC)
        if topic is not None:
            return topic
        replicas = default_replicas(node)
        placements = place_replicas(node, OFFSETS_PARTITIONS, replicas)
        command = meta.CreateTopic(
            name=OFFSETS_TOPIC,
            placements=[meta.Placement(replicas=nodes) for nodes in placements],
            config=cluster_pb2.TopicConfig(retention_ms=-1, retention_bytes=-1),
        )
        timeout = node.config.request_timeout_ms / 1000
        result = await node.propose_metadata(meta.MetadataCommand(create_topic=command), timeout)
        if result.error != TOPIC_ALREADY_EXISTS:
            accepted(result, topic=OFFSETS_TOPIC)
        topic = node.metadata.topic(OFFSETS_TOPIC)
        assert topic is not None, "propose_metadata returns once it is applied here"
        await node.wait_for_leaders([p.group_id for p in topic.partitions], timeout)
        return topic

    async def _read(self, group: str) -> tuple[Partition, OffsetsTable]:
        """Return the group's partition, at least as new as every answer given before."""
        async with Deadline(0, self.node):
            replica = await self._replica_of(group)
            await confirm(replica)
        table = replica.group_offsets
        assert table is not None
        return replica, table

    async def _apply(self, replica: Partition, command: internal.OffsetsCommand) -> object:
        """Propose the command and return the result of apply. Raises ClusterError."""
        command.stamp_ms = self._now_ms()
        future: asyncio.Future[Outcome]
        future, done = one_answer()
        refused = replica.propose(pack_command(command), done)
        if refused is not None:
            raise unable(refused)
        return applied(await future).result

    async def _topic_ids(self, places: Sequence[pb.OffsetCommit | TopicPartition]) -> list[int]:
        """Return the topics' ids; 0: there is no such partition, and no node knows one.

        Another node may have just created a topic. Raises ClusterError.
        """
        known = [self._topic_id(one) for one in places]
        if not all(known):
            await self.node.newest_metadata.wait()
            known = [self._topic_id(one) for one in places]
        return known

    def _topic_id(self, commit: pb.OffsetCommit | TopicPartition) -> int:
        """Return the topic's id; 0 if this node knows no such partition."""
        topic = self.node.metadata.topic(commit.topic)
        if topic is None or is_internal(topic.name) or commit.partition >= len(topic.partitions):
            return 0
        return topic.topic_id

    def _valid(self, key: Key, state: OffsetState | None) -> OffsetState | None:
        """Return the state; None if its topic was deleted."""
        topic = self.node.metadata.topic(key[0])
        if state is None:
            return None
        # This node may not have heard of the newest topics yet.
        oldest = self.node.metadata.tables.next_topic_id if topic is None else topic.topic_id
        return state if state.topic_id >= oldest else None

    def _all_valid(self, group: GroupState | None) -> dict[Key, OffsetState]:
        """Return the valid offsets by topic and partition."""
        found = {} if group is None else dict(group.items())
        return {key: state for key, state in found.items() if self._valid(key, state)}


_UNKNOWN = CommitResult(UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition", False, None)
_NOT_READY = CommitResult(
    "NOT_READY", "this node knows no such partition, and may be behind: retry", False, None
)


def _check_commits(request: pb.CommitOffsetsRequest) -> None:
    _check_offsets(request)
    if not request.member_id and request.commit_number:
        raise invalid("member_id", "must be set where commit_number is")
    in_range("commit_number", request.commit_number, 0, MAX_INT64)


def _check_offsets(request: pb.CommitOffsetsRequest | pb.StageOffsetsRequest) -> None:
    check_name("group", request.group)
    if request.member_id:
        check_name("member_id", request.member_id)
    count_in_range("offsets", len(request.offsets), 1, MAX_COMMITS)
    for commit in request.offsets:
        _check_commit(commit)


def _check_commit(commit: pb.OffsetCommit) -> None:
    limits = (
        ("partition", MAX_INT32),
        ("offset", MAX_INT64),
        ("producer_id", MAX_INT64),
        ("epoch", MAX_INT32),
        ("sequence", MAX_INT64),
        ("ownership", MAX_INT64),
    )
    for field, high in limits:
        in_range(f"offsets.{field}", getattr(commit, field), 0, high)
    size = len(commit.metadata.encode())
    if size > MAX_METADATA_BYTES:
        text = f"{size} bytes, the limit is {MAX_METADATA_BYTES}"
        raise invalid("offsets.metadata", text, f"0..{MAX_METADATA_BYTES}")
    if not commit.producer_id and (commit.epoch or commit.sequence):
        raise invalid("offsets.producer_id", "must be set where epoch or sequence is")
