"""Permission rules as part of the metadata: read from the wire, altered, written. Pure.

It also applies the commands that change rules and quotas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cluster.metadata.quotas import altered_quotas
from cluster.metadata.tables import Tables
from cluster.metadata.topics import INVALID_REQUEST, NOT_READY, Rejected, invalid
from cluster.security.permissions import MAX_RULES, Rule, fault, tidy
from cluster.v1 import metadata_pb2 as pb
from oncelog.v1.security_pb2 import PermissionRule


def change(tables: Tables, command: pb.MetadataCommand) -> pb.MetadataResult:
    """Runs alter_permissions, alter_quotas. Raises Rejected."""
    if command.HasField("alter_quotas"):
        tables.quotas = altered_quotas(tables.quotas, command.alter_quotas)
    else:
        after = altered(tables.rules, command.alter_permissions)
        tables.rules_version += after is not tables.rules
        tables.rules = after
    return pb.MetadataResult()


def check_version(tables: Tables, command: pb.MetadataCommand) -> None:
    """Raises Rejected if the rules have changed since the node's check, so that it checks again.

    Another command may revoke the permission between the check and the entry, as in etcd's
    authStore revision.
    """
    if command.rules_version and command.rules_version != tables.rules_version:
        raise Rejected(NOT_READY, "permissions have changed during this call; repeat it")


def altered(rules: tuple[Rule, ...], change: pb.AlterPermissions) -> tuple[Rule, ...]:
    """Returns the altered rules; the same object if nothing changed. Raises Rejected."""
    removed, added = _checked(change.remove), _checked(change.add)
    after = tuple(sorted(set(rules) - set(removed) | set(added)))
    if len(after) > MAX_RULES:
        raise invalid("add", f"there would be {len(after)} rules, the limit is {MAX_RULES}")
    return rules if after == rules else after


def read_rule(raw: PermissionRule) -> Rule:
    operations = tuple(raw.operations)
    return tidy(Rule(raw.principal, raw.kind, raw.name, operations, raw.prefix, raw.deny))


def write_rule(rule: Rule) -> PermissionRule:
    return PermissionRule(
        principal=rule.principal,
        kind=rule.kind,
        name=rule.name,
        prefix=rule.prefix,
        operations=rule.operations,
        deny=rule.deny,
    )


def read_rules(raw: Sequence[PermissionRule]) -> tuple[Rule, ...]:
    """Reads the rules of a snapshot. Raises ValueError."""
    rules = tuple(map(read_rule, raw))
    for rule in rules:
        if wrong := fault(rule):
            raise ValueError(f"a rule's {wrong}")
    if list(rules) != sorted(set(rules)) or len(rules) > MAX_RULES:
        raise ValueError(f"{len(rules)} rules that do not rise")
    return rules


def _checked(raw: Iterable[PermissionRule]) -> list[Rule]:
    rules = list(map(read_rule, raw))
    for rule in rules:
        if wrong := fault(rule):
            raise Rejected(INVALID_REQUEST, wrong)
    return rules
