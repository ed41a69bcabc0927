"""Known weaknesses of transactions, planted one at a time: they measure the simulation.

The first ones were found in other systems; the rest are mistakes of an early design of Oncelog.
`plant` gives (object, attribute, replacement) for each patch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cluster.partition.group_offsets as offsets_module
import cluster.transactions.runs as runs_module
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.record import ReadableRun as PublishedChain
from cluster.dedup.verdict import Kind, Verdict
from cluster.errors import NotReadyError
from cluster.groups.ownership import GroupOwnership
from cluster.groups.staged import StagedOffsetsTable
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.sent import Newest, Sent
from cluster.kafka.staged import StagedBatch
from cluster.node.transactions.markers import Markers
from cluster.partition.group_offsets import OffsetsTable
from cluster.partition.replica import Partition
from cluster.partition.staging import Staging
from cluster.partition.types import Answer
from cluster.services.groups.staged_offsets import OffsetStaging
from cluster.services.transactions.commit import Decisions
from cluster.transactions.coordinator import Coordinator
from cluster.transactions.run import Ended
from cluster.transactions.runs import RunTable
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import COMMIT_STATES, Expected, Marker, TransactionState

Patch = tuple[Any, str, Any]
WEAKNESSES: dict[str, Callable[[], list[Patch]]] = {}


def weakness(plant: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    WEAKNESSES[plant.__name__.replace("_", "-")] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plants the weakness for the length of the block."""
    patches = WEAKNESSES[name]()
    before = [(target, attribute, target.__dict__[attribute]) for target, attribute, _ in patches]
    for target, attribute, value in patches:
        setattr(target, attribute, value)
    try:
        yield
    finally:
        for target, attribute, value in before:
            setattr(target, attribute, value)


# -- the partition ----------------------------------------------------------------------


@weakness
def ended_is_forgotten() -> list[Patch]:
    """A late copy of a staged batch opens the transaction again (KAFKA-14402)."""
    mark = RunTable.mark

    def forgets(self: RunTable, marker: Marker, *args: Any, **more: Any) -> Any:
        marked = mark(self, marker, *args, **more)
        self._ended.pop(marker.transaction_id, None)
        return marked

    return [(RunTable, "mark", forgets)]


@weakness
def an_abort_keeps_the_sequence() -> list[Patch]:
    """A record sent again after an abort counts as a duplicate: it is lost."""
    mark = RunTable.mark

    def keeps(self: RunTable, marker: Marker, last_seen: LastSeen, **more: Any) -> Any:
        marked = mark(self, marker, last_seen, **more)
        for run in () if marker.committed else marked.dropped:
            known = last_seen.known(run.producer_id)
            if known is None or known.epoch <= run.epoch:
                chain = PublishedChain(run.epoch, run.first, run.last, 0, (), False)
                last_seen.publish(run.producer_id, chain, 0)
        return marked

    return [(RunTable, "mark", keeps)]


@weakness
def staged_before_registered() -> list[Patch]:
    """A leader stages without asking: no marker comes here."""
    return [(Staging, "knows", lambda self, number: True)]


@weakness
def commit_without_a_check() -> list[Patch]:
    """The decision believes the client."""

    async def believes(self: Decisions, row: Any, asked: Any, groups: Any) -> Any:
        return asked

    return [(Decisions, "_confirm", believes)]


@weakness
def losers_are_published() -> list[Patch]:
    """A commit publishes all staged records, not only those it names."""
    mark = RunTable.mark

    def all_of_it(self: RunTable, marker: Marker, *args: Any, **more: Any) -> Any:
        if marker.committed and marker.transaction_id not in self._ended:
            everything = tuple(
                Expected(0, run.producer_id, run.records, run.last, run.size)
                for run in self._of.get(marker.transaction_id, {}).values()
            )
            marker = marker._replace(expected=everything)
        return mark(self, marker, *args, **more)

    return [(RunTable, "mark", all_of_it)]


@weakness
def an_open_does_not_wait() -> list[Patch]:
    """A successor learns a last sequence that a commit's marker is about to raise."""

    def at_once(self: Staging, producer_id: int, epoch: int, answer_to: Any) -> None:
        answer_to(Answer(self._machine.producers.last_seen.check_open(producer_id, epoch)))

    return [(Staging, "answer_open", at_once)]


