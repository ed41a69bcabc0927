"""Page of permissions and quotas: may somebody do something, the rules, the limits."""

from __future__ import annotations

import asyncio

from oncelog import PermissionRule, Permissions, Quota
from oncelog.aio import Admin
from oncelog.console.pages import Query
from oncelog.console.parts import (
    Field,
    Filter,
    Link,
    Links,
    Notes,
    Page,
    Part,
    change,
    listed,
    path,
)
from oncelog.errors import OncelogError, UnauthenticatedError
from oncelog.views.tables import quota_rows, rule_rows

KINDS = ("topic", "group", "producer", "sink", "cluster")
OPERATIONS = ("read", "write", "create", "alter", "delete", "describe", "fence", "abort")


async def security(admin: Admin, query: Query) -> Page:
    """Return the page; a part that the caller may not see says so, and the others are shown."""
    principal = query.get("of", "").strip()
    form = Filter(
        "May somebody do something?", path("security"),
        (
            Field("principal", "Principal", query.get("principal", ""), hint="empty: you"),
            Field("operation", "Operation", query.get("operation", ""), OPERATIONS),
            Field("kind", "Kind", query.get("kind", ""), KINDS),
            Field("name", "Name", query.get("name", ""), hint="none for the cluster"),
        ),
        "Ask",
    )  # fmt: skip
    parts: list[Part] = [form]
    if query.get("operation"):
        parts.append(await _answer(admin, query))
    rules, quotas = await asyncio.gather(
        admin.list_permissions(principal), admin.list_quotas(principal), return_exceptions=True
    )
    of = Field("of", "Principal", principal, hint="empty: all")
    parts.append(Filter("Rules and limits of", path("security"), (of,)))
    parts += _rules(_told(rules)) + _quotas(_told(quotas))
    parts.append(Links("More", [Link("Audit events", path("events", kind="audit"))]))
    changes = (
        change("rule-add", "Add a permission", principal=principal),
        change("quota-set", "Limit a principal", principal=principal),
    )
    return Page("Security", parts, "oncelog acl list", "security", changes=changes)


async def _answer(admin: Admin, query: Query) -> Notes:
    principal, name = query.get("principal", "").strip(), query.get("name", "").strip()
    operation, kind = query["operation"], query.get("kind", "")
    try:
        may = await admin.check_permission(operation, kind, name, principal)
    except OncelogError as error:
        return Notes("Answer", [error.message], "problem")
    who, verb = principal or "You", "may" if may else "may not"
    sentence = f"{who} {verb} {operation} {kind} {name}".strip()
    return Notes("Answer", [f"By the rules: {sentence}."], "good" if may else "problem")


def _told(found: object) -> object:
    """Return an answer or an error of the cluster. Raises other errors, and of an ended token."""
    is_told = isinstance(found, OncelogError) and not isinstance(found, UnauthenticatedError)
    if isinstance(found, BaseException) and not is_told:
        raise found
    return found


def _rules(found: object) -> list[Part]:
    if not isinstance(found, Permissions):
        return [Notes("Rules", [f"No rules: {found}"], "problem")]
    state = "These rules are enforced."
    if not found.enforced:
        state = "Permissions are not enforced: everybody who can connect may do everything."
    changes = [[_removal(rule)] for rule in found.rules]
    return [
        Notes("Enforcement", [state], "good" if found.enforced else "problem"),
        listed("Rules", rule_rows(found.rules), empty="There are no rules.", changes=changes),
    ]


def _removal(rule: PermissionRule) -> Link:
    return change(
        "rule-remove", "Remove", principal=rule.principal, operations=",".join(rule.operations),
        kind=rule.kind, name=rule.name, prefix="a prefix" if rule.prefix else "whole",
        effect="deny" if rule.deny else "allow",
    )  # fmt: skip


def _quotas(found: object) -> list[Part]:
    if not isinstance(found, list):
        return [Notes("Limits", [f"No limits: {found}"], "problem")]
    quotas = [one for one in found if isinstance(one, Quota)]
    changes = [
        [change("quota-set", "Change", principal=one.principal, name=one.name, value=one.value)]
        for one in quotas
    ]
    empty = "There are no limits of principals."
    return [listed("Limits at each node", quota_rows(quotas), empty=empty, changes=changes)]


__all__ = ["security"]
