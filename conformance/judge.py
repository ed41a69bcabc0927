"""Judge of every case: rules over the journal and the stored records.

    Journal, Cluster, the results that the driver gave --check--> faults

Shares no code with the clients: payloads are read by harness.payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from conformance.broker.cluster import Cluster
from conformance.broker.journal import Event, Journal
from conformance.broker.replicas import PartitionLog
from conformance.vectors import KAFKA_V2
from harness.payload import decompress, values_and_keys
from oncelog.v1 import batch_pb2

SUCCESS = ("APPENDED", "DUPLICATE", "STAGED")
REFUSED = ("INVALID_BATCH", "BATCH_TOO_LARGE", "OFFSET_MISMATCH")
MAX_IN_FLIGHT = 5

Chain = tuple[str, int, int, int]  # topic, partition, producer id, epoch
Sequence = tuple[Chain, int, int]  # with the transaction, 0 for none, and the sequence


@dataclass(slots=True)
class Staging:
    """One transaction of the driver: `outcome` is open, committed, aborted or unknown."""

    outcome: str = "open"


@dataclass(slots=True)
class Sent:
    """Records sent under one tag, and the driver's result for them."""

    handle: str
    tag: str
    topic: str
    partition: int | None
    values: list[bytes | None]
    result: dict[str, Any] = field(default_factory=lambda: {"pending": True})
    staging: Staging | None = None

    @property
    def outcome(self) -> str:
        """Outcome of the records: stored, the error's outcome, or pending."""
        if "ok" in self.result:
            return "stored"
        return str(self.result.get("error", {}).get("outcome", "pending"))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence at the end of a case."""

    journal: Journal
    cluster: Cluster
    sent: list[Sent]
    max_in_flight: int = MAX_IN_FLIGHT

    def was_aborted(self, transaction: int) -> bool:
        return self.cluster.transactions.ended.get(transaction) is False

    def batches(self) -> Iterator[Event]:
        """Batches with a producer id, in order of arrival."""
        for event in self.journal.events:
            if event.call == "produce" and event.facts["producer_id"]:
                yield event


def _transaction(event: Event) -> int:
    return int(event.facts.get("transaction", 0))


def _chain(event: Event) -> Chain:
    facts = event.facts
    return facts["topic"], facts["partition"], facts["producer_id"], facts["epoch"]


def _without_id(batch: batch_pb2.Batch) -> bytes:
    copy = batch_pb2.Batch.FromString(batch.SerializeToString())
    copy.ClearField("id")
    return copy.SerializeToString(deterministic=True)


def identical(evidence: Evidence) -> Iterator[str]:
    """Checks that a retry is byte-identical, except its id.

    After a refusal other bytes may use the sequences.
    """
    known: dict[Sequence, bytes] = {}
    by_id: dict[tuple[str, int, int], Sequence] = {}
    for event in evidence.journal.events:
        facts = event.facts
        if event.call == "result" and facts["verdict"] in REFUSED:
            key = by_id.get((facts["topic"], facts["partition"], facts["id"]))
            if key is not None:
                known.pop(key, None)
        if event.call != "produce" or not facts["producer_id"]:
            continue
        # After an abort its sequences are given out again.
        key = (_chain(event), _transaction(event), facts["first"])
        by_id[facts["topic"], facts["partition"], event.message.id] = key
        data = _without_id(event.message)
        if known.setdefault(key, data) != data:
            yield f"sequence {facts['first']} of {key[0]} was sent again with other bytes"


def new_ids(evidence: Evidence) -> Iterator[str]:
    """Checks that each attempt has an id of its own."""
    seen: set[tuple[Chain, int]] = set()
    for event in evidence.batches():
        key = (_chain(event), event.message.id)
        if key in seen:
            yield f"id {key[1]} was used for two attempts of {key[0]}"
        seen.add(key)


def token(evidence: Evidence) -> Iterator[str]:
    """Checks that a batch that begins a chain carries its lease's token."""
    for event in evidence.batches():
        if event.facts["prev"] == -1 and not event.message.lease_token:
            yield f"a first batch of {_chain(event)} came without lease_token"


