"""Changes of topics: create, alter, grow, replicate, delete, and one record to send."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from oncelog import TopicConfig, TopicInfo
from oncelog.aio import Producer
from oncelog.config import MAX_INT32, MAX_INT64
from oncelog.console.changes import (
    ChangePlan,
    ChangeTask,
    NeededPermission,
    Query,
    fixed,
    given,
)
from oncelog.console.pages import number, partition_of
from oncelog.console.parts import Field, listed
from oncelog.console.sessions import BrowserSession
from oncelog.errors import InvalidRequestError, NotAuthorizedError, UnknownTopicOrPartitionError
from oncelog.views.changes import KEYS_MOVE, effects_of_settings, move_rows
from oncelog.views.record_choice import parse_header
from oncelog.views.topics import CHOICES, settings_of
from oncelog.views.words import grouped, plural, when

TIMEOUT_MS = 20_000  # for a change that waits for leaders; a page has 30 s
HINTS: Mapping[str, str] = {
    "retention_ms": "Older records are deleted; -1: never",
    "retention_bytes": "Of each partition; -1: no limit",
    "max_batch_bytes": "Largest payload of a batch",
    "formats": "Of batches; later only to both",
}


# --- settings ---------------------------------------------------------------------------


def _limit(query: Query, name: str, most: int) -> int | None:
    """Return a setting; None: it is omitted. Raises InvalidRequestError."""
    text = query.get(name, "").strip()
    if not text:
        return None
    return -1 if text == "-1" else number(query, name, 0, most)


def _share(query: Query, name: str) -> float | None:
    text = query.get(name, "").strip()
    if text and not re.fullmatch(r"[0-9](\.[0-9]{1,17})?", text, re.ASCII):
        raise InvalidRequestError(f"{name}: {text[:40]!r} is not a number from 0 to 1", field=name)
    return float(text) if text else None


def _options(name: str) -> list[str]:
    return [choice.value for choice in CHOICES[name]]


def _choice(query: Query, name: str) -> Any:
    """Return the choice, of its own type; None: it is omitted. Raises InvalidRequestError."""
    text = query.get(name, "").strip()
    if text and text not in _options(name):
        allowed = ", ".join(_options(name))
        raise InvalidRequestError(f"{name}: {text[:40]!r} is not one of {allowed}", field=name)
    return CHOICES[name](text) if text else None


def config_of(query: Query) -> TopicConfig:
    """Return the settings of a form. Raises InvalidRequestError."""
    choices = {name: _choice(query, name) for name in CHOICES}
    return TopicConfig(
        retention_ms=_limit(query, "retention_ms", MAX_INT64),
        retention_bytes=_limit(query, "retention_bytes", MAX_INT64),
        max_batch_bytes=_limit(query, "max_batch_bytes", MAX_INT32),
        min_compaction_lag_ms=_limit(query, "min_compaction_lag_ms", MAX_INT64),
        max_compaction_lag_ms=_limit(query, "max_compaction_lag_ms", MAX_INT64),
        delete_retention_ms=_limit(query, "delete_retention_ms", MAX_INT64),
        min_cleanable_dirty_ratio=_share(query, "min_cleanable_dirty_ratio"),
        **choices,
    )


def _config_fields(query: Query, config: TopicConfig) -> list[Field]:
    found = []
    for name, value in settings_of(config).items():
        text = query.get(name, "" if value is None else str(value))
        options = ("", *_options(name)) if name in CHOICES else ()
        found.append(Field(name, name, text, options, HINTS.get(name, ""), none="as it is"))
    return found


def _flags(config: TopicConfig) -> list[str]:
    """Return the settings as options of the command line."""
    words: list[str] = []
    for name, value in settings_of(config).items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


# --- create ------------------------------------------------------------------------------


async def _create_fields(session: BrowserSession, query: Query) -> list[Field]:
    return [
        Field("topic", "Name", query.get("topic", "")),
        Field("partitions", "Partitions", query.get("partitions", ""), hint="empty: the default"),
        Field("replicas", "Replicas", query.get("replicas", ""), hint="empty: the default"),
        *_config_fields(query, TopicConfig()),
    ]


async def _create(session: BrowserSession, query: Query) -> ChangePlan:
    name, config = given(query, "topic"), config_of(query)
    partitions = number(query, "partitions", 0, MAX_INT32)
    replicas = number(query, "replicas", 0, MAX_INT32)
    try:
        await session.admin.describe_topic(name)
    except NotAuthorizedError:
        pass  # a caller that may create need not be allowed to look
    except UnknownTopicOrPartitionError:
        pass
    else:
        raise InvalidRequestError(f"topic: there is a topic {name} already", field="topic")
    count = plural(partitions, "partition") if partitions else "the default number of partitions"
    copies = plural(replicas, "replica") if replicas else "the default number of replicas"
    settings = [f"{n}: {value}" for n, value in settings_of(config).items() if value is not None]

    async def run() -> str:
        made = await session.admin.create_topic(
            name, partitions, replicas, config, timeout_ms=TIMEOUT_MS
        )
        return f"Created topic {name} with {plural(made.partition_count, 'partition')}."

    sizes = [word for flag, value in (("-p", partitions), ("-r", replicas)) if value
             for word in (flag, str(value))]  # fmt: skip
    return ChangePlan(
        [f"Topic {name} is created with {count}, with {copies} each.", *settings],
        run, [NeededPermission("create", "topic", name)],
        ["topic", "create", name, *sizes, *_flags(config)],
    )  # fmt: skip


# --- alter -------------------------------------------------------------------------------


async def _alter_fields(session: BrowserSession, query: Query) -> list[Field]:
    info = await session.admin.describe_topic(given(query, "topic"))
    return [*fixed(query, "topic"), *_config_fields(query, info.config)]


async def _alter(session: BrowserSession, query: Query) -> ChangePlan:
    name, config = given(query, "topic"), config_of(query)
    info = await session.admin.describe_topic(name)
    before = settings_of(info.config)
    changed = {n: v for n, v in settings_of(config).items() if v is not None and v != before.get(n)}
    wanted = config_of({n: str(v) for n, v in changed.items()})
    effects = effects_of_settings(info, wanted)

    async def run() -> str:
        await session.admin.alter_topic(name, wanted)
        return f"Altered topic {name}."

    return ChangePlan(
        effects.lines, run, [NeededPermission("alter", "topic", name)],
        ["topic", "alter", name, *_flags(wanted)],
        typed="" if effects.undoable else name,
    )  # fmt: skip


# --- partitions and replicas -------------------------------------------------------------


async def _grow_fields(session: BrowserSession, query: Query) -> list[Field]:
    info = await session.admin.describe_topic(given(query, "topic"))
    now = str(info.partition_count)
    hint = f"{now} now; only more"
    return [
        *fixed(query, "topic"),
        Field("partitions", "Partitions", query.get("partitions", now), hint=hint),
    ]


async def _grow(session: BrowserSession, query: Query) -> ChangePlan:
    name, wanted = given(query, "topic"), number(query, "partitions", 0, MAX_INT32)
    found = await session.admin.resize_topic(name, partitions=wanted, dry_run=True)

    async def run() -> str:
        await session.admin.resize_topic(name, partitions=wanted, timeout_ms=TIMEOUT_MS)
        return f"Topic {name} has {wanted} partitions."

    effects = [f"{name} gets {found.count} more partitions, {wanted} in all."]
    return ChangePlan(
        effects if found.count else [], run, [NeededPermission("alter", "topic", name)],
        ["topic", "alter", name, "--partitions", str(wanted)],
        notes=[KEYS_MOVE], typed=name,
    )  # fmt: skip


async def _replicate_fields(session: BrowserSession, query: Query) -> list[Field]:
    info = await session.admin.describe_topic(given(query, "topic"))
    now = str(info.replica_count)
    return [
        *fixed(query, "topic"),
        Field("replicas", "Replicas", query.get("replicas", now), hint=f"{now} now"),
    ]


async def _replicate(session: BrowserSession, query: Query) -> ChangePlan:
    name, wanted = given(query, "topic"), number(query, "replicas", 0, MAX_INT32)
    found = await session.admin.resize_topic(name, replicas=wanted, dry_run=True)
    copies = sum(move.bytes for move in found.moves)

    async def run() -> str:
        await session.admin.resize_topic(name, replicas=wanted, timeout_ms=TIMEOUT_MS)
        return f"Topic {name} moves to {plural(wanted, 'replica')} of each partition."

    return ChangePlan(
        [f"{found.count} partitions of {name} move to {plural(wanted, 'replica')} each."]
        if found.count else [],
        run, [NeededPermission("alter", "topic", name)],
        ["topic", "alter", name, "--replicas", str(wanted)],
        notes=[f"About {grouped(copies)} bytes are copied; the topic stays writable."],
        table=listed("Moves", move_rows(found.moves)) if found.moves else None,
    )  # fmt: skip


# --- delete ------------------------------------------------------------------------------


async def _delete_fields(session: BrowserSession, query: Query) -> list[Field]:
    return fixed(query, "topic")


async def _delete(session: BrowserSession, query: Query) -> ChangePlan:
    name = given(query, "topic")
    info = await session.admin.describe_topic(name)

    async def run() -> str:
        await session.admin.delete_topic(name)
        return f"Deleted topic {name}."

    count = plural(info.partition_count, "partition")
    made = when(info.created_ms)
    return ChangePlan(
        [f"Topic {name}, created {made}, is deleted with {count} and all of its records."],
        run, [NeededPermission("delete", "topic", name)], ["topic", "delete", name],
        notes=[_holds(info)], typed=name,
    )  # fmt: skip


def _holds(info: TopicInfo) -> str:
    known = [one for one in info.partitions if min(one.log_start_offset, one.high_watermark) >= 0]
    records = sum(one.high_watermark - one.log_start_offset for one in known)
    more = "" if len(known) == info.partition_count else " or more: some partitions do not answer"
    return f"It holds {grouped(records)} record{'' if records == 1 else 's'}{more}."


# --- one record --------------------------------------------------------------------------


async def _send_fields(session: BrowserSession, query: Query) -> list[Field]:
    return [
        *fixed(query, "topic"),
        Field("partition", "Partition", query.get("partition", ""), hint="empty: by the key"),
        Field("key", "Key", query.get("key", ""), hint="empty: none"),
        Field("header", "Header", query.get("header", ""), hint="NAME=VALUE; empty: none"),
        Field("value", "Value", query.get("value", "")),
    ]


async def _send(session: BrowserSession, query: Query) -> ChangePlan:
    topic, value = given(query, "topic"), query.get("value", "")
    info = await session.admin.describe_topic(topic)
    partition = partition_of(query, topic, info.partition_count)
    key, header = query.get("key", ""), query.get("header", "")
    headers = [parse_header(header)] if header else []

    async def run() -> str:
        async with Producer(**session.settings, delivery_timeout_ms=TIMEOUT_MS) as producer:
            sent = await producer.send(
                topic, value.encode(), key.encode() if key else None,
                partition=partition, headers=headers,
            )  # fmt: skip
            stored = await sent
        return f"Stored in {topic}-{stored.partition} at offset {stored.offset}."

    where = f"{topic}-{partition}" if partition is not None else f"topic {topic}"
    with_key = f" with the key {key!r}" if key else ""
    flags = {"-p": query.get("partition", "").strip(), "-H": header, "-k": key and "=>"}
    words = [word for flag, text in flags.items() if text for word in (flag, text)]
    line = f"{key}=>{value}" if key else value
    return ChangePlan(
        [f"A record of {plural(len(value.encode()), 'byte')}{with_key} is stored in {where}."],
        run, [NeededPermission("write", "topic", topic)], ["topic", "produce", topic, *words, line],
        notes=["A stored record cannot be taken back."],
    )  # fmt: skip


TASKS = (
    ChangeTask("topic-create", "Create a topic", "Create", "topics", _create_fields, _create),
    ChangeTask(
        "topic-alter", "Settings of a topic", "Alter", "topics", _alter_fields, _alter, "topic"
    ),
    ChangeTask(
        "topic-grow", "More partitions", "Add partitions", "topics", _grow_fields, _grow, "topic"
    ),
    ChangeTask(
        "topic-replicate", "Replicas of a topic", "Move replicas", "topics", _replicate_fields,
        _replicate, "topic",
    ),
    ChangeTask("topic-delete", "Delete a topic", "Delete", "topics", _delete_fields, _delete),
    ChangeTask("record-send", "Send a record", "Send", "topics", _send_fields, _send, "topic"),
)  # fmt: skip

__all__ = ["TASKS"]
