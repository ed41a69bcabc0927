"""Groups for admins: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete.

session --> GroupAdmin --the services' requests--> GroupService

A group whose partitions Oncelog assigns is shown as Kafka would show it: its members in state
Stable, with their partitions.
"""

from __future__ import annotations

from cluster.groups.classic import DEAD, EMPTY, STABLE
from cluster.groups.consumer_protocol import CONSUMER, assignment_of
from cluster.kafka.errors import EXPECTED, Error, of_coordinator, of_deletion, of_error
from cluster.kafka.groups import host_of
from cluster.kafka.messages import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_DELETE,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from cluster.kafka.needs import Required, Rights
from cluster.kafka.versions import Head
from cluster.partition.group_offsets import GROUP_SUBSCRIBED, TRANSACTION_CONFLICT
from cluster.services.groups.classic_groups import RunningClassicGroup
from cluster.services.groups.running_groups import AnyGroup, RunningGroup
from cluster.services.groups.service import MAX_LISTED, GroupService
from cluster.services.requests import Deadline
from cluster.services.slices import in_slices

CLASSIC = "classic"  # the type of all groups here
MAX_DESCRIBED_BYTES = 8 * 1024 * 1024  # of members in an answer; the last group may exceed it
DESCRIBED_AT_ONCE = 10  # groups between which others run: each may have 1,000 members
_READ_TOPIC = Required("read", "topic")
_OFFSET_ERRORS = {
    "": Error.NONE,
    GROUP_SUBSCRIBED: Error.GROUP_SUBSCRIBED_TO_TOPIC,
    TRANSACTION_CONFLICT: Error.UNSTABLE_OFFSET_COMMIT,
}


