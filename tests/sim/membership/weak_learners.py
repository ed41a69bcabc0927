"""Mutations of learners that stay: `learner_schedules.py` has what catches them."""

from __future__ import annotations

from typing import Any

from cluster.consensus.configuration import Configuration, Members
from cluster.consensus.group import Group
from cluster.consensus.leader_term import LeaderTerm
from cluster.consensus.message import PreVote, Vote
from cluster.consensus.replication import FollowerProgress, FollowerState, Replicator
from tests.sim.mutations import mutation

# Which schedule must catch which weakness.
CAUGHT_BY = {
    "demoted-counts": "who_was_demoted_does_not_count",
    "demoted-votes": "votes_of_who_was_demoted_do_not_count",
    "demoted-is-silent": "who_was_demoted_still_answers",
    "demoted-stands": "learners_that_stay_lose_their_leader",
    "demoted-leads-on": "a_leader_that_is_demoted_hands_over",
    "demoted-goes": "a_demoted_leader_from_whom_nobody_takes_over_stops",
    "demoted-tells-early": "a_demoted_leaders_callers_wait_for_the_log",
    "demoted-rests": "a_demoted_leader_does_not_rest",
    "demoted-below-a-majority": "who_votes_on_is_a_majority_that_answers",
    "rests-without-its-learners": "a_group_does_not_rest_with_a_learner_behind",
    "rests-before-all-know": "a_learner_at_rest_can_get_its_vote",
    "learners-keep-awake": "a_group_with_learners_rests",
    "silent-learner-believed": "a_learner_that_falls_silent_wakes_its_group",
}


@mutation("a voter that was demoted counts on")
def demoted_counts() -> Any:
    take = Members.take

    def and_those_of_before(self: Members, placed: Any) -> None:
        before = {*self.voters}
        take(self, placed)
        self.voters += tuple(node for node in self.learners if node in before)
        self.majority = (len(self.voters) + self.is_voter) // 2 + 1

    return [(Members, "take", and_those_of_before)]


@mutation("the votes of those that were demoted count")
def demoted_votes() -> Any:
    return [(Members, "counts", Members.is_member)]


@mutation("a replica without a vote does not answer polls")
def demoted_is_silent() -> Any:
    receive = Group._receive

    def unasked(self: Group, sender: int, message: Any) -> None:
        if self.members.is_voter or not isinstance(message, PreVote | Vote):
            receive(self, sender, message)

    return [(Group, "_receive", unasked)]


@mutation("a replica without a vote stands")
def demoted_stands() -> Any:
    def may_lead(self: Group) -> bool:
        return self._raft.is_configured and self._env.may_lead() and self._env.takes_part()

    return [(Group, "_may_lead", may_lead)]


@mutation("a leader that was demoted leads on")
def demoted_leads_on() -> Any:
    leave = LeaderTerm.leave

    def if_removed(self: LeaderTerm) -> None:
        if self._members.is_removed:
            leave(self)

    return [(LeaderTerm, "leave", if_removed)]


@mutation("a leader that was demoted goes as if it were removed")
def demoted_goes() -> Any:
    def go(self: Group) -> None:
        self.members.is_removed = True
        self._retire()

    return [(Group, "_step_back", go)]


@mutation("a leader that was demoted rests, and so leads on")
def demoted_rests() -> Any:
    before: Any = LeaderTerm.can_quiesce

    def can_quiesce(self: LeaderTerm) -> bool:
        is_leaving, self.is_leaving = self.is_leaving, False
        try:
            return bool(before.fget(self))
        finally:
            self.is_leaving = is_leaving

    return [(LeaderTerm, "can_quiesce", property(can_quiesce))]


@mutation("a voter is demoted though the others cannot commit without it")
def demoted_below_a_majority() -> Any:
    check = LeaderTerm._check_left

    def of_removals(self: LeaderTerm, after: Configuration) -> None:
        if len(after.learners) <= len(self._members.configuration.learners):
            check(self, after)

    return [(LeaderTerm, "_check_left", of_removals)]


@mutation("a group rests without its learners: they are neither waited for nor told")
def rests_without_its_learners() -> Any:
    def level(self: Replicator) -> bool:
        last = self._journal.last_index
        up = [peer for peer in self.reachable() if peer in self._members.voters]
        return len(up) + 1 >= self._members.majority and all(
            self.peers[peer].match == last for peer in up
        )

    def can_quiesce(self: LeaderTerm) -> bool:
        return self.quiescence.is_quiet and self.ready and self.replicator.level()

    def quiesce(self: LeaderTerm) -> dict[int, float]:
        self.quiescence.begin()
        up = self.replicator.reachable()
        return {peer: self._replied_at(peer) for peer in up if peer in self._members.voters}

    return [
        (Replicator, "level", level),
        (LeaderTerm, "can_quiesce", property(can_quiesce)),
        (LeaderTerm, "quiesce", quiesce),
    ]


@mutation("a group rests before all have said that the configuration is in force there")
def rests_before_all_know() -> Any:
    def is_level(self: Replicator, progress: FollowerProgress, last: int) -> bool:
        return progress.state is FollowerState.REPLICATE and progress.match == last

    return [(Replicator, "_is_level", is_level)]


@mutation("a group with learners never rests")
def learners_keep_awake() -> Any:
    before: Any = LeaderTerm.can_quiesce

    def can_quiesce(self: LeaderTerm) -> bool:
        return not self._members.learners and bool(before.fget(self))

    return [(LeaderTerm, "can_quiesce", property(can_quiesce))]


@mutation("a learner that answered once is taken for a living one")
def silent_learner_believed() -> Any:
    replied_at = LeaderTerm._replied_at

    def or_now(self: LeaderTerm, peer: int) -> float:
        return replied_at(self, peer) if peer in self._members.voters else self._clock()

    return [(LeaderTerm, "_replied_at", or_now)]


@mutation("a demoted leader answers its callers before the log decides")
def demoted_tells_early() -> Any:
    end_leading = Group._end_leading

    def early(self: Group, reason: str, *, goes_on: bool = False) -> None:
        end_leading(self, reason, goes_on=goes_on and "votes no more" not in reason)

    return [(Group, "_end_leading", early)]