@dataclass(slots=True)
class _Given:
    """Sequences of one batch."""

    prev: int
    first: int
    last: int
    transaction: int
    refused: bool = False


def chain(evidence: Evidence) -> Iterator[str]:
    """Checks that sequences are given out once, without a hole.

    A new batch follows the newest before it, or replaces a refused one.
    """
    given: dict[Chain, list[_Given]] = {}
    by_id: dict[tuple[str, int, int], _Given] = {}
    for event in evidence.journal.events:
        facts = event.facts
        if event.call == "result" and facts["verdict"] in REFUSED:
            found = by_id.get((facts["topic"], facts["partition"], facts["id"]))
            if found is not None:
                found.refused = True
        if event.call != "produce" or not facts["producer_id"]:
            continue
        key = _chain(event)
        number = _transaction(event)
        before = given[key] = [
            one
            for one in given.get(key, [])
            if one.transaction == number or not evidence.was_aborted(one.transaction)
        ]
        mine = _Given(facts["prev"], facts["first"], facts["last"], number)
        known = [
            one
            for one in before
            if (one.first, one.last, one.transaction) == (mine.first, mine.last, number)
        ]
        if not known:
            if before and mine.prev not in _ends(before):
                yield f"{key}: prev {mine.prev}, but {sorted(_ends(before))} was sent before"
            before.append(mine)
        where = (facts["topic"], facts["partition"], event.message.id)
        by_id[where] = known[0] if known else mine


def _ends(given: list[_Given]) -> set[int]:
    """Last sequences that the next batch may follow."""
    ends = {given[-1].last}
    for one in reversed(given):
        if not one.refused:
            break
        ends.add(one.prev)
    return ends


def window(evidence: Evidence) -> Iterator[str]:
    """Checks the number of unanswered batches of a partition against the limit."""
    waiting: dict[Chain, dict[int, int]] = {}  # id -> first sequence
    under: dict[int, int] = {}  # id -> transaction
    by_id: dict[tuple[str, int, int], Chain] = {}
    for event in evidence.journal.events:
        facts = event.facts
        if event.call == "produce" and facts["producer_id"]:
            key = _chain(event)
            by_id[facts["topic"], facts["partition"], event.message.id] = key
            number = _transaction(event)
            mine = waiting.setdefault(key, {})
            for other in [n for n in mine if evidence.was_aborted(under[n]) and under[n] != number]:
                del mine[other]
            mine[event.message.id], under[event.message.id] = facts["first"], number
            if len(set(mine.values())) > evidence.max_in_flight:
                yield f"{key}: {len(set(mine.values()))} batches wait for their answers"
        elif event.call == "result":
            where = (facts["topic"], facts["partition"], facts["id"])
            if where in by_id:
                mine = waiting[by_id[where]]
                first = mine.pop(facts["id"], None)
                for other in [n for n, sequence in mine.items() if sequence == first]:
                    del mine[other]


def stored(evidence: Evidence) -> Iterator[str]:
    """Checks the log: acknowledged records are at their offsets, failed ones are absent.

    A record with an unknown outcome may be either.
    """
    for sent in evidence.sent:
        if sent.outcome == "stored" and sent.staging is not None:
            continue  # its transaction decides its outcome
        if sent.outcome == "stored":
            yield from _is_there(evidence, sent)
        elif sent.outcome in ("never_sent", "not_stored"):
            for value in sent.values:
                if value in _all_values(evidence.cluster, sent.topic):
                    yield f"{sent.tag}: {sent.outcome}, but {value!r} is in the log"


def _is_there(evidence: Evidence, sent: Sent) -> Iterator[str]:
    ok = sent.result["ok"]
    partition = evidence.cluster.partitions.get((sent.topic, ok["partition"]))
    if partition is None:
        yield f"{sent.tag}: acknowledged, but {sent.topic}-{ok['partition']} does not exist"
        return
    log = dict(contents(partition))
    if ok["offset"] == -1:
        if any(value not in log.values() for value in sent.values):
            yield f"{sent.tag}: acknowledged without an offset, and not in the log"
        return
    for number, value in enumerate(sent.values):
        offset = ok["offset"] + number
        if offset >= partition.log_start and log.get(offset, b"nothing") != value:
            yield f"{sent.tag}: acknowledged at {offset}, where {log.get(offset)!r} is"


