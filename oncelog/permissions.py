"""Permissions and quotas of principals, as `Admin` takes and returns them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """Grant or denial of operations to a principal, on a topic, group, producer, sink or cluster.

    principal "*": every authenticated caller. name "*": all of the kind. operations ("*",): each.
    """

    principal: str
    operations: tuple[str, ...]
    kind: str
    name: str = ""  # empty for the cluster
    prefix: bool = False  # name is a prefix
    deny: bool = False  # deny rules override allow rules


@dataclass(frozen=True, slots=True)
class Permissions:
    """The rules, and how the answering node applies them."""

    rules: tuple[PermissionRule, ...]
    enforced: bool
    caller: str  # the principal that the node sees; empty: not authenticated


@dataclass(frozen=True, slots=True)
class AlteredPermissions:
    """Answer to `alter_permissions`; a rule that was there already is not added again."""

    added: int  # new rules
    removed: int  # rules that were there


@dataclass(frozen=True, slots=True)
class Quota:
    """A principal's limit at each node.

    principal "*": every principal without a value of its own. value 0: no limit.
    """

    principal: str
    name: str
    value: int


__all__ = ["AlteredPermissions", "PermissionRule", "Permissions", "Quota"]
