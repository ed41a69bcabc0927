"""Pages that list: cluster, nodes, topics, groups, producers, events.

Place in the flow: a request's session --> one of these functions, which asks the nodes with the
session's identity --> the rows of `oncelog.views` --> a `Page`, which `app` renders.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence

from oncelog import EventFilter, NodeEvent, NodeStatus, TopicInfo
from oncelog.aio import Admin
from oncelog.config import MAX_INT32, MAX_INT64
from oncelog.console.parts import (
    Cell,
    Facts,
    Field,
    Filter,
    Link,
    Linked,
    Links,
    Notes,
    Page,
    Part,
    Table,
    as_cell,
    change,
    cut,
    listed,
    path,
)
from oncelog.errors import InvalidRequestError, OncelogError
from oncelog.views.cluster import check_health, needs_topics
from oncelog.views.events import KINDS, sequences_of, subject_of
from oncelog.views.groups import GroupView, group_view
from oncelog.views.nodes import waiting
from oncelog.views.tables import group_rows, headings, node_rows, producer_rows, topic_rows
from oncelog.views.topics import topic_view
from oncelog.views.words import seconds, when

Query = Mapping[str, str]
GROUPS_A_PAGE = 50  # each is asked for its lag
MAX_EVENTS = 500
MAX_PRODUCERS = 500
_AT_ONCE = 8  # groups that are asked at the same time


def number(query: Query, name: str, default: int, most: int = MAX_INT64) -> int:
    """Return a number of the address. Raises InvalidRequestError."""
    given = query.get(name, "").strip()
    if not given:
        return default
    if not is_number(given, most):
        text = f"{name}: {given[:40]!r} is not a whole number from 0 to {most}"
        raise InvalidRequestError(text, field=name, limit=f"0..{most}")
    return int(given)


def is_number(given: str, most: int = MAX_INT64) -> bool:
    """Tell whether a text is a whole number up to `most`; Python refuses to read very long ones."""
    return given.isascii() and given.isdecimal() and len(given) <= 19 and int(given) <= most


def partition_of(query: Query, topic: str, count: int) -> int | None:
    """Return the partition of a form; None: it is empty. Raises InvalidRequestError."""
    if not query.get("partition", "").strip():
        return None
    chosen = number(query, "partition", 0, MAX_INT32)
    if chosen >= count:
        text = f"partition: {chosen} is not in {topic}, which has the partitions 0 to {count - 1}"
        raise InvalidRequestError(text, field="partition", limit=str(count - 1))
    return chosen


def found_by(query: Query, action: str, title: str) -> Filter:
    """Return the form that looks for names in a list."""
    field = Field("match", "Name contains", query.get("match", ""))
    return Filter(title, action, (field,))


# --- cluster and nodes -------------------------------------------------------------------


async def overview(admin: Admin, query: Query) -> Page:
    facts, nodes = await asyncio.gather(admin.describe_cluster(), admin.list_nodes())
    topics, hidden = list[TopicInfo](), list[str]()
    if needs_topics(facts):
        try:
            topics = await admin.describe_topics()
        except OncelogError as error:
            hidden.append(f"topics are left out of the notes: {error.message}")
    health = check_health(facts, topics)
    state = Notes("Health", [f"The cluster is {health.sentence}."], "good")
    if health.problems:
        state = Notes("Health", ["The cluster is not healthy.", *health.problems], "problem")
    numbers = Facts(
        "Cluster",
        [
            ("cluster", facts.cluster_id),
            ("controller", facts.controller_id or None),
            ("version", facts.upgrade.cluster_version),
            ("topics", Link(str(facts.topics), path("topics"))),
            ("partitions", facts.partitions),
            ("without leader", facts.leaderless_partitions),
            ("under-replicated", facts.under_replicated_partitions),
        ],
    )
    parts: list[Part] = [state, numbers]
    notes = [*health.notes, *waiting(nodes), *hidden]
    if notes:
        parts.append(Notes("Notes", notes))
    parts.append(listed("Nodes", node_rows(nodes)))
    parts += await _newest(admin, EventFilter(("leader", "move", "node", "group"), limit=20), 20)
    return Page("Cluster", parts, "oncelog cluster health", "cluster", refreshes=True)


async def _newest(admin: Admin, wanted: EventFilter, most: int) -> list[Part]:
    """Return the newest events as parts of a page, the newest first."""
    try:
        found = await admin.list_events(wanted)
    except OncelogError as error:
        return [Notes("Events", [f"No events: {error.message}"])]
    parts: list[Part] = [event_table(found.events[-most:])]
    if found.problems:
        lines = [f"node {node} did not tell its events: {e}" for node, e in found.problems.items()]
        parts.append(Notes("Nodes without an answer", lines, "problem"))
    return parts


async def nodes(admin: Admin, query: Query) -> Page:
    facts, statuses = await asyncio.gather(admin.describe_cluster(), admin.list_nodes())
    releases = {node.node_id: node.release for node in facts.nodes}
    rows = node_rows(statuses).plus(
        "release", (releases.get(one.node_id) or None for one in statuses)
    )
    parts: list[Part] = [listed("Nodes", rows, changes=[_node_changes(one) for one in statuses])]
    waits = waiting(statuses)
    if waits:
        parts.append(Notes("Waits", waits))
    changes = (
        change("node-add", "Add a node"), change("balance", "Balance the cluster"),
        change("balance-cancel", "Stop the balance"),
    )  # fmt: skip
    command = "oncelog node list"
    return Page("Nodes", parts, command, "nodes", refreshes=True, changes=changes)


def _node_changes(one: NodeStatus) -> list[Link]:
    drains = ("node-undrain", "Undrain") if one.drained else ("node-drain", "Drain")
    stays = ("node-keep", "Keep") if one.leaving else ("node-remove", "Remove")
    return [change(task, text, node=one.node_id) for task, text in (drains, stays)]


# --- topics ------------------------------------------------------------------------------


async def topics(admin: Admin, query: Query) -> Page:
    match = query.get("match", "")
    found = [info for info in await admin.describe_topics() if match in info.name]
    rows = topic_rows(found).plus(
        "without leader", (sum(not one.leader_id for one in i.partitions) for i in found)
    )
    empty = "No topic that you may describe has such a name."
    table = listed("Topics", rows, Linked("topic", lambda name: path("topics", name)), empty=empty)
    parts: list[Part] = [found_by(query, path("topics"), "Find a topic"), table]
    changes = (change("topic-create", "Create a topic"),)
    return Page("Topics", parts, "oncelog topic list", "topics", changes=changes)


async def topic(admin: Admin, query: Query, name: str) -> Page:
    view = topic_view(await admin.describe_topic(name))
    parts: list[Part] = []
    if view.problems:
        parts.append(Notes("Problems", view.problems, "problem"))
    links = (
        Link("Records", path("topics", name, "records")),
        Link("Events", path("events", topic=name)),
        Link("Did my record get in?", path("life", topic=name)),
    )
    parts.append(Links("More of this topic", links))
    settings = [(setting, str(value)) for setting, value in view.config.items()]
    parts.append(Facts("Settings", [("created", when(view.created_ms)), *settings]))
    rows: list[list[Cell]] = [
        [*(as_cell(value) for value in row.values()),
         Link("producers", path("topics", name, row["partition"]))]
        for row in view.partitions
    ]  # fmt: skip
    parts.append(cut("Partitions", (*headings(view.partitions), "known"), rows))
    changes = [
        change(task, text, topic=name)
        for task, text in (
            ("topic-alter", "Settings"), ("topic-grow", "More partitions"),
            ("topic-replicate", "Replicas"), ("record-send", "Send a record"),
            ("topic-delete", "Delete"),
        )
    ]  # fmt: skip
    command = f"oncelog topic describe {name}"
    return Page(f"Topic {name}", parts, command, "topics", refreshes=True, changes=changes)


async def partition(admin: Admin, query: Query, name: str, index: int) -> Page:
    """Return the producers that a partition knows."""
    states, names = await asyncio.gather(
        admin.describe_producers(name, index, limit=MAX_PRODUCERS), names_by_id(admin)
    )
    rows = [
        (
            one.producer_id, names.get(one.producer_id), one.epoch,
            Link(
                str(one.last_sequence),
                path("life", topic=name, partition=index, producer=one.producer_id,
                     sequence=one.last_sequence),
            )
            if one.last_sequence >= 0
            else None,
            when(one.last_append_ms),
            ", ".join(
                f"{b.first_sequence}..{b.last_sequence} at {b.base_offset}" for b in one.recent
            ),
        )
        for one in reversed(states)
    ]  # fmt: skip
    columns = ("producer id", "name", "epoch", "last sequence", "last append", "recent batches")
    title = f"Producers of {name}-{index}"
    parts: list[Part] = [cut(title, columns, rows, empty="The partition knows no producer.")]
    if len(states) == MAX_PRODUCERS:
        parts.append(Notes("Limit", [f"Only {MAX_PRODUCERS} producers are shown."]))
    command = f"oncelog producer describe {name} {index}"
    return Page(title, parts, command, "topics")


async def names_by_id(admin: Admin) -> dict[int, str]:
    """Return the names of producer ids that the caller may describe."""
    try:
        return {one.producer_id: one.name for one in await admin.list_producer_names()}
    except OncelogError:
        return {}


# --- groups ------------------------------------------------------------------------------


async def groups(admin: Admin, query: Query) -> Page:
    match, first = query.get("match", ""), number(query, "first", 0)
    found = [one for one in await admin.list_groups() if match in one.group]
    shown = found[first : first + GROUPS_A_PAGE]
    limit = asyncio.Semaphore(_AT_ONCE)

    async def lag(group: str) -> tuple[Cell, Cell]:
        async with limit:
            try:
                view = group_view(await admin.group_lag(group))
            except OncelogError as error:
                return error.reason, None
            return f"{view.lag} or more" if view.warnings else view.lag, seconds(view.lag_ms)

    lags = await asyncio.gather(*(lag(one.group) for one in shown))
    rows = group_rows(shown).plus("lag", (one for one, _ in lags))
    rows = rows.plus("behind", (one for _, one in lags))
    link = Linked("group", lambda name: path("groups", name))
    parts: list[Part] = [
        found_by(query, path("groups"), "Find a group"),
        listed("Groups", rows, link, empty="No group that you may describe."),
    ]
    if len(found) > first + GROUPS_A_PAGE:
        after = first + GROUPS_A_PAGE
        left = len(found) - after
        parts.append(
            Links("More", [Link(f"{left} more groups", path("groups", match=match, first=after))])
        )
    return Page("Groups", parts, "oncelog group list", "groups", refreshes=True)


async def group(admin: Admin, query: Query, name: str) -> Page:
    progress = await admin.group_lag(name)
    view = group_view(progress)
    command = shlex.join(["oncelog", "group", "describe", name])
    if not progress.group.exists:
        lines = [f"There is no group {name!r}: nobody has committed offsets for it."]
        return Page(f"Group {name}", [Notes("Missing", lines, "problem")], command, status=404)
    facts: list[tuple[str, Cell]] = [
        ("lag", view.lag),
        ("behind", seconds(view.lag_ms)),
        ("coordinator", f"node {view.coordinator_id}"),
        ("last commit", when(view.last_commit_ms)),
    ]
    if view.members:
        facts += [
            ("protocol", view.protocol), ("assignor", view.assignor), ("epoch", view.epoch),
        ]  # fmt: skip
    parts: list[Part] = [Facts("Progress", facts)]
    if view.warnings:
        parts.append(Notes("Not known", view.warnings, "problem"))
    parts += [_members(view), _offsets(view)]
    parts.append(Links("More", [Link("Events of this group", path("events", group=name))]))
    return Page(
        f"Group {name}", parts, command, "groups", refreshes=True, template="group.html",
        changes=(
            change("group-seek", "Move its offsets", group=name),
            change("group-delete", "Delete", group=name),
        ),
        extra={"lag": view.lag},
    )  # fmt: skip


def _members(view: GroupView) -> Table:
    rows = [[as_cell(value) for value in one.values()] for one in view.members]
    return cut("Members", headings(view.members), rows, empty="It has no members now.")


def _offsets(view: GroupView) -> Table:
    columns = (
        "topic", "partition", "offset", "high watermark", "lag", "behind", "owner", "committed",
    )  # fmt: skip
    rows = [
        (
            Link(row["topic"], path("topics", row["topic"])), row["partition"], row["offset"],
            row["high_watermark"], row["lag"], seconds(row["lag_ms"]), row["owner"] or None,
            when(row["commit_ms"]),
        )
        for row in view.offsets
    ]  # fmt: skip
    return cut("Offsets", columns, rows)


# --- producers and events ----------------------------------------------------------------


async def producers(admin: Admin, query: Query) -> Page:
    match = query.get("match", "")
    found = [one for one in await admin.list_producer_names() if match in one.name]
    ids = [one.producer_id for one in found]
    rows = (
        producer_rows(found)
        .plus("events", [Link("events", path("events", producer=one)) for one in ids])
        .plus("life", [Link("a sequence's life", path("life", producer=one)) for one in ids])
    )
    empty = "No producer name that you may describe. The page of a partition has all its producers."
    changes = [[change("producer-fence", "Fence", producer=one.name)] for one in found]
    table = listed("Producer names", rows, empty=empty, changes=changes)
    parts: list[Part] = [found_by(query, path("producers"), "Find a producer"), table]
    return Page("Producers", parts, "oncelog producer list", "producers")


async def events(admin: Admin, query: Query) -> Page:
    kind, topic_name, group_name = (query.get(name, "") for name in ("kind", "topic", "group"))
    producer_id = number(query, "producer", 0)
    if topic_name and group_name:
        raise InvalidRequestError("topic and group exclude each other", field="group")
    limit = min(number(query, "limit", 100), MAX_EVENTS)
    resource = "topic" if topic_name else "group" if group_name else ""
    wanted = EventFilter(
        (kind,) if kind else (), resource, topic_name or group_name, producer_id, limit=limit or 1
    )
    form = Filter(
        "Choose events", path("events"),
        (
            Field("kind", "Kind", kind, ("", *KINDS)),
            Field("topic", "Topic", topic_name),
            Field("group", "Group", group_name),
            Field("producer", "Producer id", str(producer_id or "")),
        ),
    )  # fmt: skip
    flags = {"--kind": kind, "--topic": topic_name, "--group": group_name}
    flags["--producer-id"] = str(producer_id or "")
    given = [word for name, value in flags.items() if value for word in (name, value)]
    command = shlex.join(["oncelog", "events", *given])
    parts = [form, *await _newest(admin, wanted, MAX_EVENTS)]
    return Page("Events", parts, command, "events", refreshes=True)


def event_table(found: Sequence[NodeEvent]) -> Table:
    columns = (
        "time", "node", "kind", "subject", "verdict", "producer", "epoch", "sequences", "times",
        "caller", "text",
    )  # fmt: skip
    rows = [
        (
            when(event.last_ms), event.node_id, event.kind, subject_of(event),
            event.verdict or None, _life_of(event),
            event.epoch if event.producer_id else None,
            sequences_of(event) or None, event.count, event.principal or event.address or None,
            " ".join(event.text.split()) or None,
        )
        for event in reversed(found)
    ]  # fmt: skip
    return cut("Newest events", columns, rows, empty="No events that you may see.")


def _life_of(event: NodeEvent) -> Cell:
    """Return a link to the life of an event's last sequence."""
    if not event.producer_id:
        return None
    if event.kind != "verdict" or event.last_sequence < 0:
        return event.producer_id
    where = path(
        "life", topic=event.name, partition=event.partition, producer=event.producer_id,
        sequence=event.last_sequence, epoch=event.epoch if event.epoch >= 0 else None,
    )  # fmt: skip
    return Link(str(event.producer_id), where)


__all__ = [
    "event_table", "events", "group", "groups", "is_number", "names_by_id", "nodes", "number",
    "overview", "partition", "producers", "topic", "topics",
]  # fmt: skip
