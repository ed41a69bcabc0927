"""SecurityService: the rules of permissions, their evaluation, and quotas.

Any node answers. Both are metadata: a change is answered once it is applied here; other
nodes follow a moment later.
"""

from __future__ import annotations

from cluster.features import PERMISSIONS, QUOTAS
from cluster.metadata.permissions import read_rule, write_rule
from cluster.metadata.quotas import read_quota, write_quota
from cluster.security.caller import CALLER
from cluster.security.permissions import KINDS, MAX_RULES, OPERATIONS, Authorizer, Need, fault
from cluster.security.quotas import MAX_QUOTAS
from cluster.security.quotas import fault as quota_fault
from cluster.services.context import NodeContext
from cluster.services.errors import accepted
from cluster.services.requests import count_in_range, invalid, timeout_s
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1 import security_pb2 as pb


class SecurityService:
    """Answers for one node. permissions: None if the node enforces none."""

    def __init__(self, node: NodeContext, permissions: Authorizer | None) -> None:
        self.node = node
        self._enforced = permissions is not None
        self._permissions = permissions or Authorizer(lambda: node.metadata.rules)

    async def AlterPermissions(
        self, request: pb.AlterPermissionsRequest
    ) -> pb.AlterPermissionsResponse:
        for field in ("add", "remove"):
            count_in_range(field, len(getattr(request, field)), 0, MAX_RULES)
            for raw in getattr(request, field):
                name, _, text = fault(read_rule(raw)).partition(": ")
                if text:
                    raise invalid(f"{field}.{name}", text)
        self.node.metadata.features.require(PERMISSIONS)
        before = set(self.node.metadata.rules)
        command = meta.MetadataCommand(
            alter_permissions=meta.AlterPermissions(add=request.add, remove=request.remove)
        )
        accepted(await self.node.propose_metadata(command, timeout_s(0, self.node)))
        after = set(self.node.metadata.rules)
        return pb.AlterPermissionsResponse(added=len(after - before), removed=len(before - after))

    async def ListPermissions(
        self, request: pb.ListPermissionsRequest
    ) -> pb.ListPermissionsResponse:
        return pb.ListPermissionsResponse(
            rules=[
                write_rule(rule)
                for rule in self.node.metadata.rules
                if request.principal in ("", rule.principal)
            ],
            enforced=self._enforced,
            caller=CALLER.get().principal,
        )

    async def CheckPermission(
        self, request: pb.CheckPermissionRequest
    ) -> pb.CheckPermissionResponse:
        if request.operation not in OPERATIONS:
            raise invalid("operation", f"must be one of {', '.join(OPERATIONS)}")
        if request.kind not in KINDS:
            raise invalid("kind", f"must be one of {', '.join(KINDS)}")
        principal = request.principal or CALLER.get().principal
        need = Need(request.operation, request.kind, request.name)
        return pb.CheckPermissionResponse(allowed=self._permissions.allows(principal, need))

    async def AlterQuotas(self, request: pb.AlterQuotasRequest) -> pb.AlterQuotasResponse:
        count_in_range("set", len(request.set), 0, MAX_QUOTAS)
        count_in_range("remove", len(request.remove), 0, MAX_QUOTAS)
        for raw in request.set:
            name, _, text = quota_fault(read_quota(raw)).partition(": ")
            if text:
                raise invalid(f"set.{name}", text)
        self.node.metadata.features.require(QUOTAS)
        command = meta.MetadataCommand(
            alter_quotas=meta.AlterQuotas(set=request.set, remove=request.remove)
        )
        accepted(await self.node.propose_metadata(command, timeout_s(0, self.node)))
        return pb.AlterQuotasResponse()

    async def ListQuotas(self, request: pb.ListQuotasRequest) -> pb.ListQuotasResponse:
        quotas = self.node.metadata.quotas
        wanted = [one for one in quotas if request.principal in ("", one.principal)]
        return pb.ListQuotasResponse(quotas=map(write_quota, wanted))
