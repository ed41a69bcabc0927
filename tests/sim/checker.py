"""Promises of every run, checked as things happen. Shares no code with the code it checks.

    every apply on every replica --> the one committed log, by index
    the committed log            --> `Model`: a partition's contents, naively
    every answer and read        --> compared with the model at that moment

The bytes of entries are read by the layout in docs (96 bytes of header), not by
`cluster.entries`; verdicts are judged by a dictionary that forgets nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from cluster.consensus.message import (
    Append,
    AppendReply,
    CheckpointAt,
    Message,
    TimeoutNow,
    Vote,
    VoteReply,
)
from tests.sim.model import (
    APPENDED,
    DUPLICATE,
    EXPIRED,
    FENCED,
    HEADER_BYTES,
    KAFKA_IDS,
    MISMATCH,
    OUT_OF_ORDER,
    TRANSIENT,
    UNKNOWN_PRODUCER,
    MetadataModel,
    Model,
    Violation,
    payload,
    record_count,
)

__all__ = ["Checker", "Violation", "payload"]

_KEY = struct.Struct(">QQ")
_NUMBER = struct.Struct(">Q")
NOOP = b"\x01"
EMPTY = 1  # the index where a log begins
DUMP_EVERY = 4  # replicas' states are compared at every n-th index


class DurableDisk(Protocol):
    def durable(self, family: Any, key: bytes) -> bytes | None: ...


@dataclass(slots=True)
class Entry:
    """A committed entry as the first replica applied it."""

    term: int
    data: bytes
    answer: Any = None
    seen_in: int = 0  # the term in which it was known to be committed


def smallest_majority(replicas: int) -> int:
    """Smallest majority of a group while nodes come and go: one of two voters may go on alone."""
    return 1 if replicas <= 2 else 2


class Checker:
    """Watches one run. Every method raises Violation."""

    def __init__(
        self,
        groups: Iterable[int],
        majority: int,
        *,
        expiry: bool,
        model: Callable[..., Model] = Model,
    ) -> None:
        """model: makes the model of a partition, by its name."""
        self.majority, self.expiry = majority, expiry
        self._model = model
        self.majorities: dict[int, int] = {}  # of groups that not all nodes hold
        self.deleted: set[int] = set()  # groups without any more promises
        self.logs: dict[int, dict[int, Entry]] = {gid: {} for gid in groups}
        self.models = {gid: model(f"group {gid}", expiry=expiry) for gid in self.logs if gid}
        self.metadata = MetadataModel()
        self.leaders: dict[tuple[int, int], int] = {}
        self.leading: dict[tuple[int, int], int] = {}  # (node, group) -> term of its messages
        # (group, term, voter, its instance) -> candidate: a rebuilt replica is another voter.
        self.votes: dict[tuple[int, int, int, int], int] = {}
        self.promised: dict[tuple[int, int], tuple[int, int]] = {}  # (node, group) -> term, index
        self.instances: dict[tuple[int, int], int] = {}  # (node, group) -> instance of its replica
        self.dumps: dict[tuple[int, int], bytes] = {}
        self.damaged: set[tuple[int, int]] = set()  # (node, group): the run has damaged its state
        self.disks: dict[int, DurableDisk] = {}
        self.lost_disks: list[DurableDisk] = []
        self.lost_votes: list[tuple[int, int, int]] = []  # (group, term, candidate)
        self.families: tuple[Any, Any] = (None, None)  # entries, state
        self.acknowledged = self.applied = 0

    # -- replicas ---------------------------------------------------------------------

    def opens(self, gid: int, majority: int) -> None:
        """A node opens its replica of a partition."""
        self.majorities[gid] = majority
        if gid not in self.logs:
            self.logs[gid] = {}
            self.models[gid] = self._model(f"group {gid}", expiry=self.expiry)

    def begins(self, node: int, gid: int, instance: int) -> None:
        """Notes an instance: another one than before has promised nothing yet."""
        if self.instances.get((node, gid), instance) != instance:
            self.promised.pop((node, gid), None)
        self.instances[node, gid] = instance

    def disk_lost(self, node: int, disk: DurableDisk) -> None:
        """Notes another disk in the place of a lost one: it has promised nothing."""
        self.lost_disks.append(self.disks[node])
        self.disks[node] = disk
        for key in [key for key in self.promised if key[0] == node]:
            del self.promised[key]
        for vote in [vote for vote in self.votes if vote[2] == node]:
            # It may be on its way, and counts.
            self.lost_votes.append((*vote[:2], self.votes.pop(vote)))

    def _majority(self, gid: int) -> int:
        return self.majorities.get(gid, self.majority)

    def leads(self, node: int, gid: int, term: int, last_index: int) -> None:
        """Checks a new leader: the only one of its term, elected, with all commits."""
        if gid in self.deleted:
            return
        other = self.leaders.setdefault((gid, term), node)
        if other != node:
            raise Violation(f"group {gid}: nodes {other} and {node} both lead in term {term}")
        votes = sum(
            vote[:2] == (gid, term) and candidate == node for vote, candidate in self.votes.items()
        )
        votes += self.lost_votes.count((gid, term, node))
        # A lone replica asks nobody for a vote.
        if votes < self._majority(gid) and self._majority(gid) > 1:
            raise Violation(f"group {gid}: node {node} leads in term {term} with {votes} votes")
        log = self.logs[gid]
        newest = next((i for i in reversed(log) if 0 < log[i].seen_in < term), 0)
        if last_index < newest:
            raise Violation(f"group {gid}: node {node} leads in term {term} without {newest}")

    def sends(self, node: int, peer: int, message: Message) -> None:
        """Checks a message: its promises must be on its sender's stable storage."""
        kind = message.__class__
        if kind is AppendReply:
            # Where an empty log ends there is no entry: all have that from the start.
            if message.success and message.next_index > EMPTY + 1:  # type: ignore[union-attr]
                self._promises(node, message)  # type: ignore[arg-type]
        elif kind is Vote:
            self._votes(node, node, message)  # type: ignore[arg-type]
        elif kind is VoteReply:
            self._votes(node, peer, message)  # type: ignore[arg-type]
        elif isinstance(message, Append | CheckpointAt | TimeoutNow):
            self._speaks_as_leader(node, message.group, message.term)

    def _speaks_as_leader(self, node: int, gid: int, term: int) -> None:
        """Checks that a leader's term is on disk; else a crash lets it vote for another leader."""
        if self.leading.get((node, gid)) != term and gid not in self.deleted:
            self._knows_term(node, gid, term, "leads")
            self.leading[node, gid] = term

    def _votes(self, node: int, candidate: int, message: Vote | VoteReply) -> None:
        gid, term = message.group, message.term
        if gid in self.deleted:
            return
        other = self.votes.setdefault((gid, term, node, message.from_instance), candidate)
        if other != candidate:
            raise Violation(
                f"group {gid}: node {node} votes for {other} and for {candidate} in term {term}"
            )
        self._knows_term(node, gid, term, "votes")

    def _knows_term(self, node: int, gid: int, term: int, does: str) -> None:
        stored = self.disks[node].durable(self.families[1], _NUMBER.pack(gid) + b"\x01")
        if stored is None or _KEY.unpack(stored)[0] < term:
            raise Violation(f"group {gid}: node {node} {does} in term {term} before its fsync")

    def _promises(self, node: int, reply: AppendReply) -> None:
        gid, index = reply.group, reply.next_index - 1
        if gid in self.deleted:
            return
        if not self._is_durable(node, gid, index):
            raise Violation(f"group {gid}: node {node} acknowledges {index} before its fsync")
        term, known = self.promised.get((node, gid), (0, 0))
        self.promised[node, gid] = (reply.term, max(index, known if term == reply.term else 0))

    def _is_durable(self, node: int, gid: int, index: int, data: bytes | None = None) -> bool:
        return self._is_on(self.disks[node], gid, index, data)

    def _is_on(self, disk: DurableDisk, gid: int, index: int, data: bytes | None) -> bool:
        entries, state = self.families
        stored = disk.durable(entries, _KEY.pack(gid, index))
        if stored is not None:
            return data is None or stored == data
        base = disk.durable(state, _NUMBER.pack(gid) + b"\x02")
        return base is not None and _KEY.unpack(base)[0] >= index

    def stands(self, node: int, gid: int, term: int, last_index: int) -> None:
        """Checks a replica after a step: entries it acknowledged in this term are still there."""
        if gid in self.deleted:
            return
        promised = self.promised.get((node, gid))
        if promised is not None and promised[0] == term and last_index < promised[1]:
            raise Violation(
                f"group {gid}: node {node} acknowledged {promised[1]} in term {term} "
                f"and has only {last_index}"
            )

    def believes(self, leader: int, follower: int, gid: int, index: int, data: bytes) -> None:
        """Checks a follower that its leader counts: it must hold the entry at `index`.

        A lost disk may have held it: the acknowledgement was under way.
        """
        if gid in self.deleted:
            return
        disks = (self.disks[follower], *self.lost_disks)
        if not any(self._is_on(disk, gid, index, data) for disk in disks):
            raise Violation(
                f"group {gid}: leader {leader} believes that node {follower} holds {index}"
            )

    def applies(
        self, node: int, gid: int, after: int, now_in: int, index: int, term: int, data: bytes,
        answer: Any,
    ) -> None:  # fmt: skip
        """Checks an entry that a replica applies in term `now_in`; its newest entry was `after`."""
        if gid in self.deleted:
            return
        log = self.logs[gid]
        if index <= after:
            raise Violation(f"node {node} applies {gid}/{index} after {after}")
        for skipped in range(after + 1, index):
            self._no_op(node, gid, skipped)
        if not self._is_durable(node, gid, index, data):
            raise Violation(f"node {node} applies {gid}/{index} before its own fsync")
        known = log.get(index)
        if known is None:
            self._check_durable(node, gid, index, data)
            log[index] = Entry(term, data, answer, now_in)
            self.applied += 1
            if gid:
                self.models[gid].apply(index, data, answer)
            else:
                self.deleted |= self.metadata.apply(index, data, answer)
            return
        if known.term != term or known.data != data:
            raise Violation(f"node {node} applies another entry at {gid}/{index}")
        if known.answer != answer:
            raise Violation(
                f"node {node} answers {gid}/{index} with {answer!r}, others with {known.answer!r}"
            )

    def keeps(self, gid: int, nodes: Iterable[int]) -> None:
        """Checks that each committed entry is on stable storage of one of these nodes."""
        if gid in self.deleted:
            return
        disks = [self.disks[node] for node in nodes]
        for index, entry in self.logs[gid].items():
            is_kept = any(self._is_on(disk, gid, index, entry.data) for disk in disks)
            if entry.data != NOOP and not is_kept:
                raise Violation(f"group {gid}: the committed entry {index} is on no disk")

    def _no_op(self, node: int, gid: int, index: int) -> None:
        known = self.logs[gid].setdefault(index, Entry(0, NOOP))
        if known.data != NOOP:
            raise Violation(f"node {node} has no entry at {gid}/{index}, others have one")

    def _check_durable(self, node: int, gid: int, index: int, data: bytes) -> None:
        """Checks that an applied entry is on stable storage on a majority."""
        copies = sum(self._is_durable(holder, gid, index, data) for holder in self.disks)
        # A group with more disks bears the loss of one.
        copies += any(self._is_on(disk, gid, index, data) for disk in self.lost_disks)
        if copies < self._majority(gid):
            raise Violation(f"node {node} applies {gid}/{index}, durable on {copies} nodes only")

    def state(self, node: int, gid: int, index: int, dump: bytes) -> bool:
        """Compares a replica's state after the entry at `index`; returns whether it is new."""
        if gid in self.deleted or (node, gid) in self.damaged:
            return False
        log = self.logs[gid]
        while index > 0 and log.get(index, _NOTHING).data == NOOP:
            index -= 1
        is_first = (gid, index) not in self.dumps
        if self.dumps.setdefault((gid, index), dump) != dump:
            raise Violation(f"node {node}: state of {gid}/{index} differs from the others'")
        return is_first

    # -- clients ----------------------------------------------------------------------

    def answered(self, gid: int, batch: Any, *, was_head: bool, answer: Any) -> None:
        """Judges an answer; `was_head`: all batches before it were stored when it was sent."""
        if gid in self.deleted:
            return
        verdict, model = answer.verdict, self.models[gid]
        kind = int(verdict.kind)
        pid, epoch, what = batch.pid, batch.epoch, f"group {gid}: {batch}"
        kafka = pid >= KAFKA_IDS
        if kind in (APPENDED, DUPLICATE):
            self._check_stored(model, what, batch, verdict)
        elif kind == FENCED:
            known = model.producers.get(pid)
            if known is None or known.epoch <= epoch:
                raise Violation(f"{what} was fenced by nobody: {verdict!r}")
        elif kind == OUT_OF_ORDER:
            if was_head and not (kafka and _is_lost(batch, model.known(pid))):
                raise Violation(f"{what}: its predecessor is stored, but {verdict!r}")
        elif kind == UNKNOWN_PRODUCER:
            if was_head and (kafka or not model.expiry) and model.known(pid) is not None:
                raise Violation(f"{what}: its producer is known, but {verdict!r}")
        elif kind == EXPIRED:
            if kafka or not model.expiry:
                raise Violation(f"{what}: nothing expires in this run, but {verdict!r}")
        elif kind == MISMATCH:
            if batch.expected < 0 or verdict.next_offset == batch.expected:
                raise Violation(f"{what} expects {batch.expected}, but {verdict!r}")
        elif kind not in TRANSIENT:
            raise Violation(f"{what} got {verdict!r}")

    def opened(self, gid: int, pid: int, epoch: int, answer: Any) -> None:
        """Judges the answer to an open."""
        if gid in self.deleted:
            return
        verdict, known = answer.verdict, self.models[gid].producers.get(pid)
        kind, what = int(verdict.kind), f"group {gid}: open of {pid}/{epoch}"
        if kind == APPENDED and (known is None or known.epoch < epoch):
            raise Violation(f"{what} is confirmed, but the log has {known}")
        if (
            kind == FENCED
            and not self.models[gid].expiry
            and (known is None or known.epoch <= epoch)
        ):
            raise Violation(f"{what} was fenced by nobody: {verdict!r}")
        if kind not in (APPENDED, FENCED, EXPIRED) and kind not in TRANSIENT:
            raise Violation(f"{what} got {verdict!r}")

    def _check_stored(self, model: Model, what: str, batch: Any, verdict: Any) -> None:
        self.acknowledged += 1
        base = verdict.base_offset
        if batch.pid == 0:
            stored = model.read.get(base, ())
            if not any(data[HEADER_BYTES:] == batch.payload for data in stored):
                raise Violation(f"{what} is acknowledged at {base}, something else is there")
            if batch.expected >= 0 and batch.expected != base:
                raise Violation(f"{what} is at {base}, not where it was expected")
            return
        producer = model.producers.get(batch.pid)
        found = (
            None
            if producer is None
            else producer.batches.get((batch.epoch, batch.first, batch.last))
        )
        if found is None:
            raise Violation(f"{what} is acknowledged ({verdict!r}) and not in the log")
        if base != found[0] and not (base == -1 and int(verdict.kind) == DUPLICATE):
            raise Violation(f"{what} is at {found[0]}, acknowledged at {base}")

    def resolved(self, gid: int, pid: int, epoch: int, sequence: int, answer: Any) -> None:
        """Judges a confirmed leader's answer whether a batch's last sequence is stored."""
        if gid in self.deleted:
            return
        model = self.models[gid]
        producer = model.producers.get(pid)
        stored = None
        if producer is not None:
            for (batch_epoch, first, last), (base, _) in producer.batches.items():
                if batch_epoch == epoch and first <= sequence <= last:
                    stored = base + sequence - first
        resolution = int(answer.resolution)
        what = f"group {gid}: sequence {sequence} of {pid}/{epoch}"
        if resolution == 1 and (stored is None or answer.offset not in (-1, stored)):
            raise Violation(f"{what} is resolved as {answer!r}, stored at {stored}")
        if resolution in (2, 3) and stored is not None:
            raise Violation(f"{what} is resolved as {answer!r}, but stored at {stored}")
        if resolution == 2:
            model.promised_never.add((pid, epoch, sequence))

    def read(self, gid: int, offset: int, batches: Iterable[tuple[int, bytes]]) -> None:
        """Judges a read: a reader asked for `offset` and got these batches, in order."""
        if gid in self.deleted:
            return
        model = self.models[gid]
        for position, (base, data) in enumerate(batches):
            if data not in model.read.get(base, ()):
                raise Violation(f"group {gid}: a reader got other bytes at {base}")
            count = record_count(data)
            starts = base <= offset < base + count if not position else base == offset
            if not starts:
                raise Violation(f"group {gid}: a reader got {base} when {offset} was next")
            offset = base + count


def _is_lost(batch: Any, known: Any) -> bool:
    """Whether half a wrap of the client's sequences lies between a late copy and the newest one."""
    return known is not None and known.last - batch.last >= batch.wrap // 2


_NOTHING = Entry(0, NOOP)
