"""A node's duties around the machines while it leads a group: others' calls, and its own.

A leader object lives one term. Others may answer its calls after it was deposed; then `alive` is
false and the answer is ignored.
"""

from __future__ import annotations

from typing import Any

from cluster.dedup.in_flight import InFlight
from cluster.dedup.verdict import BatchMeta, Kind, Resolution, Verdict
from cluster.transactions.in_flight import StagedInFlight
from cluster.transactions.runs import Marked
from cluster.transactions.timers import Timers
from cluster.transactions.types import Expected, Holder, Marker, State
from tests.sim.transactions.machines import NOTHING, BatchEntry, OpenEntry, PartitionMachine
from tests.sim.transactions.world import GONE, LOST, Call, Group, Process, Reply

METADATA = 0
# A commit's run: (group, producer, records, last sequence). With a consumer group whose offsets are
# staged: (group, producer, offsets, last number, consumer group).
Asked = tuple[int, int, int, int] | tuple[int, int, int, int, str]


def expected_of(asked: Asked) -> Expected:
    return Expected(*asked[:4], consumer_group="".join(map(str, asked[4:])))


ENDED_KINDS = (Kind.TRANSACTION_ABORTED, Kind.TRANSACTION_ENDED, Kind.DUPLICATE)


class Waiting:
    """A proposed batch with its waiting senders, including those that sent it again."""

    def __init__(self, reply: Reply) -> None:
        self.replies = [reply]

    def answer(self, result: Any) -> None:
        for reply in self.replies:
            reply(result)


