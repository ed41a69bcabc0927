"""Random entries of a partition, and of one of `__offsets`: for tests of a replica's state."""

from __future__ import annotations

import random
from collections.abc import Callable

import crc32c

from cluster.dedup.verdict import KnownProducer
from cluster.entries import (
    HELD,
    KAFKA_V2,
    BatchEntry,
    CarriedEntry,
    KeyTombstone,
    LogStartEntry,
    OpenProducerEntry,
    ReleaseEntry,
    pack_batch,
    pack_carried,
    pack_log_start,
    pack_open_producer,
    pack_release,
)
from cluster.partition.group_offsets import pack_command
from cluster.partition.machine import PartitionMachine
from cluster.transactions.run_records import pack_marker
from cluster.transactions.types import Expected, Marker
from cluster.v1 import offsets_pb2 as pb

LIFETIME = 2000
GROUPS, MEMBERS = ("g", "h"), ("m", "n")


class Walk:
    """Draws one entry after the other. `machine` is read; the caller applies the entries."""

    def __init__(self, seed: int, machine: PartitionMachine) -> None:
        self.rng, self.machine, self.now_ms = random.Random(seed), machine, 1_000_000
        self._low, self._next = 1, 3  # transactions from `_low` to `_next` may be open
        self._lowest_id = 1
        self._released: set[int] = set()
        self._draws: tuple[Callable[[], bytes], ...] = (
            self._batch, self._batch, self._batch, self._marker, self._marker, self._log_start,
            self._batch, self._carried,
            self._open, self._release, self._commit, self._commit, self._stage, self._stage,
            self._delete, self._owners, self._owners, self._claim, self._remove,
            self._rebalance, self._delete_offsets,
        )  # fmt: skip

    def next(self) -> bytes:
        """The next entry."""
        self.now_ms += self.rng.choice((0, 1, 50, 300))
        if self.rng.random() < 0.02:
            self._lowest_id += 1
        return self.rng.choice(self._draws)()

    # -- batches ------------------------------------------------------------------------

    def _terms(self) -> tuple[int, int, int]:
        return self.now_ms, LIFETIME, self._lowest_id

    def _producer(self) -> int:
        return self._lowest_id + self.rng.randrange(3)

    def _held(self, pid: int) -> int:
        """Even ids belong to names. Only those have epochs above 0."""
        return HELD if pid % 2 == 0 and pid not in self._released else 0

    def _batch(self) -> bytes:
        rng, pid, number = self.rng, self._producer(), 0
        known: KnownProducer | None = self.machine.producers.last_seen.known(pid)
        run = self.machine.runs.run_of(pid)
        last, epoch = (-1, 0) if known is None else (known.last_sequence, max(0, known.epoch))
        if run is not None and rng.random() < 0.9:
            number, last, epoch = run.transaction_id, run.last, run.epoch
        elif rng.random() < 0.5:
            number = rng.randrange(self._low, self._next)
        if self._held(pid) and rng.random() < 0.1:
            last, epoch = -1, epoch + 1
        if rng.random() < 0.1:
            last -= 1
        count = rng.randint(1, 3)
        first = max(0, last + 1)
        payload = b"%d" % first
        # Every third id is a client's of Kafka's protocol.
        entry = BatchEntry(
            0 if pid % 3 else KAFKA_V2, count, pid, epoch, crc32c.crc32c(payload), first,
            first + count - 1, first - 1,
            rng.choice((-1, -1, self.machine.stored.next_offset)) if not number else -1,
            number, first, *self._terms(), self._held(pid),
        )  # fmt: skip
        return pack_batch(entry, payload)

    def _marker(self) -> bytes:
        """A transaction ends: all that it has here is published, or dropped."""
        rng, runs, staged = self.rng, self.machine.runs, self.machine.group_offsets.staged
        number = rng.randrange(self._low, self._next)
        expected: list[Expected] = []
        if rng.random() < 0.7:
            for run in runs.staged(number):
                found = runs.confirm(
                    number, {run.producer_id: (run.records, run.last)}, only_winners=True
                )
                assert isinstance(found, dict)
                expected += found.values()
            for group, (count, last) in staged.of(number).items():
                expected.append(Expected(0, 0, count, last, consumer_group=group))
        is_open = {*runs.transactions(), *staged.transactions()} - {number}
        self._low = max(self._low, min(is_open, default=self._next - 1))
        self._next = max(self._next, self._low + 3)
        committed = bool(expected)
        return pack_marker(Marker(number, committed, tuple(expected), self.now_ms, self._low))

    def _log_start(self) -> bytes:
        stored = self.machine.stored
        start = self.rng.randint(stored.log_start, stored.next_offset)
        return pack_log_start(LogStartEntry(stored.log_start, start, 0, self.now_ms))

    def _carried(self) -> bytes:
        """Some cleaner's batch: its offsets may have moved below the log's start."""
        rng, stored = self.rng, self.machine.stored
        base = rng.randint(max(0, stored.log_start - 1), stored.next_offset)
        count = rng.randint(1, max(1, min(9, stored.next_offset - base)))
        entry = CarriedEntry(
            0, count, crc32c.crc32c(b"kept"), base, rng.choice((0, 1 << 40)), 1, self.now_ms, 1,
            self.now_ms, (KeyTombstone(base, rng.randrange(9)),) * rng.randrange(3),
            rng.choice((0, count // 2, count)),
        )  # fmt: skip
        return pack_carried(entry, b"kept")

    def _open(self) -> bytes:
        pid = self._producer()
        epoch = self.rng.randrange(4) if self._held(pid) else 0
        entry = OpenProducerEntry(self._held(pid), epoch, pid, *self._terms(), 1)
        return pack_open_producer(entry)

    def _release(self) -> bytes:
        gone = self._producer()
        if self.rng.random() < 0.3:
            self._released.add(gone)
        held = self._held(gone)
        return pack_release(ReleaseEntry(*self._terms(), 1, () if held else (gone,)))

    # -- offsets of groups ----------------------------------------------------------------

    def _offsets(self, command: pb.OffsetsCommand) -> bytes:
        command.stamp_ms = self.now_ms
        return pack_command(command)

    def _record(self) -> pb.OffsetRecord:
        rng = self.rng
        return pb.OffsetRecord(
            topic=rng.choice("tu"),
            topic_id=rng.choice((1, 1, 1, 2)),
            partition=rng.randrange(2),
            offset=rng.randrange(100),
            metadata=rng.choice(("", "note")),
            producer_id=rng.choice((0, 0, 7)),
            sequence=rng.randrange(50),
        )

    def _owned(self, group: str, record: pb.OffsetRecord) -> tuple[str, int]:
        owners = self.machine.group_offsets.ownership(group).owners
        owner = owners.get((record.topic_id, record.partition))  # type: ignore[call-overload]
        return ("", 0) if owner is None else (owner.member, owner.number)

    def _commit(self) -> bytes:
        group, record = self.rng.choice(GROUPS), self._record()
        member, number = self._owned(group, record)
        commit = pb.CommitGroupOffsets(
            group=group,
            offsets=[record],
            member=member,
            number=self.rng.randrange(100),
            classic=None if member else self._caller(group),
        )
        if member:
            commit.ownerships.append(number)
        return self._offsets(pb.OffsetsCommand(commit=commit))

    def _caller(self, group: str) -> pb.ClassicCaller | None:
        """Someone of a classic group: mostly a member of its generation."""
        facts = self.machine.group_offsets.classic(group)
        if facts is None or self.rng.random() < 0.1:
            return None
        one = self.rng.choice(facts.record.members)
        older = self.rng.random() < 0.2
        return pb.ClassicCaller(
            member=one.member, instance=one.instance, generation=facts.record.generation - older
        )

    def _stage(self) -> bytes:
        group, record = self.rng.choice(GROUPS), self._record()
        member, number = self._owned(group, record)
        call = pb.StageOffsets(
            transaction_id=self.rng.randrange(self._low, self._next),
            group=group,
            offsets=[record],
            member=member,
            number=self.rng.randrange(1, 100),
            ownerships=[number] if member else [],
            classic=None if member else self._caller(group),
        )
        return self._offsets(pb.OffsetsCommand(stage=call))

    def _delete(self) -> bytes:
        delete = pb.DeleteGroupOffsets(group=self.rng.choice(GROUPS))
        return self._offsets(pb.OffsetsCommand(delete=delete))

    def _owners(self) -> bytes:
        rng, group, record = self.rng, self.rng.choice(GROUPS), self._record()
        change = pb.OwnerChange(
            topic_id=record.topic_id,
            partition=record.partition,
            expected=self._owned(group, record)[1],
            member=rng.choice((*MEMBERS, "")),
        )
        terms = pb.GroupTerms(assignor="range", session_timeout_ms=rng.choice((1, 333, 10_001)))
        command = pb.ChangeOwners(group=group, epoch=rng.randrange(9), changes=[change])
        command.terms.CopyFrom(terms)
        return self._offsets(pb.OffsetsCommand(change_owners=command))

    def _claim(self) -> bytes:
        group = self.rng.choice(GROUPS)
        known = self.machine.group_offsets.ownership(group).instances.get("i")
        claim = pb.ClaimInstance(
            group=group,
            instance="i",
            expected=known.number if known else 0,
            member=self.rng.choice(MEMBERS),
        )
        return self._offsets(pb.OffsetsCommand(claim_instance=claim))

    def _remove(self) -> bytes:
        remove = pb.RemoveMember(group=self.rng.choice(GROUPS), member=self.rng.choice(MEMBERS))
        return self._offsets(pb.OffsetsCommand(remove_member=remove))

    # -- classic groups -------------------------------------------------------------------

    def _rebalance(self) -> bytes:
        rng, group = self.rng, self.rng.choice(GROUPS)
        known = self.machine.group_offsets.classic(group)
        generation = 1 if known is None else known.record.generation + 1
        members = [
            pb.ClassicMember(
                member=name,
                instance=rng.choice(("", name)),
                metadata=rng.choice((b"", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff")),
                assignment=bytes(rng.randrange(9)),
            )
            for name in MEMBERS
            if rng.random() < 0.4
        ]
        record = pb.ClassicGroup(
            group=group, generation=generation, protocol_type="consumer", members=members
        )
        return self._offsets(pb.OffsetsCommand(rebalance=record))

    def _delete_offsets(self) -> bytes:
        record = self._record()
        key = pb.OffsetKey(topic=record.topic, partition=record.partition)
        command = pb.DeleteOffsets(group=self.rng.choice(GROUPS), offsets=[key])
        return self._offsets(pb.OffsetsCommand(delete_offsets=command))
