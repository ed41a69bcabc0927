"""Changes of groups, producers, transactions, sinks, nodes, permissions and quotas."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from oncelog import PermissionRule, Quota, TopicPartition
from oncelog.aio import Admin, Consumer
from oncelog.config import MAX_INT32, MAX_INT64
from oncelog.console.changes import (
    PINNED,
    ChangePlan,
    ChangeTask,
    NeededPermission,
    Query,
    fixed,
    given,
)
from oncelog.console.pages import number, partition_of
from oncelog.console.parts import Field, listed
from oncelog.console.records import MAX_PARTITIONS, positions_of
from oncelog.console.sessions import BrowserSession
from oncelog.errors import InvalidRequestError
from oncelog.views.changes import effects_of_seek, move_rows, told_rule
from oncelog.views.record_choice import exact_places, in_range, parse_start
from oncelog.views.tables import owner_of
from oncelog.views.words import grouped, plural

ALTERS_CLUSTER = NeededPermission("alter", "cluster")
KINDS = ("topic", "group", "producer", "sink", "cluster")
QUOTAS = (
    "in_bytes_per_s", "out_bytes_per_s", "requests_per_s", "producer_ids_per_s", "producer_ids",
    "open_transactions", "staged_bytes", "streams", "connections",
)  # fmt: skip


def _only(*names: str) -> Callable[[BrowserSession, Query], Awaitable[Sequence[Field]]]:
    """Return the form of a change that the address decides."""

    async def fields(session: BrowserSession, query: Query) -> Sequence[Field]:
        return fixed(query, *names)

    return fields


# --- groups ------------------------------------------------------------------------------


async def _seek_fields(session: BrowserSession, query: Query) -> list[Field]:
    return [
        *fixed(query, "group"),
        Field("topic", "Topic", query.get("topic", "")),
        Field("partition", "Partition", query.get("partition", ""), hint="empty: all"),
        Field("to", "To", query.get("to", ""),
              hint="start, end, an offset, -10: before the end, 2h ago, or a time in ISO 8601"),
    ]  # fmt: skip


async def _seek(session: BrowserSession, query: Query) -> ChangePlan:
    group, topic, to = given(query, "group"), given(query, "topic"), given(query, "to").strip()
    found = await session.admin.describe_group(group)
    wanted = await _offsets(session, query, topic, to)
    before = {tp: one.offset for tp, one in found.offsets.items()}
    moves = any(before.get(tp) != at for tp, at in wanted.items())
    hindrances = []
    if found.members:
        hindrances.append(f"{group} has {plural(len(found.members), 'member')}: stop them first.")

    async def run() -> str:
        commits = {(tp.topic, tp.partition): at for tp, at in wanted.items()}
        await session.admin.commit_offsets(group, commits)
        return f"Group {group} goes on from the new offsets in {topic}."

    flags = [word for tp in wanted for word in ("-p", str(tp.partition))]
    return ChangePlan(
        effects_of_seek(group, before, wanted) if moves else [], run,
        [NeededPermission("read", "group", group), NeededPermission("read", "topic", topic)],
        ["group", "seek", group, topic, *(flags if query.get("partition") else []), "--to", to],
        hindrances=hindrances,
        pinned=",".join(f"{tp.partition}:{at}" for tp, at in wanted.items()),
    )  # fmt: skip


async def _offsets(
    session: BrowserSession, query: Query, topic: str, to: str
) -> dict[TopicPartition, int]:
    """Return the offsets to seek: those that were shown, or those of the form.

    Raises InvalidRequestError for an offset that is out of range.
    """
    count = (await session.admin.describe_topic(topic)).partition_count
    one = partition_of(query, topic, count)
    chosen: Sequence[int] = range(count) if one is None else [one]
    if len(chosen) > MAX_PARTITIONS:
        text = f"partition: {topic} has {count}; name one, or use `oncelog group seek` for all"
        raise InvalidRequestError(text, field="partition", limit=str(MAX_PARTITIONS))
    tps = [TopicPartition(topic, one) for one in chosen]
    async with Consumer(**session.settings) as consumer:
        begins, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        shown = positions_of(query.get(PINNED, ""))
        if shown:
            return in_range({tp: shown.get(tp.partition, -1) for tp in tps}, begins, ends)
        start = parse_start(to, time.time_ns() // 1_000_000, "to")
        since: Mapping[TopicPartition, int] = {}
        if start.time_ms is not None:
            since = await consumer.offsets_for_times(dict.fromkeys(tps, start.time_ms))
        return exact_places(start, begins, ends, since)


async def _delete_group(session: BrowserSession, query: Query) -> ChangePlan:
    group = given(query, "group")
    found = await session.admin.describe_group(group)
    if not found.exists:
        raise InvalidRequestError(f"group: there is no group {group!r}", field="group")

    async def run() -> str:
        await session.admin.delete_group(group)
        return f"Deleted group {group}."

    count = plural(len(found.offsets), "partition")
    return ChangePlan(
        [f"Group {group} and its offsets of {count} are deleted."], run,
        [NeededPermission("delete", "group", group)], ["group", "delete", group], typed=group,
        notes=["A consumer of this name then begins where its settings say."],
    )  # fmt: skip


# --- producers, transactions, sinks ------------------------------------------------------


async def _fence(session: BrowserSession, query: Query) -> ChangePlan:
    name = given(query, "producer")
    names = {one.name: one for one in await session.admin.list_producer_names()}
    known = names.get(name)
    if known is None:
        raise InvalidRequestError(f"producer: there is no name {name!r}", field="producer")

    async def run() -> str:
        done = await session.admin.fence_producer(name)
        return f"Fenced {name}: producer {done.producer_id} has the epoch {done.epoch} now."

    return ChangePlan(
        [f"Producer {known.producer_id} ({name}) loses its epoch {known.epoch}: all that it sends "
         f"with it is refused from then on."],
        run, [NeededPermission("fence", "producer", name)], ["producer", "fence", name], typed=name,
        notes=["A program that opens the name again gets a new epoch and may go on."],
    )  # fmt: skip


async def _abort(session: BrowserSession, query: Query) -> ChangePlan:
    given(query, "transaction")
    number_of = number(query, "transaction", 0, MAX_INT64)
    one = await session.admin.describe_transaction(number_of)

    async def run() -> str:
        await session.admin.abort_transaction(number_of)
        return f"Aborted transaction {number_of}."

    return ChangePlan(
        [f"Transaction {number_of} of {owner_of(one)} is aborted: none of its records becomes "
         f"readable."],
        run, [ALTERS_CLUSTER], ["txn", "abort", str(number_of)], typed=str(number_of),
        notes=[f"It has {grouped(one.staged_bytes)} staged bytes in "
               f"{plural(len(one.partitions), 'partition')}."],
    )  # fmt: skip


async def _reset(session: BrowserSession, query: Query) -> ChangePlan:
    name = given(query, "sink")
    found = await session.admin.describe_sink(name)

    async def run() -> str:
        await session.admin.reset_sink(name)
        return f"Sink {name} takes any batch next."

    return ChangePlan(
        [f"Sink {name} forgets that it has committed batch {found.committed_batch}."], run,
        [NeededPermission("alter", "sink", name)], ["sink", "reset", name], typed=name,
        notes=["Stored records stay. If the next query writes them again, they are there twice."],
    )  # fmt: skip


# --- nodes -------------------------------------------------------------------------------


def _of_node(
    action: Callable[[Admin], Callable[..., Awaitable[Sequence[str]]]],
    command: Sequence[str], done: str, is_final: bool = False,
) -> Callable[[BrowserSession, Query], Awaitable[ChangePlan]]:  # fmt: skip
    """Return the plan of a node's change, whose effects the controller tells in a dry run."""

    async def plan(session: BrowserSession, query: Query) -> ChangePlan:
        given(query, "node")
        node = number(query, "node", 0, MAX_INT32)
        change = action(session.admin)

        async def run() -> str:
            await change(node)
            return f"Node {node} {done}."

        return ChangePlan(
            await change(node, dry_run=True), run, [ALTERS_CLUSTER],
            ["node", *command[:1], str(node), *command[1:]],
            typed=f"node {node}" if is_final else "",
        )  # fmt: skip

    return plan