class PartitionLeader:
    """Leads a partition for one term."""

    def __init__(self, group: Group) -> None:
        self.group, self.alive = group, True
        machine = group.machine
        self.in_flight = InFlight(machine.last_seen, next_offset=machine.next_offset)
        self.staged = StagedInFlight(machine.runs)
        # A producer with a run here was registered; all else is asked again.
        self.registered = set(machine.runs.transactions())
        self.opens: list[tuple[OpenEntry, Reply]] = []

    def begin(self) -> None:
        """Nothing waits for a new leader of a partition."""

    def end(self) -> None:
        """Deposed: the successor answers the waiting calls."""
        self.alive = False
        waiting, self.opens = self.opens, []
        for _, reply in waiting:
            reply(LOST)

    # -- batches --------------------------------------------------------------------------

    def batch(
        self, reply: Reply, meta: BatchMeta, transaction_id: int, records: tuple[Any, ...]
    ) -> None:
        if not self.alive:
            reply(LOST)
            return
        entry = BatchEntry(meta, transaction_id, records)
        if not transaction_id:
            self._plain(reply, entry)
            return
        machine = self.group.machine
        known = machine.runs.ended(transaction_id) is not None
        if known or transaction_id < machine.runs.open_low or transaction_id in self.registered:
            self._stage(reply, entry)
        else:
            self.group.world.spawn(self._register(reply, entry))

    def _register(self, reply: Reply, entry: BatchEntry) -> Process:
        """Registers the partition with the coordinator before any batch is staged."""
        holder = Holder(entry.meta.producer_id, entry.meta.epoch)
        answer = yield Call(
            METADATA,
            "command",
            {
                "method": "register",
                "transaction_id": entry.transaction_id,
                "holder": holder,
                "group": self.group.number,
            },
        )
        if answer == "REGISTERED" and self.alive:
            self.registered.add(entry.transaction_id)
            self.batch(reply, *entry[:3])
        elif isinstance(answer, tuple):
            reply(answer)
        else:
            reply(LOST)

    def _plain(self, reply: Reply, entry: BatchEntry) -> None:
        machine, meta = self.group.machine, entry.meta
        verdict = self.in_flight.check(meta, next_offset_applied=machine.next_offset)
        verdict = machine.runs.check_plain(meta, verdict)
        if verdict.kind is Kind.JOINED:
            verdict.token.replies.append(reply)
        elif verdict.kind is Kind.APPENDED and not self.staged.has(meta.producer_id):
            waiting = Waiting(reply)
            self.in_flight.add(meta, waiting)
            self.group.propose(entry, lambda result: self._applied(waiting, result))
        else:
            self._refuse(reply, entry)

    def _applied(self, waiting: Waiting, result: Any) -> None:
        if result is not LOST:
            self.in_flight.applied(waiting, result.kind is Kind.APPENDED)
        waiting.answer(result)

    def _stage(self, reply: Reply, entry: BatchEntry) -> None:
        machine, meta = self.group.machine, entry.meta
        verdict = self.staged.check(meta, entry.transaction_id, machine.last_seen, new_in_flight=0)
        if verdict.kind is Kind.JOINED:
            verdict.token.replies.append(reply)
        elif verdict.kind is Kind.STAGED and not self.in_flight.has(meta.producer_id):
            waiting = Waiting(reply)
            self.staged.add(meta, entry.transaction_id, waiting)
            self.group.propose(entry, lambda result: self._staged(waiting, result))
        else:
            self._refuse(reply, entry)

    def _staged(self, waiting: Waiting, result: Any) -> None:
        if result is not LOST:
            self.staged.applied(waiting, result.kind is Kind.STAGED)
        waiting.answer(result)

    def _refuse(self, reply: Reply, entry: BatchEntry) -> None:
        """Rejects once an entry of this term has committed, if the applied state rejects too."""

        def confirmed(result: Any) -> None:
            if result is LOST:
                reply(LOST)
                return
            verdict = self._applied_verdict(entry)
            if verdict.kind in (Kind.APPENDED, Kind.STAGED):
                # The batch in the way was in flight. Its sender tries again.
                reply(Verdict(Kind.NOT_READY))
            else:
                reply(verdict)

        self.group.propose(NOTHING, confirmed)

    def _applied_verdict(self, entry: BatchEntry) -> Verdict:
        machine: PartitionMachine = self.group.machine
        meta = entry.meta
        if entry.transaction_id:
            return machine.runs.check(meta, entry.transaction_id, machine.last_seen)
        verdict = machine.last_seen.check(meta, next_offset=machine.next_offset)
        return machine.runs.check_plain(meta, verdict)

    def resolve(self, reply: Reply, producer_id: int, epoch: int, sequence: int) -> None:
        """Answers a sequence's outcome, once an entry of this term has committed."""

        def confirmed(result: Any) -> None:
            runs, last_seen = self.group.machine.runs, self.group.machine.last_seen
            if result is LOST:
                reply(LOST)
            elif runs.may_publish(producer_id, epoch, sequence):
                reply(Resolution.NOT_YET)
            else:
                reply(last_seen.resolve(producer_id, epoch, sequence).resolution)

        self.group.propose(NOTHING, confirmed)

    # -- opens and markers ----------------------------------------------------------------

    def open(self, reply: Reply, producer_id: int, epoch: int) -> None:
        """Raises the epoch, then waits for the end of transactions staged under a lower one."""
        if not self.alive:
            reply(LOST)
            return
        entry, token = OpenEntry(producer_id, epoch), object()
        verdict = self.in_flight.check_open(producer_id, epoch)
        if verdict.kind is not Kind.APPENDED:
            reply(verdict)
            return

        def done(result: Any) -> None:
            if result is LOST:
                reply(LOST)
                return
            self.in_flight.applied(token, result.kind is Kind.APPENDED)
            self.opens.append((entry, reply))
            self._answer_opens()

        self.in_flight.add_open(producer_id, epoch, token)
        self.group.propose(entry, done)

    def _answer_opens(self) -> None:
        waiting, self.opens = self.opens, []
        for entry, reply in waiting:
            if self._must_wait(entry):
                self.opens.append((entry, reply))
            else:
                last_seen = self.group.machine.last_seen
                reply(last_seen.check_open(entry.producer_id, entry.epoch))

    def _must_wait(self, entry: OpenEntry) -> bool:
        run = self.group.machine.runs.run_of(entry.producer_id)
        return run is not None and run.epoch < entry.epoch

    def marker(self, reply: Reply, marker: Marker) -> None:
        if not self.alive:
            reply(LOST)
            return
        ended = self.group.machine.runs.ended(marker.transaction_id)
        if ended is not None:
            reply(ended.runs)
            return

        def done(result: Any) -> None:
            if not isinstance(result, Marked):
                reply(LOST)
                return
            self.staged.ended(marker.transaction_id)
            self.in_flight.published(sum(run.expected.records for run in result.published))
            self.registered.discard(marker.transaction_id)
            self._answer_opens()
            reply(result.ended.runs)

        self.group.propose(marker, done)

    def confirm(
        self,
        reply: Reply,
        transaction_id: int,
        asked: dict[int, tuple[int, int]],
        offsets: dict[str, tuple[int, int]],
        only_winners: bool,
    ) -> None:
        """Confirms that the transaction has exactly these runs; a deposed leader may, too."""
        machine = self.group.machine
        differs = machine.group_offsets.confirm(transaction_id, offsets)
        found = machine.runs.confirm(transaction_id, asked, only_winners=only_winners)
        reply(differs or found)