@weakness
def duplicates_by_the_last_sequence() -> list[Patch]:
    """A tail that T1 left out and T2 brought makes T1's copy of it a duplicate."""

    def by_last(ended: Ended, meta: Any, number: int, last_seen: LastSeen) -> Verdict:
        known = last_seen.known(meta.producer_id)
        if ended.committed and known is not None and meta.last <= known.last_sequence:
            return Verdict(Kind.DUPLICATE)
        return runs_module._ended_unknown(number)

    return [(runs_module, "_judge_ended", by_last)]


@weakness
def below_open_low_by_the_last_sequence() -> list[Patch]:
    """An aborted transaction's copy is a duplicate, as another one brought its sequences."""
    check = RunTable.check

    def by_last(self: RunTable, meta: Any, number: int, last_seen: LastSeen, **more: Any) -> Any:
        known = last_seen.known(meta.producer_id)
        if number < self._open_low and known is not None and meta.last <= known.last_sequence:
            return Verdict(Kind.DUPLICATE)
        return check(self, meta, number, last_seen, **more)

    return [(RunTable, "check", by_last)]


@weakness
def any_first_batch_begins_a_run() -> list[Patch]:
    """The second batch of a run, if it comes first, locks the first one out."""
    return [
        (RunTable, "_judge_first", lambda self, *args: Verdict(Kind.STAGED, base_offset=0)),
    ]


@weakness
def a_run_does_not_fence() -> list[Patch]:
    """After an abort the zombie's plain batch is accepted again."""
    return [(RunTable, "_fence_below", staticmethod(lambda *args: None))]


@weakness
def a_commit_brings_its_epoch() -> list[Patch]:
    """The marker of an old epoch lets the zombie in that its successor's open had fenced."""
    publish = LastSeen.publish

    def brings(self: LastSeen, producer_id: int, run: Any, *args: Any, **more: Any) -> None:
        place = self._table.find(producer_id)
        if place is not None:
            self._table.drop(producer_id)
        publish(self, producer_id, run, *args, **more)

    return [(LastSeen, "publish", brings)]


@weakness
def plain_beside_a_run() -> list[Patch]:
    """A plain batch goes between a run and its marker: the chain breaks."""
    return [(RunTable, "check_plain", lambda self, meta, verdict: verdict)]


@weakness
def a_repeated_marker_counts() -> list[Patch]:
    """A marker that comes twice publishes twice, or ends a newer transaction."""
    mark = RunTable.mark

    def again(self: RunTable, marker: Marker, *args: Any, **more: Any) -> Any:
        self._ended.pop(marker.transaction_id, None)
        return mark(self, marker, *args, **more)

    return [(RunTable, "mark", again)]


@weakness
def what_is_staged_is_never() -> list[Patch]:
    """A record is resolved as NEVER between the successor's open and the marker."""
    return [(RunTable, "may_publish", lambda self, *asked: False)]


# -- the coordinator --------------------------------------------------------------------


@weakness
def any_commit_of_a_committed_one_is_right() -> list[Patch]:
    """A second commit that names other runs is told that these were committed."""
    commit = Coordinator.commit

    def agrees(self: Coordinator, number: int, *args: Any, **more: Any) -> Any:
        row = self._rows.get(number)
        if row is not None and row.state in COMMIT_STATES:
            return row
        return commit(self, number, *args, **more)

    return [(Coordinator, "commit", agrees)]


@weakness
def registered_after_the_end() -> list[Patch]:
    """A partition joins a transaction that has ended: its run has no marker."""

    def joins(self: Coordinator, number: int, holder: Any, groups: Any, exists: Any) -> Any:
        return self._rows.get(number)

    return [(Coordinator, "register", joins)]


@weakness
def a_lease_leaves_transactions_open() -> list[Patch]:
    """A successor does not abort its predecessor's transaction: the zombie commits it."""
    return [(Coordinator, "fence", lambda self, owner, holder: None)]


