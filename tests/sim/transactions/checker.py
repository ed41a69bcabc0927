"""Promises of transactions, checked over commits, answers to clients, and reads.

It shares no code with the machines but the form of their entries: it reads the logs' entries and
results, keeps every record by name, and forgets nothing.

A record's name is (producer, group, sequence): each producer sends the records 0, 1, 2 ... of a
partition, across epochs and transactions.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cluster.entries import BATCH, KAFKA_BATCH, MARKER, METADATA, payload_of, unpack_batch
from cluster.transactions.run_records import unpack_marker
from cluster.transactions.types import Marker
from cluster.v1 import metadata_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb
from tests.sim.transactions.world import Group, Violation


class Record(NamedTuple):
    producer_id: int
    sequence: int
    epoch: int
    transaction_id: int
    content: Any = None

    @property
    def is_kafka(self) -> bool:
        return isinstance(self.content, str)

    @property
    def name(self) -> tuple[int, ...]:
        """Sequences of Kafka's protocol begin at 0 in each epoch."""
        return self[:3] if self.is_kafka else self[:2]


class Staged(NamedTuple):
    """A batch that was staged, and the group's entry that staged it."""

    records: list[Record]


@dataclass
class Told:
    """All answers that clients got, for ever."""

    committed: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # T -> runs asked
    aborted: set[int] = field(default_factory=set)
    # (group, producer, epoch, first, last, transaction, offset)
    stored: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)
    # (group, producer, first, last, transaction)
    never: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    # (group, producer, epoch, sequence) that a leader has resolved as NEVER
    resolved: list[tuple[int, int, int, int]] = field(default_factory=list)
    # (group, producer, epoch, last sequence, how much was readable)
    opened: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    published: dict[int, Any] = field(default_factory=dict)  # T -> bases of a visible commit