def whole(evidence: Evidence) -> Iterator[str]:
    """Checks transactions: committed ones are whole in the log, aborted or open ones absent.

    One with an unknown outcome is there as a whole or not at all.
    """
    by_staging: dict[int, tuple[Staging, list[tuple[str, bytes | None]]]] = {}
    for sent in evidence.sent:
        if sent.staging is not None and sent.outcome != "never_sent":
            _, values = by_staging.setdefault(id(sent.staging), (sent.staging, []))
            values += [(sent.topic, value) for value in sent.values]
    for staging, values in by_staging.values():
        there = sum(value in _all_values(evidence.cluster, topic) for topic, value in values)
        wanted = {"committed": {len(values)}, "unknown": {0, len(values)}}
        if there not in wanted.get(staging.outcome, {0}):
            yield f"{there} of {len(values)} records of a transaction ({staging.outcome}) are there"


def once(evidence: Evidence) -> Iterator[str]:
    """Checks that no record is in the log more often than it was sent, or out of order."""
    for key in {(sent.topic, number) for sent in evidence.sent for number in range(64)}:
        partition = evidence.cluster.partitions.get(key)
        if partition is None:
            continue
        values = [value for _, value in contents(partition)]
        for sent in evidence.sent:
            for value in set(sent.values) if sent.topic == key[0] else ():
                times = sum(s.values.count(value) for s in evidence.sent if s.topic == key[0])
                if values.count(value) > times:
                    yield f"{value!r} is in {key[0]}-{key[1]} {values.count(value)} times"
        yield from _in_order(evidence, key, values)


def _in_order(
    evidence: Evidence, key: tuple[str, int], values: list[bytes | None]
) -> Iterator[str]:
    for handle in {sent.handle for sent in evidence.sent}:
        places = [
            values.index(value)
            for sent in evidence.sent
            if sent.handle == handle and sent.topic == key[0]
            for value in sent.values
            if values.count(value) == 1
        ]
        if places != sorted(places):
            yield f"{key[0]}-{key[1]} does not hold what {handle} sent in its order: {values!r}"


def same_commit(evidence: Evidence) -> Iterator[str]:
    """Checks that a repeated commit names the same runs and offsets, in the same order."""
    known: dict[int, tuple[list[Any], list[Any]]] = {}
    for event in evidence.journal.events:
        if event.call != "commit_transaction":
            continue
        number = event.facts["transaction"]
        named = list(event.message.runs), list(event.message.offsets)
        if known.setdefault(number, named) != named:
            yield f"the commit of transaction {number} came again, with its runs in another order"


RULES: dict[str, Callable[[Evidence], Iterable[str]]] = {
    "identical": identical,
    "new_ids": new_ids,
    "token": token,
    "chain": chain,
    "window": window,
    "stored": stored,
    "whole": whole,
    "once": once,
    "same_commit": same_commit,
}


def judge(evidence: Evidence, allow: Iterable[str]) -> list[str]:
    """Applies all rules except those in `allow`; returns the faults."""
    return [
        f"{name}: {fault}"
        for name, rule in RULES.items()
        if name not in set(allow)
        for fault in rule(evidence)
    ]


def contents(partition: PartitionLog) -> Iterator[tuple[int, bytes | None]]:
    """Yields (offset, value) of a partition's records; clients write none in Kafka's format."""
    for batch in partition.records():
        if batch.header.codec == KAFKA_V2:
            continue
        values, _ = values_and_keys(decompress(batch.header.codec, batch.payload))
        yield from enumerate(values, batch.base_offset)


def _all_values(cluster: Cluster, topic: str) -> set[bytes | None]:
    return {
        value
        for (name, _), partition in cluster.partitions.items()
        if name == topic
        for _, value in contents(partition)
    }