class GroupAdmin:
    """Admins' calls about groups, for one node."""

    def __init__(self, service: GroupService) -> None:
        self._service = service

    async def describe(
        self, rights: Rights, head: Head, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        answer, left = DescribeGroupsResponse(), MAX_DESCRIBED_BYTES
        deadline = Deadline(0, self._service.node)
        async for name in in_slices(dict.fromkeys(request.groups), DESCRIBED_AT_ONCE):
            try:
                refused = rights.refusal(DESCRIBE_GROUPS, name)
                if refused is not None:
                    raise refused
                async with deadline:
                    offsets, running = await self._service.look(name)
            except EXPECTED as error:
                answer.groups.append(DescribedGroup(of_coordinator(error), name))
                continue
            if left <= 0 and running is not None:
                answer.groups.append(DescribedGroup(Error.POLICY_VIOLATION, name))
                continue
            state = EMPTY if offsets is not None else DEAD
            described = _described(name, state, running)
            left -= sum(_size_of(one) for one in described.members)
            answer.groups.append(described)
        return answer

    async def list(
        self, rights: Rights, head: Head, request: ListGroupsRequest
    ) -> ListGroupsResponse:
        answer, after = ListGroupsResponse(), ""
        states = {one.lower() for one in request.states_filter}
        types = {one.lower() for one in request.types_filter}
        try:
            while True:
                _, found = await self._service.listed(after, MAX_LISTED, is_classic=True)
                async for name, _, running in in_slices(found):
                    listed = ListedGroup(name, _type_of(running), _state_of(running), CLASSIC)
                    wanted = not states or listed.group_state.lower() in states
                    if types and CLASSIC not in types:
                        wanted = False
                    if wanted and rights.shows(LIST_GROUPS, name):
                        answer.groups.append(listed)
                if len(found) < MAX_LISTED:
                    return answer
                after = found[-1][0]
        except EXPECTED as error:
            return ListGroupsResponse(error_code=of_coordinator(error))

    async def delete(
        self, rights: Rights, head: Head, request: DeleteGroupsRequest
    ) -> DeleteGroupsResponse:
        answer, deadline = DeleteGroupsResponse(), Deadline(0, self._service.node)
        for name in dict.fromkeys(request.groups_names):
            error = await self._delete(rights, name, deadline)
            answer.results.append(DeletableGroupResult(name, error))
        return answer

    async def _delete(self, rights: Rights, name: str, deadline: Deadline) -> Error:
        try:
            refused = rights.refusal(DELETE_GROUPS, name)
            if refused is not None:
                raise refused
            with rights.noting(DELETE_GROUPS, name, of_deletion):
                async with deadline:
                    done = await self._service.delete(name)
        except EXPECTED as error:
            return of_deletion(error)
        if done is False:
            result = Error.GROUP_ID_NOT_FOUND
        else:
            result = Error.NONE if done is True else Error.NON_EMPTY_GROUP
        rights.ended(DELETE_GROUPS, name, "ok" if done is True else result.name)
        return result

    async def delete_offsets(
        self, rights: Rights, head: Head, request: OffsetDeleteRequest
    ) -> OffsetDeleteResponse:
        keys = list[tuple[str, int]]()
        hidden = dict[str, Error]()
        for topic in request.topics:
            refused = rights.refusal(OFFSET_DELETE, topic.name, _READ_TOPIC)
            if refused is not None:
                hidden[topic.name] = of_error(refused)
                continue
            keys += [(topic.name, one.partition_index) for one in topic.partitions]
        group = request.group_id
        try:
            refused = rights.refusal(OFFSET_DELETE, group)
            if refused is not None:
                raise refused
            offsets, running = await self._service.look(group)
            if offsets is None and running is None:
                return OffsetDeleteResponse(error_code=Error.GROUP_ID_NOT_FOUND)
            with rights.noting(OFFSET_DELETE, group, of_deletion):
                results = await self._service.delete_offsets(group, keys) if keys else []
        except EXPECTED as error:
            return OffsetDeleteResponse(error_code=of_deletion(error))
        rights.ended(OFFSET_DELETE, group, "ok")
        found = {key: _OFFSET_ERRORS[one.error] for key, one in zip(keys, results, strict=True)}
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    topic.name,
                    [
                        OffsetDeleteResponsePartition(
                            one.partition_index,
                            hidden.get(topic.name) or found[topic.name, one.partition_index],
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def _state_of(running: AnyGroup | None) -> str:
    if running is None or not running.size:
        return EMPTY
    return running.coordinator.state if isinstance(running, RunningClassicGroup) else STABLE


def _type_of(running: AnyGroup | None) -> str:
    """Return the protocol type; empty for a group that only has offsets."""
    if isinstance(running, RunningClassicGroup):
        return running.coordinator.protocol_type
    return CONSUMER if running is not None and running.size else ""


def _size_of(member: DescribedGroupMember) -> int:
    """Return about how many bytes a member takes in the answer."""
    texts = len(member.member_id) + len(member.client_id) + len(member.client_host)
    return texts + len(member.member_metadata) + len(member.member_assignment)


def _described(name: str, state: str, running: AnyGroup | None) -> DescribedGroup:
    if running is None:
        return DescribedGroup(Error.NONE, name, state)
    if isinstance(running, RunningGroup):
        return _described_ours(name, running)
    coordinator = running.coordinator
    return DescribedGroup(
        Error.NONE,
        name,
        coordinator.state,
        coordinator.protocol_type,
        coordinator.protocol,
        [
            DescribedGroupMember(
                one.member,
                one.instance or None,
                one.client_id,
                one.client_host,
                one.metadata,
                one.assignment,
            )
            for one in coordinator.members()
        ],
    )


def _described_ours(name: str, running: RunningGroup) -> DescribedGroup:
    """Describe a group whose partitions Oncelog assigns."""
    facts, members = running.facts(), list[DescribedGroupMember]()
    for view in running.coordinator.members():
        owned: dict[str, list[int]] = {}
        for part in sorted(facts.partitions_of(view.member)):
            topic = running.topic_name(part.topic_id)
            if topic:
                owned.setdefault(topic, []).append(part.partition)
        members.append(
            DescribedGroupMember(
                view.member,
                view.instance or None,
                "oncelog",
                host_of(running.host(view.member)),
                b"",
                assignment_of(owned),
            )
        )
    assignor = running.coordinator.settings.assignor
    return DescribedGroup(Error.NONE, name, STABLE, CONSUMER, assignor, members)
