"""Coordinator's state as bytes, for the metadata group's checkpoint. Pure.

Coordinator.pieces --packed--> bytes --unpack--> Coordinator.load
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError

from cluster.entries import has_unknown_fields
from cluster.transactions.run_records import (
    expected_of,
    expected_record,
    published_of,
    published_record,
)
from cluster.transactions.sinks import Before, Sink, Sinks
from cluster.transactions.transaction import NameOwner, Participant, TransactionRow
from cluster.transactions.types import FINISHED, Holder, TransactionState
from cluster.v1 import transactions_pb2 as pb
from storage.pieces import in_pieces


class Saved(NamedTuple):
    next_id: int
    rows: dict[int, TransactionRow]
    owners: dict[str, NameOwner]
    sinks: Sinks


def packed(
    next_id: int, rows: Iterable[TransactionRow], owners: Mapping[str, NameOwner], sinks: Sinks
) -> Iterator[bytes]:
    """Packs the state in pieces, which are one message."""
    for snapshot in _parts(next_id, rows, owners, sinks):
        yield snapshot.SerializeToString(deterministic=True)


def _parts(
    next_id: int, rows: Iterable[TransactionRow], owners: Mapping[str, NameOwner], sinks: Sinks
) -> Iterator[pb.CoordinatorSnapshot]:
    yield pb.CoordinatorSnapshot(next_transaction_id=next_id)
    for some in in_pieces(rows):
        yield pb.CoordinatorSnapshot(transactions=map(transaction_record, some))
    for names in in_pieces(sorted(owners)):
        yield pb.CoordinatorSnapshot(owners=[_owner_record(name, owners[name]) for name in names])
    yield pb.CoordinatorSnapshot(sinks=[_sink_record(key, sink) for key, sink in sinks])


def _owner_record(name: str, owner: NameOwner) -> pb.TransactionOwnerRecord:
    return pb.TransactionOwnerRecord(
        name=name,
        producer_id=owner.holder.producer_id,
        epoch=owner.holder.epoch,
        nonce=owner.nonce,
        last_transaction_id=owner.last_id,
        before_transaction_id=owner.before_id,
    )


def unpack(data: bytes) -> Saved:
    """Unpacks a state. Raises ValueError if the bytes are not sound."""
    try:
        snapshot = pb.CoordinatorSnapshot.FromString(data)
    except DecodeError as error:
        raise ValueError(f"transactions: {error}") from error
    if has_unknown_fields(snapshot):
        raise ValueError("transactions: they have fields unknown to this release")
    rows: dict[int, TransactionRow] = {}
    last = 0
    for record in snapshot.transactions:
        row = _transaction_of(record)
        if not last < row.transaction_id < snapshot.next_transaction_id:
            raise ValueError(f"transactions: {row.transaction_id} is out of order")
        last = row.transaction_id
        rows[last] = row
    owners = {
        o.name: NameOwner(
            Holder(o.producer_id, o.epoch),
            o.nonce,
            o.last_transaction_id,
            o.before_transaction_id,
        )
        for o in snapshot.owners
    }
    for name, owner in owners.items():
        for kept in (owner.last_id, owner.before_id or owner.last_id):
            if kept not in rows or rows[kept].owner != name:
                raise ValueError(f"transactions: the last one of {name!r} is missing")
    if snapshot.next_transaction_id < 1 or len(owners) != len(snapshot.owners):
        raise ValueError("transactions: the next id is missing, or an owner stands twice")
    sinks = Sinks()
    for sink in snapshot.sinks:
        sinks.restore(sink.key, _sink_of(sink))
    for key, known in sinks:
        if known.last_id and (known.last_id not in rows or rows[known.last_id].owner != key):
            raise ValueError(f"transactions: the last one of sink {key!r} is missing")
    for row in rows.values():
        # A nameless sink is forgotten once its transaction has ended; the transaction stays until
        # all before it have ended, too.
        if row.sink and row.state not in FINISHED and sinks.get(row.owner) is None:
            raise ValueError(f"transactions: {row.transaction_id} is of an unknown sink")
    return Saved(snapshot.next_transaction_id, rows, owners, sinks)


def transaction_record(row: TransactionRow) -> pb.TransactionRecord:
    return pb.TransactionRecord(
        transaction_id=row.transaction_id,
        owner=row.owner,
        sink=row.sink,
        producer_id=row.holder.producer_id,
        epoch=row.holder.epoch,
        state=f"TRANSACTION_STATE_{row.state.name}",
        reason=row.reason,
        begun_ms=row.begun_ms,
        idle_ms=row.idle_ms,
        total_ms=row.total_ms,
        parts=[
            pb.PartRecord(
                group_id=group,
                done=part.done,
                gone=part.gone,
                runs=map(published_record, part.runs),
            )
            for group, part in row.parts.items()
        ],
        expected=map(expected_record, row.expected),
    )


def _transaction_of(record: pb.TransactionRecord) -> TransactionRow:
    parts = {
        part.group_id: Participant(part.done, part.gone, tuple(map(published_of, part.runs)))
        for part in record.parts
    }
    row = TransactionRow(
        record.transaction_id,
        record.owner,
        record.sink,
        Holder(record.producer_id, record.epoch),
        record.begun_ms,
        record.idle_ms,
        record.total_ms,
        TransactionState(record.state),
        record.reason,
        parts,
        tuple(map(expected_of, record.expected)),
    )
    finished = row.state in (TransactionState.COMMITTED, TransactionState.ABORTED)
    decided = row.state in (TransactionState.COMMITTING, TransactionState.ABORTING)
    pending = bool(row.pending())
    if len(parts) != len(record.parts) or (finished and pending) or (decided and not pending):
        raise ValueError(f"transactions: the partitions of {row.transaction_id} cannot be")
    if not all(run.group in parts for run in row.expected):
        raise ValueError(f"transactions: {row.transaction_id} publishes where it is not")
    return row


def _sink_record(key: str, sink: Sink) -> pb.SinkRecord:
    before = sink.before
    return pb.SinkRecord(
        key=key,
        jobs=sink.jobs,
        nameless=sink.nameless,
        next_ticket=sink.next_ticket,
        ticket=sink.ticket,
        run=sink.run,
        batch=sink.batch,
        last_transaction_id=sink.last_id,
        version=sink.version,
        committed_batch=sink.committed_batch,
        committed_records=sink.committed_records,
        committed_digest=sink.committed_digest,
        queries=sink.queries,
        before=None if before is None else pb.SinkBefore(**before._asdict()),
        ranges=[pb.BatchRange(first=first, last=last) for first, last in sink.ranges],
        floor=sink.floor,
        free=sink.free,
    )


def _sink_of(record: pb.SinkRecord) -> Sink:
    before = record.before
    return Sink(
        record.jobs,
        record.nameless,
        record.next_ticket,
        record.ticket,
        record.run,
        record.batch,
        record.last_transaction_id,
        record.version,
        record.committed_batch,
        record.committed_records,
        record.committed_digest,
        tuple(record.queries),
        Before(before.query, before.batch, before.records, before.digest)
        if record.HasField("before")
        else None,
        tuple((one.first, one.last) for one in record.ranges),
        record.floor,
        record.free,
    )
