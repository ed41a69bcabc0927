"""Commands to the transaction coordinator, which is a part of the metadata.

MetadataState --TransactionCommand--> apply --> Coordinator

They check the rest of the metadata first: the epoch of a name, and that a partition exists.
"""

from __future__ import annotations

from dataclasses import replace

from cluster.metadata.tables import Tables
from cluster.metadata.topics import FENCED, INVALID_REQUEST, NOT_SUPPORTED, Rejected
from cluster.transactions.coordinator_records import transaction_record
from cluster.transactions.run_records import expected_of, published_of
from cluster.transactions.sinks import Asked
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import (
    COMMIT_STATES,
    INVALID_ARGUMENT,
    STALE_REQUEST,
    TOO_MANY_PARTITIONS,
    TOO_MANY_TRANSACTIONS,
    Holder,
    Refused,
    TransactionState,
)
from cluster.v1 import metadata_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb

THROTTLED = "THROTTLED"
# Reasons without an equal in the public contract.
_PUBLIC = {
    INVALID_ARGUMENT: INVALID_REQUEST,
    STALE_REQUEST: INVALID_REQUEST,
    TOO_MANY_PARTITIONS: INVALID_REQUEST,
    TOO_MANY_TRANSACTIONS: THROTTLED,
}


def apply(tables: Tables, command: tpb.TransactionCommand, now_ms: int) -> pb.MetadataResult:
    """Runs one command. Raises Rejected, before any change."""
    try:
        which = command.WhichOneof("what")
        if which in ("draw_ticket", "begin_batch", "reset_sink"):
            return _sinks(tables, command, now_ms)
        row = _dispatch(tables, command, now_ms)
        following = None
        if which == "commit" and command.commit.HasField("next"):
            following = _begin_next(tables, row, command.commit.next, now_ms)
    except Refused as refused:
        raise Rejected(_PUBLIC.get(refused.reason, refused.reason), str(refused)) from refused
    if row is None:
        return pb.MetadataResult()
    owner = tables.coordinator.owner(row.owner)
    return pb.MetadataResult(
        transaction=_head(row),
        transaction_id=0 if row.sink or owner is None else owner.last_id,
        next_transaction=None if following is None else _head(following),
    )


def _head(row: TransactionRow) -> tpb.TransactionRecord:
    return transaction_record(replace(row, parts={}, expected=()))


def _dispatch(
    tables: Tables, command: tpb.TransactionCommand, now_ms: int
) -> TransactionRow | None:
    coordinator = tables.coordinator
    match command.WhichOneof("what"):
        case "begin":
            return _begin(tables, command.begin, now_ms)
        case "register":
            asked = command.register
            holder = _holder(asked.producer_id, asked.epoch)
            return coordinator.register(
                asked.transaction_id, holder, asked.groups, tables.groups.__contains__
            )
        case "commit":
            commit = command.commit
            holder = _holder(commit.producer_id, commit.epoch)
            expected = tuple(map(expected_of, commit.expected))
            records = sum(run.records for run in expected)
            return coordinator.commit(
                commit.transaction_id,
                holder,
                expected,
                commit.checked,
                records=records,
                digest=commit.digest,
            )
        case "abort":
            abort = command.abort
            holder = _holder(abort.producer_id, abort.epoch)
            return coordinator.abort(
                abort.transaction_id, holder, abort.reason, acknowledged=abort.kafka
            )
        case "markers_done":
            for done in command.markers_done.transactions:
                coordinator.markers_done(
                    done.transaction_id,
                    {part.group_id: tuple(map(published_of, part.runs)) for part in done.parts},
                )
            return None
    raise Rejected(NOT_SUPPORTED, "an empty command to the coordinator does nothing")


def _sinks(tables: Tables, command: tpb.TransactionCommand, now_ms: int) -> pb.MetadataResult:
    coordinator, result = tables.coordinator, tpb.SinkResult()
    match command.WhichOneof("what"):
        case "draw_ticket":
            drawn = command.draw_ticket
            result.ticket = coordinator.draw_ticket(drawn.sink, jobs=drawn.jobs)
        case "begin_batch":
            one = command.begin_batch
            asked = Asked(one.sink, one.query, one.run, one.ticket, one.batch, one.jobs, one.reset)
            begun = coordinator.begin_batch(asked, now_ms=now_ms, total_ms=one.total_ms)
            result.busy, result.records, result.digest = begun.busy, begun.records, begun.digest
            if begun.transaction is not None:
                result.transaction_id = begun.transaction.transaction_id
        case "reset_sink":
            coordinator.reset_sink(command.reset_sink.sink)
    return pb.MetadataResult(sink=result)


def _holder(producer_id: int, epoch: int) -> Holder | None:
    return Holder(producer_id, epoch) if producer_id else None


def _begin_next(
    tables: Tables, row: TransactionRow | None, begin: tpb.BeginTransaction, now_ms: int
) -> TransactionRow | None:
    """Begins the next one by the same command; None: its owner has to ask for it."""
    if row is None or row.sink or row.state not in COMMIT_STATES:
        return None
    begin.producer_name = row.owner
    begin.producer_id, begin.epoch = row.holder
    try:
        return _begin(tables, begin, now_ms, after=row.transaction_id)
    except (Refused, Rejected):
        return None  # the commit stands


def _begin(
    tables: Tables, begin: tpb.BeginTransaction, now_ms: int, after: int = 0
) -> TransactionRow:
    name, holder = begin.producer_name, Holder(begin.producer_id, begin.epoch)
    known = tables.names.get(name)
    if known is None or known.tombstone or (known.producer_id, known.epoch) != holder:
        now = "nobody" if known is None else f"{known.producer_id}/{known.epoch}"
        text = f"producer name {name!r} belongs to {now}, not to {begin.producer_id}/{begin.epoch}"
        raise Rejected(FENCED, text)
    coordinator, idle_ms, total_ms = tables.coordinator, begin.idle_ms, begin.total_ms
    if begin.kafka:
        idle_ms = total_ms = known.transaction_timeout_ms
    row = coordinator.begin(
        name,
        holder,
        begin.nonce,
        now_ms=now_ms,
        idle_ms=idle_ms,
        total_ms=total_ms,
        after=after,
        knows_end=not begin.kafka,
    )
    if begin.kafka:
        tables.names.renew(name, now_ms)
    groups = [group for group in begin.groups if group in tables.groups]
    if groups and row.state is TransactionState.OPEN and not row.parts:
        coordinator.register(row.transaction_id, holder, groups, tables.groups.__contains__)
    return row