@weakness
def begin_without_order() -> list[Patch]:
    """A delayed Begin opens a transaction that nobody owns."""
    begin = Coordinator.begin

    def any_nonce(self: Coordinator, owner: str, holder: Any, nonce: int, **more: Any) -> Any:
        known = self._owners.get(owner)
        if known is not None and nonce < known.nonce:
            self._owners[owner] = known._replace(nonce=nonce - 1)
        return begin(self, owner, holder, nonce, **more)

    return [(Coordinator, "begin", any_nonce)]


@weakness
def the_one_before_is_forgotten() -> list[Patch]:
    """A transaction is forgotten once the next one begins, even by its own commit."""
    begin = Coordinator.begin

    def forgetful(self: Coordinator, *arguments: Any, after: int = 0, **more: Any) -> Any:
        return begin(self, *arguments, **more)

    return [(Coordinator, "begin", forgetful)]


@weakness
def the_last_one_of_an_owner_is_forgotten() -> list[Patch]:
    """A repeated commit is told that nobody knows the transaction."""
    finish = Coordinator._finish

    def forgets(self: Coordinator, row: TransactionRow) -> None:
        finish(self, row)
        if row.transaction_id < self.open_low and row.state is TransactionState.COMMITTED:
            row.parts.clear()
            row.expected = ()

    return [(Coordinator, "_finish", forgets)]


@weakness
def open_low_too_high() -> list[Patch]:
    """Transactions are forgotten before they have ended in all partitions."""

    def highest(self: Coordinator) -> int:
        return self._next

    return [(Coordinator, "open_low", property(highest))]


@weakness
def markers_only_once() -> list[Patch]:
    """A new metadata leader does not send the rest of its predecessor's markers."""

    def aborts_only(self: Markers, now: float) -> None:
        for row in self._metadata.coordinator.decided():
            if row.state is TransactionState.ABORTING:
                self.begin(row)

    return [(Markers, "look", aborts_only)]


@weakness
def deleted_partitions_are_waited_for() -> list[Patch]:
    """A transaction with a deleted topic never ends (KAFKA-5202)."""
    return [(Coordinator, "groups_gone", lambda self, groups: None)]


@weakness
def a_deleted_partition_is_left_out() -> list[Patch]:
    """A commit silently drops the part of a topic that was deleted before it."""

    def present(self: Coordinator, groups: Any) -> None:
        for row in list(self._unfinished.values()):
            for group in row.parts.keys() & groups:
                row.parts[group].done = True
            if row.state is not TransactionState.OPEN:
                self._finish(row)

    return [(Coordinator, "groups_gone", present)]


@weakness
def batches_of_a_sink_overtake() -> list[Patch]:
    """A sink's next batch begins while the one before is being published."""
    begin_batch = Coordinator.begin_batch

    def at_once(self: Coordinator, asked: Any, **more: Any) -> Any:
        sink = self.sinks.admit(asked)
        last = self._rows.get(sink.last_id)
        if last is not None and last.state is TransactionState.COMMITTING:
            last_id, sink.last_id = sink.last_id, 0
            try:
                return begin_batch(self, asked, **more)
            finally:
                sink.last_id = sink.last_id or last_id
        return begin_batch(self, asked, **more)

    return [(Coordinator, "begin_batch", at_once)]


# -- offsets of groups ------------------------------------------------------------------


@weakness
def offsets_before_records() -> list[Patch]:
    """A successor reads on from an offset whose records are not readable yet."""

    def all_at_once(self: TransactionRow, done: Any = ()) -> list[int]:
        return [group for group in self.pending() if group not in done]

    return [(TransactionRow, "next_markers", all_at_once)]


@weakness
def commits_beside_staged_offsets() -> list[Patch]:
    """A marker takes back the new owner's later commit."""

    def beside(self: OffsetsTable, group: str, record: Any) -> Any:
        staged, self.staged = self.staged, StagedOffsetsTable()
        try:
            return commit_offset(self, group, record)
        finally:
            self.staged = staged

    commit_offset = OffsetsTable._commit
    return [(OffsetsTable, "_commit", beside)]


@weakness
def a_fetch_does_not_wait() -> list[Patch]:
    """The new owner reads the current commit, and does the work again."""

    async def at_once(self: OffsetStaging, *asked: Any) -> None: ...

    return [(OffsetStaging, "end_staged", at_once)]