class Checker:
    """Watches every entry as it is applied for the first time."""

    def __init__(self) -> None:
        self.told = Told()
        self.readable: dict[int, list[Record]] = defaultdict(list)
        self._staged: dict[tuple[int, int, int], list[Record]] = defaultdict(list)
        self._marked: dict[tuple[int, int], bool] = {}  # (group, T) -> committed
        self.decided: dict[int, bool] = {}
        self.gone: set[int] = set()
        self.batches: dict[int, tuple[str, int]] = {}  # T -> sink, batch
        self.kafka: list[Any] = []  # each transaction of Kafka's protocol, as its producer knows it

    def fail(self, text: str) -> None:
        raise Violation(text)

    def observe(self, group: Group, index: int, entry: bytes, result: Any) -> None:
        number, kind = group.number, entry[0]
        if kind == METADATA:
            command = pb.MetadataCommand.FromString(entry[1:])
            self._metadata(command, result)
        elif kind in (BATCH, KAFKA_BATCH):
            self._batch(number, entry, result.verdict)
        elif kind == MARKER:
            self._marker(number, unpack_marker(entry))

    def answered(self, call: Any, answer: Any) -> None:
        """Notes every answer to a batch or an open, also one that nobody waits for any more."""
        name = answer.kind.name if hasattr(answer, "kind") else ""
        if call.method == "open" and name == "APPENDED":
            producer_id, epoch = call.arguments["producer_id"], call.arguments["epoch"]
            length = len(self.readable[call.group])
            self.told.opened.append((call.group, producer_id, epoch, answer.last_sequence, length))
        if call.method == "resolve" and getattr(answer, "name", "") == "NEVER":
            asked = call.arguments
            at = asked["sequence"]
            self.told.resolved.append((call.group, asked["producer_id"], asked["epoch"], at))
        if call.method != "batch":
            return
        meta, number = call.arguments["meta"], call.arguments["transaction_id"]
        where = (call.group, meta.producer_id)
        if name in ("APPENDED", "DUPLICATE"):
            self.told.stored.append(
                (*where, meta.epoch, meta.first, meta.last, number, answer.base_offset)
            )
        elif name == "TRANSACTION_ABORTED":
            self.told.aborted.add(number)
        elif name == "TRANSACTION_ENDED" and "without this batch" in answer.message:
            self.told.never.append((*where, meta.first, meta.last, number))

    # -- entries --------------------------------------------------------------------------

    def _metadata(self, command: pb.MetadataCommand, data: bytes) -> None:
        asked = command.transaction
        method = asked.WhichOneof("what") or command.WhichOneof("command")
        if method not in ("begin_batch", "commit", "abort", "delete_topic"):
            return
        result = pb.MetadataResult.FromString(data)
        if result.error:
            return
        if method == "delete_topic":
            self.gone.add(int(command.delete_topic.name[1:]))
        if method == "begin_batch" and result.sink.transaction_id:
            batch = (asked.begin_batch.sink, asked.begin_batch.batch)
            self.batches.setdefault(result.sink.transaction_id, batch)
        if method not in ("commit", "abort"):
            return
        number, state = result.transaction.transaction_id, result.transaction.state
        committed = state in (tpb.TRANSACTION_STATE_COMMITTING, tpb.TRANSACTION_STATE_COMMITTED)
        if committed and number not in self.decided:
            if self.gone & {run.group_id for run in asked.commit.expected}:
                self.fail(f"{asked} was decided though a partition was gone")
        if self.decided.setdefault(number, committed) != committed:
            self.fail(f"transaction {number} changed its outcome")

    def _batch(self, group: int, data: bytes, result: Any) -> None:
        entry = unpack_batch(data)
        number = entry.transaction_id
        contents = json.loads(bytes(payload_of(data))) or (None,) * entry.record_count
        records = [
            Record(entry.producer_id, entry.first + at, entry.epoch, number, content)
            for at, content in enumerate(contents)
        ]
        name = result.kind.name
        if name == "APPENDED":
            if number:
                self.fail(f"a batch of transaction {number} is readable before its end")
            self._read(group, records, result.base_offset)
        elif name == "STAGED":
            if (group, number) in self._marked:
                self.fail(f"group {group}: staged after the marker of transaction {number}")
            staged = self._staged[group, number, entry.producer_id]
            if result.base_offset != len(staged):
                self.fail(f"group {group}: staged at {result.base_offset}, not {len(staged)}")
            staged += records

    def _marker(self, group: int, marker: Marker) -> None:
        number = marker.transaction_id
        if (group, number) in self._marked:
            if self._marked[group, number] != marker.committed:
                self.fail(f"group {group}: two outcomes of transaction {number}")
            return
        self._marked[group, number] = marker.committed
        if not marker.committed:
            return
        for expected in marker.expected:
            if expected.consumer_group:
                continue  # the offsets are compared with the records at the end
            staged = self._staged.pop((group, number, expected.producer_id), [])
            part = staged[: expected.records]
            if len(part) != expected.records or part[-1].sequence != expected.last:
                self.fail(f"group {group}: {expected} of {number} is not there, torn")
            # All that a Kafka client was told is stored belongs to its commit.
            whole = staged if part[0].is_kafka else part
            self._read(group, whole, len(self.readable[group]))
        for where in sorted(key for key in self._staged if key[:2] == (group, number)):
            if self._staged[where][0].is_kafka:
                self._read(group, self._staged.pop(where), len(self.readable[group]))

    def _read(self, group: int, records: list[Record], offset: int) -> None:
        readable = self.readable[group]
        if offset != len(readable):
            self.fail(f"group {group}: offset {offset}, but {len(readable)} records are readable")
        for record in records:
            before = [r for r in readable if r.name == record.name]
            if before:
                self.fail(f"group {group}: {record} is there twice: {before}")
            readable.append(record)

    # -- at the end -----------------------------------------------------------------------

    def finish(self, groups: dict[int, Group]) -> None:
        """Checks the logs after everything has come to rest."""
        coordinator = groups[0].machine.state.coordinator
        if list(coordinator.unfinished()):
            self.fail(f"transactions that do not end: {list(coordinator.unfinished())}")
        for number, group in groups.items():
            if group.gone:
                continue
            for replica in range(len(group.machines)):
                group.follow(replica)
            if len({machine.dump() for machine in group.machines}) != 1:
                self.fail(f"group {number}: replicas differ")
            if number:
                self._group(number, group)
        self._outcomes({n for n, group in groups.items() if group.gone})
        self._answers({n for n, group in groups.items() if group.gone})
        self._sinks()
        self._kafka({n for n, group in groups.items() if group.gone})
        for number, group in groups.items():
            if number and not group.gone:
                self._offsets(group)

    def _offsets(self, group: Group) -> None:
        """Checks that each item up to the offset led to one record, in order everywhere."""
        table = group.machine.group_offsets
        if list(table.staged.transactions()):
            self.fail(f"offsets that nobody ends: {list(table.staged.transactions())}")
        for _, state in table.groups("", 10):
            for (_, partition), committed in state.items():
                found = []
                for readable in self.readable.values():
                    items = [r.content[1] for r in readable if (r.content or [-1])[0] == partition]
                    if items != sorted(items):
                        self.fail(f"input {partition}: {items} are not in order")
                    found += items
                if sorted(found) != list(range(committed.offset)):
                    self.fail(f"input {partition}: {sorted(found)}, the offset is {committed}")

    def _group(self, number: int, group: Group) -> None:
        runs = group.machine.machine.runs
        if len(runs):
            self.fail(f"group {number}: runs that nobody ends: {list(runs.open())}")
        if group.machine.high_watermark != len(self.readable[number]):
            self.fail(f"group {number}: {group.machine.high_watermark} offsets")
        newest: dict[int, Record] = {}
        for record in self.readable[number]:
            last = newest.get(record.producer_id)
            if record.is_kafka:  # it skips the sequences of aborted transactions
                in_order = last is None or record[2:0:-1] > last[2:0:-1]
            else:
                in_order = record.sequence == (last.sequence + 1 if last else 0)
            if not in_order:
                self.fail(f"group {number}: {record} follows {last}")
            if last is not None and record.epoch < last.epoch:
                self.fail(f"group {number}: {record} of a fenced epoch follows {last}")
            newest[record.producer_id] = record

    def _kafka(self, gone: set[int]) -> None:
        """Checks that each transaction is there as a whole and together, or not at all."""
        places = {
            record.content: (group, offset)
            for group, readable in self.readable.items()
            for offset, record in enumerate(readable)
            if record.is_kafka
        }
        for work in self.kafka:
            wanted = {g: contents for g, contents in work.contents.items() if g not in gone}
            every = [content for contents in wanted.values() for content in contents]
            found = [content for content in every if content in places]
            if found and (found != every or not work.commit_sent or work.outcome == "aborted"):
                self.fail(f"{work} is torn, or was aborted: {found} can be read")
            if work.outcome == "committed" and found != every:
                self.fail(f"{work} was committed, and only {found} can be read")
            for group, contents in wanted.items() if found else ():
                first = places[contents[0]][1] if contents else 0
                together = [(group, first + at) for at in range(len(contents))]
                if [places[content] for content in contents] != together:
                    self.fail(f"{work} does not lie together in group {group}")

    def _sinks(self) -> None:
        """Checks each sink: batches once and in order, and the winners in each in order."""
        committed = [self.batches[n] for n in self.decided if self.decided[n] and n in self.batches]
        if len(committed) != len(set(committed)):
            self.fail(f"a batch of a sink was committed twice: {sorted(committed)}")
        for group, readable in self.readable.items():
            newest: dict[str, int] = {}
            places: dict[int, list[int]] = defaultdict(list)
            for record in readable:
                number = record.transaction_id
                if number not in self.batches:
                    continue
                key, batch = self.batches[number]
                if batch < newest.setdefault(key, batch):
                    self.fail(f"group {group}: batch {batch} of {key} after {newest[key]}")
                newest[key] = batch
                if record.producer_id not in places[number]:
                    places[number].append(record.producer_id)
            for number, producers in places.items():
                asked = self.told.committed.get(number)
                if asked and producers != [run[1] for run in asked if run[0] == group]:
                    self.fail(f"group {group}: {number} is not in the order of its winners")

    def _outcomes(self, gone: set[int]) -> None:
        told = self.told
        for number in set(told.committed) & told.aborted:
            self.fail(f"transaction {number} was called committed and aborted")
        for number in told.aborted:
            if self.decided.get(number, False):
                self.fail(f"transaction {number} was called aborted, it is committed")
        for number, asked in told.committed.items():
            if not self.decided.get(number):
                self.fail(f"transaction {number} was called committed, it is not")
            for group, producer_id, count, last in (run for run in asked if len(run) == 4):
                if group in gone:
                    continue
                found = [
                    (offset, record)
                    for offset, record in enumerate(self.readable[group])
                    if record.transaction_id == number and record.producer_id == producer_id
                ]
                if len(found) != count or found[-1][1].sequence != last:
                    self.fail(f"group {group}: transaction {number} has {found}, not {count}")
                if found[-1][0] - found[0][0] != count - 1:
                    self.fail(f"group {group}: transaction {number} does not lie together")
                base = told.published.get(number, {}).get((group, producer_id))
                if base not in (None, found[0][0]):
                    self.fail(f"group {group}: transaction {number} begins at {found[0][0]}")
        for group, readable in self.readable.items():
            for record in readable:
                number = record.transaction_id
                if number and not self.decided.get(number):
                    self.fail(f"group {group}: {record} of a transaction that did not commit")
                asked = told.committed.get(number, ())
                if asked and not any(run[:2] == (group, record.producer_id) for run in asked):
                    self.fail(f"group {group}: {record} was not asked for")

    def _answers(self, gone: set[int]) -> None:
        for group, producer_id, _, first, last, number, offset in self.told.stored:
            if group in gone:
                continue
            places = [
                at
                for at, record in enumerate(self.readable[group])
                if record.producer_id == producer_id and first <= record.sequence <= last
                and record.transaction_id == number
            ]  # fmt: skip
            if len(places) != last - first + 1 or offset not in (-1, places[0]):
                self.fail(
                    f"group {group}: {first}..{last} of {producer_id} in {number} was called"
                    f" stored at {offset}, it is at {places}"
                )
        for group, producer_id, first, last, number in self.told.never:
            for record in self.readable[group]:
                if record.producer_id == producer_id and record.transaction_id == number:
                    if first <= record.sequence <= last and group not in gone:
                        self.fail(f"group {group}: {record} was refused for good, and is there")
        for group, *asked in self.told.resolved:
            for record in self.readable[group]:
                if [record.producer_id, record.epoch, record.sequence] == asked:
                    self.fail(f"group {group}: {record} was resolved as NEVER, and is there")
        for group, producer_id, epoch, last, length in self.told.opened:
            readable = self.readable[group]
            before = [r.sequence for r in readable[:length] if r.producer_id == producer_id]
            lower = [r for r in readable[length:] if r.producer_id == producer_id]
            if any(record.epoch < epoch for record in lower):
                self.fail(f"group {group}: {lower} of epochs below {epoch} came after its open")
            if last != max(before, default=-1):
                self.fail(f"group {group}: the open said {last}, stored was {before[-3:]}")
