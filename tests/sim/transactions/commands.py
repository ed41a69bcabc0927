"""Commands to the metadata, as clients of the simulation name them, and their answers."""

from __future__ import annotations

from typing import Any, NamedTuple

from cluster import entries
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import OFFSETS_TOPIC
from cluster.transactions.run_records import unpack_marker
from cluster.v1 import metadata_pb2 as pb
from cluster.v1 import offsets_pb2
from cluster.v1 import transactions_pb2 as tpb

# No client here keeps its transactions alive, and each wait of a run takes a second or so.
IDLE_MS, TOTAL_MS = 1_800_000, 3_600_000
# A commit's run: (group, producer, records, last sequence). With a consumer group whose offsets are
# staged: (group, producer, offsets, last number, consumer group).
Asked = tuple[int, int, int, int] | tuple[int, int, int, int, str]


class Named(NamedTuple):
    producer_id: int
    epoch: int
    nonce: int


def topic_of(group: int, offsets: bool) -> str:
    return OFFSETS_TOPIC if offsets else f"t{group}"


def begin_record(nonce: int, **more: Any) -> tpb.BeginTransaction:
    return tpb.BeginTransaction(nonce=nonce, idle_ms=IDLE_MS, total_ms=TOTAL_MS, **more)


def command_of(method: str, of: dict[str, Any]) -> pb.MetadataCommand:
    of = dict(of)
    holder = of.pop("holder", None)
    if holder is not None:
        of["producer_id"], of["epoch"] = holder
    if method == "lease":
        return pb.MetadataCommand(lease_name=pb.LeaseName(**of))
    if method == "allocate":
        ids = pb.AllocateProducerIds(count=1, node_id=1)
        return pb.MetadataCommand(allocate_producer_ids=ids)
    match method:
        case "begin":
            what: Any = begin_record(producer_name=of.pop("name"), **of)
        case "register":
            what = tpb.RegisterTransaction(groups=[of.pop("group")], **of)
        case "abort":
            what = tpb.AbortTransaction(**of)
        case "draw_ticket":
            what = tpb.DrawTicket(sink=of["key"])
        case "begin_batch":
            what = tpb.BeginBatch(sink=of.pop("key"), total_ms=TOTAL_MS, **of)
        case _:
            raise AssertionError(method)
    return pb.MetadataCommand(transaction=tpb.TransactionCommand(**{method: what}))


def answer_of(
    method: str, of: dict[str, Any], result: pb.MetadataResult, state: MetadataState
) -> Any:
    """Returns the answer to a client; a refusal is (reason, message, transaction)."""
    number = of.get("transaction_id", 0)
    if result.error:
        if method == "begin":
            known = state.coordinator.open_of(of["name"])
            number = 0 if known is None else known.transaction_id
        return result.error, result.message, number
    match method:
        case "lease":
            return Named(result.producer_id, result.epoch, of["nonce"])
        case "allocate":
            return result.first_producer_id
        case "begin":
            return result.transaction.transaction_id
        case "abort":
            name = tpb.TransactionState.Name(result.transaction.state)
            return name.removeprefix("TRANSACTION_STATE_"), result.transaction.reason, number
        case "draw_ticket":
            return result.sink.ticket
        case "begin_batch" if result.sink.transaction_id:
            return result.sink.transaction_id
        case "begin_batch":
            word = "BUSY" if result.sink.busy else "ALREADY"
            return word, result.sink.records, result.sink.digest
    return "REGISTERED"


def described(entry: bytes, result: Any) -> str:
    """Describes an entry of a log, and its result."""
    what: Any = entry
    match entry[0]:
        case entries.METADATA:
            what = pb.MetadataCommand.FromString(entry[1:])
            result = pb.MetadataResult.FromString(result)
        case entries.BATCH:
            what = entries.unpack_batch(entry)
        case entries.MARKER:
            what = unpack_marker(entry)
        case entries.OPEN_PRODUCER:
            what = entries.unpack_open_producer(entry)
        case (
            entries.OFFSETS
            | entries.STAGED_OFFSETS
            | entries.GROUP_MEMBERS
            | entries.CLASSIC_GROUPS
        ):
            what = offsets_pb2.OffsetsCommand.FromString(entry[1:])
    return f"{what}\n    {result}"