@weakness
def a_fetch_waits_for_the_decision_only() -> list[Patch]:
    """Decided is not applied: the old offset is there until the marker has come."""

    async def decided(
        self: OffsetStaging, replica: Partition, group: str, keys: Any, check: Any
    ) -> None:
        for number in replica.group_offsets.staged.holders(group).values():
            await self._abort(number)

    return [(OffsetStaging, "end_staged", decided)]


@weakness
def a_member_is_its_ownership() -> list[Patch]:
    """A member that lost a partition and regained it commits work of its first ownership."""
    check = GroupOwnership.check_commit

    def by_member(self: GroupOwnership, part: Any, member: str, ownership: int, number: int) -> str:
        owner = self.owners.get(part)
        if owner is not None and owner.member == member:
            ownership = owner.number
        return check(self, part, member, ownership, number)

    return [(GroupOwnership, "check_commit", by_member)]


@weakness
def all_that_is_staged_is_stored() -> list[Patch]:
    """A marker stores offsets that came after the check, too."""
    end = OffsetsTable.end

    def everything(self: OffsetsTable, number: int, stored: Any, stamp_ms: int) -> bool:
        if stored is None:
            return end(self, number, stored, stamp_ms)
        newest = {group: self.staged.calls(number, group)[-1].number for group in stored}
        return end(self, number, newest, stamp_ms)

    return [(OffsetsTable, "end", everything)]


@weakness
def staged_offsets_in_any_order() -> list[Patch]:
    """A delayed call replaces the offset of a later one."""
    stage = OffsetsTable._stage

    def any_order(self: OffsetsTable, call: Any, over: Any) -> Any:
        known = self.staged.calls(call.transaction_id, call.group)
        if known and call.number < known[-1].number:
            call.number = known[-1].number + 1
        return stage(self, call, over)

    return [(OffsetsTable, "_stage", any_order)]


@weakness
def offsets_after_the_end_are_staged() -> list[Patch]:
    """No marker comes any more: nobody commits the partition's offset ever again."""
    return [(RunTable, "over", lambda self, number: None)]


@weakness
def overtaken_transactions_stay_open() -> list[Patch]:
    """The new owner commits nothing until the old one's transaction expires."""
    return [(OffsetsTable, "overtaken", lambda self: [])]


# -- Kafka's protocol -------------------------------------------------------------------


@weakness
def kafka_sequences_come_back() -> list[Patch]:
    """An abort gives the sequences back, as for other clients: Kafka's do not send them again."""
    return [(runs_module, "_use_up", lambda *of: None)]


@weakness
def an_end_counts_however_old_it_is() -> list[Patch]:
    """A delayed EndTxn ends a later transaction of its producer (KIP-890)."""
    return [(Sent, "check", lambda self, name, number: None)]


@weakness
def offsets_count_however_old_they_are() -> list[Patch]:
    """A delayed TxnOffsetCommit replaces newer offsets."""
    return [(Newest, "check", lambda self, client, sent: None)]


@weakness
def offsets_of_a_group_that_was_not_added() -> list[Patch]:
    """A delayed TxnOffsetCommit goes into a transaction that has no offsets."""

    async def any_group(self: OpenTransactions, name: str, holder: Any, group: int) -> Any:
        row = await self._last_of(name, holder)
        if row is None or row.state is not TransactionState.OPEN:
            raise NotReadyError("ask again")
        return row

    return [(OpenTransactions, "_open_one", any_group)]


@weakness
def a_kafka_commit_is_its_decision() -> list[Patch]:
    """Records that were acknowledged behind a delayed EndTxn's decision are lost."""

    def named(marker: Marker, runs: Any) -> list[Expected]:
        return [one for one in marker.expected if not one.consumer_group]

    return [(runs_module, "_due", named)]


@weakness
def kafka_offsets_are_those_of_the_decision() -> list[Patch]:
    """A commit that its owner was told of leaves the group where it was: work is done twice."""

    def named(calls: Any, last: int) -> Iterator[Any]:
        return (record for call in calls if call.number <= last for record in call.offsets)

    return [(offsets_module, "_due", named)]