async def _add_fields(session: BrowserSession, query: Query) -> list[Field]:
    hint = "Start it with an empty data directory and the setting join"
    return [Field("node", "Node id", query.get("node", ""), hint=hint)]


async def _balance(session: BrowserSession, query: Query) -> ChangePlan:
    found = await session.admin.plan_balance()

    async def run() -> str:
        await session.admin.start_balance()
        return "The balance has begun; this page shows its moves."

    effects = [f"{found.count} partitions move; at most 50 at a time."] if found.count else []
    return ChangePlan(
        effects, run, [ALTERS_CLUSTER], ["cluster", "balance"],
        notes=[f"About {grouped(found.bytes)} bytes are copied.", *found.waits_for],
        table=listed("Moves", move_rows(found.moves)) if found.moves else None,
    )  # fmt: skip


async def _stop_balance(session: BrowserSession, query: Query) -> ChangePlan:
    found = await session.admin.describe_balance()

    async def run() -> str:
        await session.admin.cancel_balance()
        return "No more moves begin; unfinished ones are undone."

    effects = [] if found.settled else ["No more moves begin, and unfinished ones are undone."]
    return ChangePlan(effects, run, [ALTERS_CLUSTER], ["cluster", "balance", "--cancel"])


# --- permissions and quotas --------------------------------------------------------------


