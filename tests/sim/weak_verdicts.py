"""Mutations of a leader's promises, of the verdict on a batch, and of the feature gate."""

from __future__ import annotations

from typing import Any

from cluster.consensus import group
from cluster.consensus.group import Group
from cluster.consensus.proposals import Abandoned, Proposals
from cluster.consensus.replication import Replicator
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import Kind, Verdict
from cluster.entries import LOG_START
from cluster.features import Features
from cluster.metadata import upgrade
from cluster.metadata.state import MetadataState
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.maintenance.duties import Maintenance
from cluster.partition import leader
from cluster.partition.leader import Leadership
from cluster.partition.machine import Loaded, PartitionMachine
from cluster.partition.replica import Answer, Partition
from tests.sim.mutations import mutation

# -- the leader's bookkeeping ----------------------------------------------------------------------


@mutation("a follower whose log differs is never asked where")
def refusals_ignored() -> Any:
    return [(Replicator, "_is_fresh", staticmethod(lambda progress, reply: False))]


@mutation("those who wait for a confirmation are forgotten with the leadership")
def waiters_forgotten() -> Any:
    abandon = Proposals.abandon

    def forgetful(self: Proposals, leader_id: int, reason: str) -> Any:
        self._confirming = []
        appended = self._waiting.items()
        for index in [i for i, one in appended if "confirmed" in one.__qualname__]:
            del self._waiting[index]
        return abandon(self, leader_id, reason)

    return [(Proposals, "abandon", forgetful)]


@mutation("one proposal fails and the later ones of its term go on")
def later_proposals_go_on() -> Any:
    take = Proposals.take

    def losing(self: Proposals) -> Any:
        if len(self._queue) > 2:
            _, done, _ = self._queue.pop(0)
            done(Abandoned(0, "lost"))
        return take(self)

    return [(Proposals, "take", losing)]


@mutation("an abandoned proposal is reported as applied")
def abandoned_means_applied() -> Any:
    return _abandoned_means(Kind.APPENDED)


@mutation("an abandoned proposal is reported as never proposed")
def abandoned_means_unstored() -> Any:
    return _abandoned_means(Kind.NOT_READY)


def _abandoned_means(kind: Kind) -> Any:
    propose = Leadership._propose_batch

    def certain(self: Leadership, meta: Any, request: Any, below: int, to: Any) -> None:
        base = self._in_flight.next_offset if kind is Kind.APPENDED else -1

        def answered(answer: Answer) -> None:
            is_abandoned = answer.verdict.kind is Kind.NOT_LEADER
            to(Answer(Verdict(kind, base_offset=base)) if is_abandoned else answer)

        propose(self, meta, request, below, answered)

    return [(Leadership, "_propose_batch", certain)]


# -- the verdict -----------------------------------------------------------------------------------


@mutation("snapshots do not hold the last-seen map")
def map_missing_from_snapshot() -> Any:
    restore = PartitionMachine.restore

    def without_map(self: PartitionMachine, loaded: Loaded | None) -> None:
        restore(self, loaded)
        self.producers.last_seen = LastSeen(capacity=self._capacity)

    return [(PartitionMachine, "restore", without_map)]


@mutation("producers expire by the replica's own clock")
def expiry_by_local_clock() -> Any:
    apply = Partition.apply

    def by_local_clock(self: Any, index: int, term: int, data: bytes, batch: Any) -> object:
        self.machine.clock_ms = max(self.machine.clock_ms, self._sim.wall_ms())
        return apply(self, index, term, data, batch)

    return [(Partition, "apply", by_local_clock)]


@mutation("a node believes its own clock, whatever the others' say")
def own_clock_believed() -> Any:
    def believing(self: ClockAgreement, own_ms: float) -> None:
        self._checked_ms, self.agreed = own_ms, True

    return [(ClockAgreement, "_check", believing)]


@mutation("a jump of the own clock is noticed only now and then")
def jump_noticed_late() -> Any:
    def late(self: ClockAgreement) -> int:
        if self.agreed:
            self._last_ms = self._wall_ms()
        return self._last_ms

    return [(ClockAgreement, "now_ms", late)]


@mutation("a leader whose clock is wrong goes on to lead")
def wrong_clock_keeps_leading() -> Any:
    return [(Maintenance, "_hand_over", lambda self, gid, group: None)]


@mutation("a node with a wrong clock stands for election")
def wrong_clock_stands() -> Any:
    return [(Group, "_may_lead", lambda self: True)]


@mutation("the map is changed before the batch is in the log")
def map_before_append() -> Any:
    propose = Leadership._propose_batch

    def early(self: Leadership, meta: Any, request: Any, below: int, to: Any) -> None:
        propose(self, meta, request, below, to)
        machine = self._machine
        machine.producers.last_seen.record(meta, self._in_flight.next_offset, machine.clock_ms)

    return [(Leadership, "_propose_batch", early)]


@mutation("the batches in flight survive the loss of leadership")
def overlay_kept() -> Any:
    on_role = Partition.on_role

    def keeping(self: Partition, *, leader: bool, ready: bool, term: int) -> None:
        kept = self._leadership
        on_role(self, leader=leader, ready=ready, term=term)
        if kept is not None:
            self._leadership = kept

    return [(Partition, "on_role", keeping)]


