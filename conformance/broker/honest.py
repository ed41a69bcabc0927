"""Administration by the nodes' own services over the simulated cluster.

ClusterService, SecurityService of the kit --Stage: a lie, or none--> cluster.services --ask--> Node
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from google.protobuf.message import Message

from cluster.services.admin import cluster_service, security_service
from cluster.services.context import NodeContext
from cluster.v1.metadata_pb2 import MetadataCommand, MetadataResult
from conformance.broker.lies import Lie
from oncelog.v1 import security_pb2_grpc

if TYPE_CHECKING:
    from conformance.broker.stage import Stage

T = TypeVar("T", bound=Message)


class Node:
    """Stand-in for the node that these services need."""

    def __init__(self, stage: Stage) -> None:
        self._cluster, self._node_id = stage.cluster, stage.node_id
        self.metadata = stage.cluster.metadata
        self.config = SimpleNamespace(node_id=stage.node_id, nodes=(), request_timeout_ms=30_000)
        self.sizes = self
        self.lags: Mapping[tuple[int, int], int] = {}
        self.controller_id = 1

    async def ask(self) -> Mapping[int, Mapping[int, int]]:
        """Sizes of replicas: none, so nothing is moved."""
        return {}

    async def propose_metadata(self, command: MetadataCommand, timeout: float) -> MetadataResult:
        what = command.WhichOneof("command")
        assert what is not None
        return self._cluster.propose(**{what: getattr(command, what)})

    async def listen_to_peers(self) -> None:
        """Does nothing: peers always listen here."""

    def alive(self, node_id: int) -> bool:
        return node_id in self._cluster.addresses and node_id not in self._cluster.stopped

    def leader_of(self, group_id: int) -> tuple[int, int]:
        topic, number = self._place(group_id)
        found = self._cluster.partitions[topic, number]
        return found.leader_id, found.term

    def partition(self, group_id: int) -> object:
        found = self._cluster.partitions[self._place(group_id)]
        return SimpleNamespace(
            log_start_offset=found.log_start, high_watermark=found.high_watermark(self._node_id)
        )

    def waiting(self, group_id: int) -> str:
        return ""

    def _place(self, group_id: int) -> tuple[str, int]:
        place = self.metadata.partition(group_id)
        assert place is not None, "only what is there is asked for"
        return place[0].name, place[1]


class Honest:
    """The nodes' own services; calls are noted with all request fields as their facts."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        node = cast(NodeContext, Node(stage))
        self.cluster = cluster_service.ClusterService(node)
        self.security = security_service.SecurityService(node, None)

    async def answer(
        self,
        call: str,
        method: Callable[[Any], Awaitable[T]],
        request: Any,
        context: Any,
    ) -> T:
        async def truth(_: Lie | None) -> T:
            return await method(request)

        return await self._stage.answer(call, facts_of(request), request, context, truth)


class SecurityService(security_pb2_grpc.SecurityServiceServicer):
    """Service of rules and quotas, without enforcement."""

    def __init__(self, honest: Honest) -> None:
        self._honest, self._node = honest, honest.security

    async def AlterPermissions(self, request: Any, context: Any) -> Any:
        method = self._node.AlterPermissions
        return await self._honest.answer("alter_permissions", method, request, context)

    async def ListPermissions(self, request: Any, context: Any) -> Any:
        method = self._node.ListPermissions
        return await self._honest.answer("list_permissions", method, request, context)

    async def CheckPermission(self, request: Any, context: Any) -> Any:
        method = self._node.CheckPermission
        return await self._honest.answer("check_permission", method, request, context)

    async def AlterQuotas(self, request: Any, context: Any) -> Any:
        return await self._honest.answer("alter_quotas", self._node.AlterQuotas, request, context)

    async def ListQuotas(self, request: Any, context: Any) -> Any:
        return await self._honest.answer("list_quotas", self._node.ListQuotas, request, context)


def facts_of(message: Message) -> dict[str, Any]:
    """All fields in a case's notation: enums by name, messages as tables."""
    return {field.name: _fact(field, getattr(message, field.name)) for field in _fields(message)}


def _fields(message: Message) -> Any:
    return message.DESCRIPTOR.fields


def _fact(field: Any, value: Any) -> Any:
    match value:
        case str() | bytes() | bool() | float():
            return value
        case int():
            return field.enum_type.values_by_number[value].name if field.enum_type else value
        case Message():
            return facts_of(value)
    return [_fact(field, one) for one in value]