class MetadataLeader:
    """Leads the metadata group for one term: commands, decisions, markers, time."""

    def __init__(self, group: Group) -> None:
        self.group, self.alive = group, True
        self.timers = Timers()
        self._marking: set[int] = set()

    def begin(self) -> None:
        """The new leader sends the markers of decided transactions that still lack some."""
        for row in list(self.group.machine.coordinator.unfinished()):
            if row.state is not State.OPEN:
                self._mark(row.transaction_id)

    def end(self) -> None:
        self.alive = False

    def command(self, reply: Reply, method: str, **arguments: Any) -> None:
        if not self.alive:
            reply(LOST)
            return

        def done(result: Any) -> None:
            if result is not LOST and method in ("lease", "abort", "begin_batch"):
                self.begin()  # its own aborts
            reply(result)

        self.group.propose((method, arguments), done)

    def keep_alive(self, reply: Reply, transaction_id: int) -> None:
        row = self.group.machine.coordinator.get(transaction_id)
        if row is None or row.state is not State.OPEN:
            reply("ENDED")
            return
        self.timers.renew(transaction_id, self.group.world.now)
        reply("KEPT")

    def expire(self) -> None:
        """Aborts transactions that have been idle, or open, for too long."""
        unfinished = self.group.machine.coordinator.unfinished()
        for row in self.timers.due(unfinished, self.group.world.now):
            self.command(
                lambda result: None,
                "abort",
                transaction_id=row.transaction_id,
                holder=None,
                reason="expired",
            )

    def commit(
        self,
        reply: Reply,
        transaction_id: int,
        holder: Holder | None,
        asked: tuple[Asked, ...],
        visible: bool = True,
        digest: int = 0,
        next_nonce: int = 0,
    ) -> None:
        """Asks the partitions, decides, and waits for the markers if the caller wants that."""
        process = self._commit(transaction_id, holder, asked, visible, digest, next_nonce)
        self.group.world.spawn(process, reply)

    def _commit(
        self,
        transaction_id: int,
        holder: Holder | None,
        asked: tuple[Asked, ...],
        visible: bool,
        digest: int,
        next_nonce: int,
    ) -> Process:
        while self.alive:
            row = self.group.machine.coordinator.get(transaction_id)
            groups = tuple(row.parts) if row is not None else ()
            expected: Any = tuple(map(expected_of, asked))
            if row is not None and row.state is State.OPEN:
                expected = yield from self._confirm(transaction_id, groups, asked, row.sink)
                if expected is LOST:
                    return expected
                if expected and isinstance(expected[0], str):
                    if (yield from self._still_open(transaction_id)):
                        return expected
                    continue
            result = yield from self._propose(
                "commit",
                transaction_id=transaction_id,
                holder=holder,
                expected=expected,
                checked=len(groups),
                digest=digest,
                next_nonce=next_nonce,
            )
            if result is LOST or result[0] != "CHECK_AGAIN":
                return (yield from self._decided(transaction_id, result, visible))
        return LOST

    def _still_open(self, transaction_id: int) -> Process:
        """Checks a rejection about an open transaction: its runs go once it has ended."""
        box: list[Any] = []
        if self.alive:
            self.group.propose(NOTHING, box.append)
        while self.alive and not box:
            yield None
        row = self.group.machine.coordinator.get(transaction_id)
        return row is not None and row.state is State.OPEN

    def _propose(self, method: str, **arguments: Any) -> Process:
        box: list[Any] = []
        if not self.alive:
            return LOST
        self.group.propose((method, arguments), box.append)
        while not box:
            yield None
        return box[0]

    def _decided(self, transaction_id: int, result: Any, visible: bool) -> Process:
        if result is LOST:
            return LOST
        row = self.group.machine.coordinator.get(transaction_id)
        if result[0] in ("ABORTING", "COMMITTING"):
            self._mark(transaction_id)
        if result[0] not in ("COMMITTING", "COMMITTED") or not visible or row is None:
            return result
        # Its owner may begin the next one meanwhile; then only we have this row.
        while self.alive and row.state is not State.COMMITTED:
            yield None
        if not self.alive:
            return LOST
        return ("VISIBLE", {g: (p.gone, p.runs) for g, p in row.parts.items()}, *result[2:])

    def _confirm(
        self,
        transaction_id: int,
        groups: tuple[int, ...],
        asked: tuple[Asked, ...],
        only_winners: bool,
    ) -> Process:
        """Builds the decision's runs as the partitions' leaders found them; or a refusal."""
        wanted = [expected_of(run) for run in asked]
        found: dict[tuple[int, int, str], Expected] = {}
        for group in groups:
            here = [run for run in wanted if run.group == group]
            found |= {run.run: run for run in here if run.consumer_group}
            answer = yield Call(
                group,
                "confirm",
                {
                    "transaction_id": transaction_id,
                    "asked": {
                        run.producer_id: (run.records, run.last)
                        for run in here
                        if not run.consumer_group
                    },
                    "offsets": {
                        run.consumer_group: (run.records, run.last)
                        for run in here
                        if run.consumer_group
                    },
                    "only_winners": only_winners,
                },
            )
            if answer == GONE:  # its commit aborts it
                found |= {run.run: run for run in here}
            elif answer is LOST:
                return LOST
            elif isinstance(answer, str):
                return ("COMMIT_INCOMPLETE", answer, transaction_id)
            else:
                found |= {
                    (group, pid, ""): run._replace(group=group) for pid, run in answer.items()
                }
        if len(found) < len(asked):
            return ("COMMIT_INCOMPLETE", "a partition was never registered", transaction_id)
        return tuple(found[run.run] for run in wanted)

    # -- markers --------------------------------------------------------------------------

    def _mark(self, transaction_id: int) -> None:
        if transaction_id in self._marking:
            return
        self._marking.add(transaction_id)
        row = self.group.machine.coordinator.get(transaction_id)
        for group in row.pending() if row is not None else ():
            self.group.world.spawn(self._mark_in(transaction_id, group))

    def _mark_in(self, transaction_id: int, group: int) -> Process:
        """Repeats until it is done: the decision cannot change, so the marker may come twice."""
        while self.alive:
            row = self.group.machine.coordinator.get(transaction_id)
            if row is None or group not in row.pending():
                return
            if group not in row.next_markers():
                yield None
                continue
            marker = self.group.machine.coordinator.marker(row, group, 1)
            answer = yield Call(group, "marker", {"marker": marker})
            if answer is LOST:
                yield None
            elif answer == GONE:
                yield None  # the metadata hears of it
            else:
                yield from self._propose(
                    "markers_done", transaction_id=transaction_id, group=group, runs=answer
                )
