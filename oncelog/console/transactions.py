"""Pages of transactions and of sinks."""

from __future__ import annotations

import shlex

from oncelog.aio import Admin
from oncelog.config import MAX_INT64
from oncelog.console.pages import Query, found_by, number
from oncelog.console.parts import (
    Facts,
    Field,
    Filter,
    Link,
    Linked,
    Links,
    Page,
    Part,
    change,
    listed,
    path,
)
from oncelog.views.tables import (
    part_rows,
    sink_facts,
    sink_rows,
    transaction_facts,
    transaction_rows,
)

MAX_TRANSACTIONS = 500


async def transactions(admin: Admin, query: Query) -> Page:
    """Return unfinished transactions, the oldest first."""
    name, older_ms = query.get("name", ""), number(query, "older_than_ms", 0)
    found = await admin.list_transactions(name, older_ms, MAX_TRANSACTIONS)
    form = Filter(
        "Choose transactions", path("transactions"),
        (
            Field("name", "Producer or sink", name),
            Field("older_than_ms", "Older than", str(older_ms or ""), hint="milliseconds"),
        ),
    )  # fmt: skip
    table = listed(
        "Unfinished transactions, oldest first", transaction_rows(found),
        Linked("transaction", lambda one: path("transactions", one)),
        empty="No unfinished transaction that you may describe.",
        changes=[[_abort(one.transaction_id)] for one in found],
    )  # fmt: skip
    flags = {"--name": name, "--older-than-ms": str(older_ms or "")}
    words = [word for flag, value in flags.items() if value for word in (flag, value)]
    command = shlex.join(["oncelog", "txn", "list", *words])
    return Page("Transactions", [form, table], command, "transactions", refreshes=True)


def _abort(transaction: int) -> Link:
    return change("transaction-abort", "Abort", transaction=transaction)


async def transaction(admin: Admin, query: Query, given: str) -> Page:
    of = number({"transaction": given}, "transaction", 0, MAX_INT64)
    one = await admin.describe_transaction(of)
    rows = listed("Partitions", part_rows(one), Linked("topic", lambda name: path("topics", name)))
    return Page(
        f"Transaction {of}", [Facts("Transaction", transaction_facts(one)), rows],
        f"oncelog txn describe {of}", "transactions", refreshes=True, changes=(_abort(of),),
    )  # fmt: skip


async def sinks(admin: Admin, query: Query) -> Page:
    match = query.get("match", "")
    found = [one for one in await admin.list_sinks() if match in one.sink]
    table = listed(
        "Sinks", sink_rows(found), Linked("sink", lambda name: path("sinks", name)),
        empty="No sink that you may describe.",
    )  # fmt: skip
    form = found_by(query, path("sinks"), "Find a sink")
    return Page("Sinks", [form, table], "oncelog sink list", "sinks")


async def sink(admin: Admin, query: Query, name: str) -> Page:
    found = await admin.describe_sink(name)
    parts: list[Part] = [Facts("Sink", sink_facts(found))]
    if found.open_transaction_id:
        where = path("transactions", found.open_transaction_id)
        parts.append(Links("More", [Link("Its open transaction", where)]))
    return Page(
        f"Sink {name}", parts, shlex.join(["oncelog", "sink", "describe", name]), "sinks",
        refreshes=True, changes=(change("sink-reset", "Reset", sink=name),),
    )  # fmt: skip


__all__ = ["sink", "sinks", "transaction", "transactions"]
