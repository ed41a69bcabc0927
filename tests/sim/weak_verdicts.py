"""Mutations of what a leader promises and of the verdict on a batch."""

from __future__ import annotations

from typing import Any

from cluster.consensus.proposals import Abandoned, Proposals
from cluster.consensus.replication import Replicator
from cluster.dedup.in_flight import Kind, Verdict
from cluster.dedup.last_seen import LastSeen
from cluster.partition.replica import Answer, Partition
from tests.sim.mutations import mutation

# -- the leader's bookkeeping ----------------------------------------------------------------------


@mutation("a follower whose log differs is never asked where")
def refusals_ignored() -> Any:
    return [(Replicator, "_is_fresh", staticmethod(lambda progress, reply: False))]


@mutation("those who wait for a confirmation are forgotten with the leadership")
def waiters_forgotten() -> Any:
    abandon = Proposals.abandon

    def forgetful(self: Proposals, outcome: Abandoned) -> None:
        self._confirming = []
        for index in [i for i, done in self._waiting.items() if "confirmed" in done.__qualname__]:
            del self._waiting[index]
        abandon(self, outcome)

    return [(Proposals, "abandon", forgetful)]


@mutation("one proposal fails and the later ones of its term go on")
def later_proposals_go_on() -> Any:
    take = Proposals.take

    def losing(self: Proposals) -> Any:
        if len(self._queue) > 2:
            _, done = self._queue.pop(0)
            done(Abandoned(0, "lost"))
        return take(self)

    return [(Proposals, "take", losing)]


@mutation("an abandoned proposal is reported as applied")
def abandoned_means_applied() -> Any:
    propose = Partition._propose

    def optimistic(self: Partition, group: Any, in_flight: Any, request: Any, to: Any) -> None:
        base = in_flight.next_offset

        def told(answer: Answer) -> None:
            if answer.verdict.kind is Kind.NOT_LEADER:
                answer = Answer(Verdict(Kind.APPENDED, base_offset=base))
            to(answer)

        propose(self, group, in_flight, request, told)

    return [(Partition, "_propose", optimistic)]


# -- the verdict -----------------------------------------------------------------------------------


@mutation("snapshots do not hold the last-seen map")
def map_missing_from_snapshot() -> Any:
    restore = Partition.restore

    def without_map(self: Partition, state: bytes | None, index: int) -> None:
        restore(self, state, index)
        self.last_seen = LastSeen(capacity=self._capacity)

    return [(Partition, "restore", without_map)]


@mutation("producers expire by the replica's own clock")
def expiry_by_local_clock() -> Any:
    apply_batch = Partition._apply_batch

    def by_local_clock(self: Partition, index: int, data: bytes, batch: Any) -> Answer:
        self.clock_ms = max(self.clock_ms, self._now_ms())
        return apply_batch(self, index, data, batch)

    return [(Partition, "_apply_batch", by_local_clock)]


@mutation("the map is changed before the batch is in the log")
def map_before_append() -> Any:
    propose = Partition._propose

    def early(self: Partition, group: Any, in_flight: Any, request: Any, to: Any) -> None:
        propose(self, group, in_flight, request, to)
        self.last_seen.record(request.meta, in_flight.next_offset, self.clock_ms)

    return [(Partition, "_propose", early)]


@mutation("the batches in flight survive the loss of leadership")
def overlay_kept() -> Any:
    on_role = Partition.on_role

    def keeping(self: Partition, *, leader: bool, ready: bool, term: int) -> None:
        kept = self._in_flight
        on_role(self, leader=leader, ready=ready, term=term)
        if kept is not None:
            self._in_flight = kept

    return [(Partition, "on_role", keeping)]


@mutation("a new leader takes batches before it has applied its own no-op")
def served_before_ready() -> Any:
    on_role = Partition.on_role

    def at_once(self: Partition, *, leader: bool, ready: bool, term: int) -> None:
        if not leader or not ready:
            on_role(self, leader=leader, ready=leader, term=term)

    return [(Partition, "on_role", at_once), _refusal_as_first_seen()]


def _refusal_as_first_seen() -> tuple[Any, str, Any]:
    """What was wrong when the batch came is answered once this node surely leads."""

    def refuse(self: Partition, group: Any, request: Any, verdict: Verdict, to: Any) -> None:
        def confirmed(outcome: Any) -> None:
            gone = isinstance(outcome, Abandoned)
            to(Answer(Verdict(Kind.NOT_LEADER) if gone else verdict))

        group.confirm(confirmed)
        self._touch()

    return (Partition, "_refuse", refuse)


@mutation("a refusal counts batches in flight that apply refuses itself")
def refusal_for_doomed_batches() -> Any:
    return [_refusal_as_first_seen()]


@mutation("a duplicate of a batch in flight is answered before it is committed")
def duplicate_before_commit() -> Any:
    precheck = Partition._precheck

    def hasty(self: Partition, in_flight: Any, request: Any) -> Verdict:
        verdict = precheck(self, in_flight, request)
        return Verdict(Kind.DUPLICATE) if verdict.kind is Kind.JOINED else verdict

    return [(Partition, "_precheck", hasty)]


@mutation("a batch is acknowledged when it is proposed")
def ack_before_commit() -> Any:
    def hasty(self: Partition, group: Any, in_flight: Any, request: Any, to: Any) -> None:
        base = in_flight.next_offset
        propose(self, group, in_flight, request, lambda answer: None)
        to(Answer(Verdict(Kind.APPENDED, base_offset=base)))

    propose = Partition._propose
    return [(Partition, "_propose", hasty)]


@mutation("a deposed leader says no")
def refusal_without_confirmation() -> Any:
    def at_once(self: Partition, group: Any, request: Any, verdict: Verdict, to: Any) -> None:
        to(Answer(verdict))

    return [(Partition, "_refuse", at_once)]


@mutation("apply trusts the leader's check")
def apply_does_not_decide() -> Any:
    check = LastSeen.check

    def trusting(self: LastSeen, meta: Any, **rest: Any) -> Verdict:
        if "issued_below" in rest:  # the leader's call, through the overlay
            return check(self, meta, **rest)
        return Verdict(Kind.APPENDED, base_offset=rest["next_offset"])

    return [(LastSeen, "check", trusting), *later_proposals_go_on()]


@mutation("retention forgets producers whose records it drops")
def retention_drops_the_map() -> Any:
    apply_log_start = Partition._apply_log_start

    def forgetful(self: Partition, entry: Any, batch: Any) -> None:
        apply_log_start(self, entry, batch)
        if self.log_start == self.next_offset:
            self.last_seen = LastSeen(capacity=self._capacity)

    return [(Partition, "_apply_log_start", forgetful)]


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
