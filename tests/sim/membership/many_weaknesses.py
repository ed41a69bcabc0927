"""Mutations of clocks and news without a mesh: `many_schedules.py` has what catches them."""

from __future__ import annotations

from typing import Any

from cluster.consensus.message import LeaderChanges, LeadersSince, NewsMessage
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.leadership.news import LeaderNews
from cluster.node.maintenance.duties import Maintenance
from tests.sim.mutations import mutation

# Which schedule must catch which weakness.
_LATE = "a_leader_that_knows_the_old_voters_tells_the_new_ones_later"
CAUGHT_BY = {
    "all-ask-all": "nodes_that_share_nothing_exchange_nothing",
    "leaders-tell-all": "nodes_that_share_nothing_exchange_nothing",
    "voters-pass-nothing-on": "each_node_knows_each_leader",
    "nobody-asks": "each_node_knows_each_leader",
    "numbers-outlive-a-process": "voters_begin_their_numbers_anew",
    "gaps-are-not-noticed": "changes_that_were_lost_are_asked_for",
    "new-voters-are-not-told": _LATE,
    "wrong-clocks-are-not-passed-on": "each_node_knows_a_wrong_clock",
    "wrong-clocks-stay": "each_node_knows_a_wrong_clock",
    "clocks-count-before-they-are-asked": _LATE,
    "new-messages-before-the-upgrade": "two_releases_know_each_leader",
    "followers-are-not-asked": "a_leader_knows_whether_its_followers_keep_up",
}


@mutation("each node compares its clock with all nodes")
def all_ask_all() -> Any:
    def everybody(self: Maintenance, metadata: Any) -> Any:
        return metadata.members.learners

    return [(Maintenance, "_asked", everybody)]


@mutation("a leader tells all nodes of its leadership, where voters pass it on")
def leaders_tell_all() -> Any:
    return [(LeaderNews, "_audience", lambda self: {*self._links})]


@mutation("voters pass no leaders on")
def voters_pass_nothing_on() -> Any:
    return [(LeaderNews, "_answer", lambda self, peer: None)]


@mutation("nodes do not ask voters for leaders")
def nobody_asks() -> Any:
    return [(LeaderNews, "_voters_to_ask", lambda self: ())]


@mutation("a number that an earlier process gave counts as one of the present process")
def numbers_outlive_a_process() -> Any:
    receive = LeaderNews.receive

    def believing(self: LeaderNews, sender: int, message: NewsMessage) -> None:
        if isinstance(message, LeadersSince):
            message = LeadersSince(self._process, message.number)
        receive(self, sender, message)

    return [(LeaderNews, "receive", believing)]


@mutation("the number of a voter's newest change counts, though changes before it were lost")
def gaps_are_not_noticed() -> Any:
    receive = LeaderNews.receive

    def believing(self: LeaderNews, sender: int, message: NewsMessage) -> None:
        receive(self, sender, message)
        if isinstance(message, LeaderChanges):
            self._known[sender] = (message.process, message.number)

    return [(LeaderNews, "receive", believing)]


@mutation("nodes ask for leaders where a learner is only being filled, before the upgrade")
def new_messages_before_the_upgrade() -> Any:
    def learn(self: LeaderNews) -> bool:
        return bool(self._groups[METADATA_GROUP].members.configuration.learners)

    return [(LeaderNews, "_nodes_learn", learn)]


@mutation("a leader tells a new voter nothing of what it leads already")
def new_voters_are_not_told() -> Any:
    return [(LeaderNews, "_tell", lambda self, peer: None)]


@mutation("nodes believe no voter about the clocks of others")
def wrong_clocks_are_not_passed_on() -> Any:
    return [(ClockAgreement, "wrong", property(lambda self: self._wrong))]


@mutation("a clock that was wrong once stays wrong in the voters' answers")
def wrong_clocks_stay() -> Any:
    take = ClockAgreement._take

    def adding(self: Any, peer: int, reply: Any) -> None:
        before = self._told.get(peer, ())
        take(self, peer, reply)
        if peer in self._told:
            self._told[peer] += before

    return [(ClockAgreement, "_take", adding)]


@mutation("new voters' clocks count before they were asked")
def clocks_count_before_they_are_asked() -> Any:
    compare = ClockAgreement.compare_with

    def at_once(self: Any, peers: Any, others: Any = ()) -> None:
        self._asked |= frozenset(peers)
        compare(self, peers, others)

    return [(ClockAgreement, "compare_with", at_once)]


@mutation("a leader does not ask its followers whether they keep up")
def followers_are_not_asked() -> Any:
    return [(Maintenance, "_asked", lambda self, metadata: ())]