async def _rule_fields(session: BrowserSession, query: Query) -> list[Field]:
    return [
        Field("principal", "Principal", query.get("principal", ""),
              hint="A certificate's URI, dns:NAME, jwt:SUB, token:NAME, or *"),
        Field("operations", "Operations", query.get("operations", ""),
              hint="read, write, create, alter, delete, describe, fence, abort, or *"),
        Field("kind", "Kind", query.get("kind", ""), KINDS),
        Field("name", "Name", query.get("name", ""), hint="*: all of the kind; none: cluster"),
        Field("prefix", "The name is", query.get("prefix", ""), ("whole", "a prefix")),
        Field("effect", "Effect", query.get("effect", ""), ("allow", "deny")),
    ]  # fmt: skip


def _rule_of(query: Query) -> PermissionRule:
    listed = given(query, "operations").split(",")
    operations = tuple(filter(None, (one.strip() for one in listed)))
    kind = given(query, "kind")
    return PermissionRule(
        given(query, "principal").strip(), operations, kind, query.get("name", "").strip(),
        query.get("prefix") == "a prefix", query.get("effect") == "deny",
    )  # fmt: skip


def _words_of(rule: PermissionRule) -> list[str]:
    flags = [*(["--prefix"] if rule.prefix else []), *(["--deny"] if rule.deny else [])]
    return [rule.principal, ",".join(rule.operations), rule.kind, rule.name, *flags]


async def _add_rule(session: BrowserSession, query: Query) -> ChangePlan:
    rule = _rule_of(query)
    there = (await session.admin.list_permissions(rule.principal)).rules

    async def run() -> str:
        await session.admin.alter_permissions([rule])
        return "Added the rule. Nodes apply it within moments."

    effects = [] if rule in there else [f"{told_rule(rule)}."]
    return ChangePlan(
        effects, run, [ALTERS_CLUSTER], ["acl", "add", *_words_of(rule)],
        typed=rule.principal if rule.deny and _concerns(session, rule) else "",
        notes=["This rule is about you."] if _concerns(session, rule) else [],
    )  # fmt: skip


async def _remove_rule(session: BrowserSession, query: Query) -> ChangePlan:
    rule = _rule_of(query)
    there = (await session.admin.list_permissions(rule.principal)).rules
    if rule not in there:
        raise InvalidRequestError("principal: there is no such rule", field="principal")

    async def run() -> str:
        await session.admin.alter_permissions(remove=[rule])
        return "Removed the rule. Nodes apply that within moments."

    return ChangePlan(
        [f"No longer by this rule: {told_rule(rule)}."], run, [ALTERS_CLUSTER],
        ["acl", "remove", *_words_of(rule)],
        typed=rule.principal if not rule.deny and _concerns(session, rule) else "",
        notes=["This rule is about you."] if _concerns(session, rule) else [],
    )  # fmt: skip