@mutation("a new leader takes batches before it has applied its own no-op")
def served_before_ready() -> Any:
    on_role = Partition.on_role

    def at_once(self: Partition, *, leader: bool, ready: bool, term: int) -> None:
        if not leader or not ready:
            on_role(self, leader=leader, ready=leader, term=term)

    return [(Partition, "on_role", at_once), _refusal_as_first_seen()]


def _refusal_as_first_seen() -> tuple[Any, str, Any]:
    """Answers the batch's first refusal once this node surely leads."""

    def refuse(self: Leadership, meta: Any, request: Any, verdict: Verdict, to: Any) -> None:
        def confirmed(outcome: Any) -> None:
            gone = isinstance(outcome, Abandoned)
            to(Answer(Verdict(Kind.NOT_LEADER) if gone else verdict))

        self._confirm(confirmed)

    return (Leadership, "_refuse_batch", refuse)


@mutation("a refusal counts batches in flight that apply refuses itself")
def refusal_for_doomed_batches() -> Any:
    return [_refusal_as_first_seen()]


@mutation("a duplicate of a batch in flight is answered before it is committed")
def duplicate_before_commit() -> Any:
    check = Leadership._check

    def hasty(self: Leadership, meta: Any, below: int) -> Verdict:
        verdict = check(self, meta, below)
        return Verdict(Kind.DUPLICATE) if verdict.kind is Kind.JOINED else verdict

    return [(Leadership, "_check", hasty)]


@mutation("a batch is acknowledged when it is proposed")
def ack_before_commit() -> Any:
    def hasty(self: Leadership, meta: Any, request: Any, below: int, to: Any) -> None:
        base = self._in_flight.next_offset
        propose(self, meta, request, below, lambda answer: None)
        to(Answer(Verdict(Kind.APPENDED, base_offset=base)))

    propose = Leadership._propose_batch
    return [(Leadership, "_propose_batch", hasty)]


@mutation("a batch without sequences is in doubt when its leader is deposed")
def plain_batch_ends_with_its_term() -> Any:
    def brief(self: Leadership, data: bytes, done: Any, *, outlives_term: bool = False) -> None:
        propose(self, data, done)

    propose = Leadership.propose
    return [(Leadership, "propose", brief)]


@mutation("a batch without sequences waits for a majority that never comes")
def plain_batch_waits_for_ever() -> Any:
    return [(group, "UNDECIDED", float("inf"))]


@mutation("a batch without sequences that may be stored is refused")
def plain_batch_in_doubt_is_refused() -> Any:
    return [(leader, "IN_DOUBT", Answer(Verdict(Kind.NOT_LEADER)))]


@mutation("a deposed leader says no")
def refusal_without_confirmation() -> Any:
    def at_once(self: Leadership, meta: Any, request: Any, verdict: Verdict, to: Any) -> None:
        to(Answer(verdict))

    return [(Leadership, "_refuse_batch", at_once)]


@mutation("apply trusts the leader's check")
def apply_does_not_decide() -> Any:
    check = LastSeen.check

    def trusting(self: LastSeen, meta: Any, **rest: Any) -> Verdict:
        if "new_in_flight" in rest:  # the leader's call, through the overlay
            return check(self, meta, **rest)
        return Verdict(Kind.APPENDED, base_offset=rest["next_offset"])

    return [(LastSeen, "check", trusting), *later_proposals_go_on()]


@mutation("retention forgets producers whose records it drops")
def retention_drops_the_map() -> Any:
    apply = PartitionMachine.apply

    def forgetful(self: PartitionMachine, index: int, data: bytes, batch: Any) -> object:
        result = apply(self, index, data, batch)
        if data[0] == LOG_START and self.stored.log_start == self.stored.next_offset:
            self.producers.last_seen = LastSeen(capacity=self._capacity)
        return result

    return [(PartitionMachine, "apply", forgetful)]


@mutation("a repeated batch older than the window is appended again")
def old_duplicates_appended() -> Any:
    check = LastSeen.check

    def short(self: LastSeen, meta: Any, **rest: Any) -> Verdict:
        verdict = check(self, meta, **rest)
        if verdict.kind is Kind.DUPLICATE and verdict.base_offset < 0:
            return Verdict(Kind.APPENDED, base_offset=rest["next_offset"])
        return verdict

    return [(LastSeen, "check", short)]


@mutation("a higher epoch does not fence the lower ones")
def no_fencing() -> Any:
    check = LastSeen.check

    def unfenced(self: LastSeen, meta: Any, **rest: Any) -> Verdict:
        verdict = check(self, meta, **rest)
        if verdict.kind is Kind.FENCED:
            return Verdict(Kind.APPENDED, base_offset=rest["next_offset"])
        return verdict

    return [(LastSeen, "check", unfenced)]


# -- the feature gate ------------------------------------------------------------------------------


@mutation("writers do not ask the gate")
def gate_not_asked() -> Any:
    return [(Features, "is_on", lambda self, feature: True)]


@mutation("an upgrade is finalized whatever the nodes run")
def upgrade_without_all_nodes() -> Any:
    return [(upgrade, "_hindrances", lambda target, nodes: ())]


@mutation("an older release goes on beyond an upgrade")
def upgrade_skipped_by_old_release() -> Any:
    return [(MetadataState, "_check_release", lambda self, finalized: None)]