@weakness
def native_sequences_are_used_up() -> list[Patch]:
    """Kafka's rule for an abort reaches other clients: what they send again is refused."""

    def of_all(dropped: Any, last_seen: LastSeen, next_offset: int, time_ms: int) -> None:
        for run in dropped:
            last_seen.use_up(run.producer_id, run.epoch, run.last, next_offset, time_ms)

    return [(runs_module, "_use_up", of_all)]


@weakness
def used_up_at_the_next_offset() -> list[Patch]:
    """The chain's last offset is that of the next record: no record can follow, replicas stop."""
    use_up = LastSeen.use_up

    def too_high(self: LastSeen, pid: int, epoch: int, last: int, end: int, time_ms: int) -> None:
        use_up(self, pid, epoch, last, end + 1, time_ms)

    return [(LastSeen, "use_up", too_high)]


@weakness
def used_up_and_duplicates_again() -> list[Patch]:
    """The window stays: a late copy of a committed batch is called a duplicate in another one."""

    def one_less(self: LastSeen, pid: int, epoch: int, last: int, end: int, time_ms: int) -> None:
        use_up(self, pid, epoch, last - 1, end, time_ms)

    use_up = LastSeen.use_up
    return [(LastSeen, "use_up", one_less)]


@weakness
def the_rest_of_an_expired_one_goes_on() -> list[Patch]:
    """A client's second part goes into a new transaction, and is committed without the first."""
    begin = Coordinator.begin

    def at_once(self: Coordinator, *of: Any, knows_end: bool = True, **more: Any) -> Any:
        return begin(self, *of, **more)

    return [(Coordinator, "begin", at_once)]


@weakness
def an_end_is_answered_at_its_decision() -> list[Patch]:
    """A batch of the next transaction comes where the last one looks open: it goes there."""

    async def at_once(self: OpenTransactions, row: Any) -> None: ...

    return [(OpenTransactions, "_everywhere", at_once)]


@weakness
def any_end_counts() -> list[Patch]:
    """A node with an old copy ends the transaction before: the last one stays open."""

    async def believes(self: OpenTransactions, row: Any) -> bool:
        await commit(self, row)
        return True

    commit = OpenTransactions._commit
    return [(OpenTransactions, "_commit", believes)]


@weakness
def an_end_goes_on_with_the_next() -> list[Patch]:
    """It waited while its client repeated it elsewhere and began another: that ends half done."""

    async def goes_on(self: OpenTransactions, *of: Any, commit: bool) -> None:
        while True:
            try:
                return await end(self, *of, commit=commit)
            except NotReadyError:
                pass

    end = OpenTransactions.end
    return [(OpenTransactions, "end", goes_on)]


@weakness
def offsets_believe_an_old_copy() -> list[Patch]:
    """The group's node takes an ended transaction for the open one: its producer has to stop."""

    async def believes(
        self: OpenTransactions, name: str, holder: Any, sent: Any, group: int, stage: Any
    ) -> Any:
        return await stage((await self._open_one(name, holder, group)).transaction_id)

    return [(OpenTransactions, "stage_offsets", believes)]


@weakness
def an_old_copy_is_believed() -> list[Patch]:
    """A leader looks for a batch's transaction in its copy alone, however old that is."""

    def believes(self: StagedBatch, replica: Partition) -> Any:
        name = self.name
        row = None if name is None else self._metadata.coordinator.open_of(name.name)
        return (
            row if row is not None and row.takes(replica.group.config.group, self._holder) else None
        )

    return [(StagedBatch, "_row", believes)]


@weakness
def each_lease_is_another() -> list[Patch]:
    """A repeated InitProducerId fences the producer that it was for."""
    lease = OpenTransactions.lease

    async def anew(self: OpenTransactions, name: str, timeout_ms: int, held: Any) -> Any:
        return await lease(self, name, timeout_ms, None)

    return [(OpenTransactions, "lease", anew)]


@weakness
def a_lease_does_not_wait() -> list[Patch]:
    """A successor reads before its predecessor's last records can be read."""

    async def at_once(self: OpenTransactions, row: Any) -> None: ...

    return [(OpenTransactions, "_ended", at_once)]