def _concerns(session: BrowserSession, rule: PermissionRule) -> bool:
    return rule.principal in (session.principal, "*")


async def _quota_fields(session: BrowserSession, query: Query) -> list[Field]:
    return [
        Field("principal", "Principal", query.get("principal", ""), hint="*: all without a value"),
        Field("name", "Limit", query.get("name", ""), QUOTAS),
        Field("value", "Value", query.get("value", ""),
              hint="0: no limit, even if * has one; empty: the value of * applies"),
    ]  # fmt: skip


async def _set_quota(session: BrowserSession, query: Query) -> ChangePlan:
    principal, name = given(query, "principal").strip(), given(query, "name")
    removes = not query.get("value", "").strip()
    value = number(query, "value", 0, MAX_INT64)
    there = {one.name: one.value for one in await session.admin.list_quotas(principal)}
    new = "none of its own" if removes else str(value)

    async def run() -> str:
        if removes:
            await session.admin.alter_quotas(remove=[(principal, name)])
        else:
            await session.admin.alter_quotas([Quota(principal, name, value)])
        return f"Changed the limit {name} of {principal}."

    changes = (name in there) if removes else there.get(name) != value
    old = there.get(name, "none of its own")
    command = ["remove", principal, name] if removes else ["set", principal, f"{name}={value}"]
    return ChangePlan(
        [f"{name} of {principal} at each node: {old} becomes {new}."] if changes else [], run,
        [ALTERS_CLUSTER], ["quota", *command],
    )  # fmt: skip


TASKS = (
    ChangeTask(
        "group-seek", "Offsets of a group", "Move the offsets", "groups", _seek_fields, _seek,
        "group",
    ),
    ChangeTask(
        "group-delete", "Delete a group", "Delete", "groups", _only("group"), _delete_group
    ),
    ChangeTask(
        "producer-fence", "Fence a producer", "Fence", "producers", _only("producer"), _fence
    ),
    ChangeTask(
        "transaction-abort", "Abort a transaction", "Abort", "transactions", _only("transaction"),
        _abort,
    ),
    ChangeTask("sink-reset", "Reset a sink", "Reset", "sinks", _only("sink"), _reset, "sink"),
    ChangeTask(
        "node-drain", "Drain a node", "Drain", "nodes", _only("node"),
        _of_node(lambda admin: admin.drain_node, ["drain"], "leads nothing until it is undrained"),
    ),
    ChangeTask(
        "node-undrain", "Undrain a node", "Undrain", "nodes", _only("node"),
        _of_node(lambda admin: admin.undrain_node, ["undrain"], "may lead again"),
    ),
    ChangeTask(
        "node-add", "Add a node", "Add", "nodes", _add_fields,
        _of_node(lambda admin: admin.add_node, ["add"], "may join"),
    ),
    ChangeTask(
        "node-remove", "Remove a node", "Remove", "nodes", _only("node"),
        _of_node(lambda admin: admin.remove_node, ["remove"], "leaves", True),
    ),
    ChangeTask(
        "node-keep", "Keep a node that leaves", "Keep", "nodes", _only("node"),
        _of_node(lambda admin: admin.cancel_node_removal, ["remove", "--cancel"], "stays"),
    ),
    ChangeTask("balance", "Balance the cluster", "Start", "nodes", _only(), _balance),
    ChangeTask("balance-cancel", "Stop the balance", "Stop", "nodes", _only(), _stop_balance),
    ChangeTask("rule-add", "Add a permission", "Add", "security", _rule_fields, _add_rule),
    ChangeTask(
        "rule-remove", "Remove a permission", "Remove", "security",
        _only("principal", "operations", "kind", "name", "prefix", "effect"), _remove_rule,
    ),
    ChangeTask(
        "quota-set", "Limit of a principal", "Change", "security", _quota_fields, _set_quota
    ),
)  # fmt: skip

__all__ = ["TASKS"]
