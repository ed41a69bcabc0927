"""Mutations of the votes on the metadata: `voter_schedules.py` has what catches them."""

from __future__ import annotations

from typing import Any

from cluster.consensus.configuration import ChangeStep
from cluster.consensus.group import Group
from cluster.consensus.replication import Replicator
from cluster.features import METADATA_LEARNERS, Features
from cluster.metadata import replicas
from cluster.metadata.nodes import NodesView, own_reported
from cluster.metadata.places import Spread
from cluster.metadata.voters import wanted
from cluster.node.replicas import changes, votes
from cluster.node.replicas.changes import ReplicaChanges
from tests.sim.mutations import mutation

# Which schedule must catch which weakness.
CAUGHT_BY = {
    "votes-ignore-racks": "each_rack_has_a_vote",
    "silent-votes-on": "a_silent_voter_loses_its_vote",
    "silent-votes-go-at-once": "silent_voters_lose_their_votes_one_at_a_time",
    "votes-by-an-earlier-term": "a_leader_that_leads_again_hears_the_voters_anew",
    "all-get-a-vote": "three_of_five_nodes_vote",
    "votes-before-the-upgrade": "all_vote_until_the_upgrade",
    "learners-never-told": "who_learns_at_the_upgrade_is_told",
    "learners-not-reported": "three_of_five_nodes_vote",
    "a-learner-that-is-down-votes": "a_learner_that_is_down_gets_no_vote",
    "learners-are-fed-each-entry": "many_commands_cost_a_learner_few_messages",
    "learners-are-not-fed": "many_commands_cost_a_learner_few_messages",
    "who-leaves-votes": "who_leaves_gives_its_vote_away_first",
}


@mutation("votes are given without regard to racks and machines")
def votes_ignore_racks() -> Any:
    def anywhere(nodes: Any, voters: Any, living: Any, spread: Spread, most: int) -> Any:
        return wanted(nodes, voters, living, Spread(), most)

    return [(votes, "wanted", anywhere)]


@mutation("a voter that does not answer keeps its vote")
def silent_votes_on() -> Any:
    def all_live(nodes: Any, voters: Any, living: Any, spread: Spread, most: int) -> Any:
        return wanted(nodes, voters, nodes, spread, most)

    return [(votes, "wanted", all_live)]


@mutation("all voters that do not answer lose their votes before a learner gets one")
def silent_votes_go_at_once() -> Any:
    draw = changes.next_change

    def at_once(now: Any, target: Any, leader: int, lives: Any, *rest: Any) -> Any:
        found, chosen = draw(now, target, leader, lives, *rest), rest[-1]
        silent = [one.node for one in now.voters if one.node not in chosen and not lives(one.node)]
        is_promoted = silent and found is not None and found[0] is ChangeStep.PROMOTE
        return (ChangeStep.DEMOTE, silent[0]) if is_promoted else found

    return [(changes, "next_change", at_once)]


@mutation("a leader judges voters by what it heard in an earlier term")
def votes_by_an_earlier_term() -> Any:
    living = votes.MetadataVotes._living

    def of_all_terms(self: Any, group: Group) -> Any:
        self._term = group.term
        return living(self, group)

    return [(votes.MetadataVotes, "_living", of_all_terms)]


@mutation("each node of a large cluster votes")
def all_get_a_vote() -> Any:
    return [(votes, "wanted", lambda nodes, *rest: tuple(nodes))]


@mutation("votes are taken before all nodes know of learners that stay")
def votes_before_the_upgrade() -> Any:
    is_on = Features.is_on

    def always(self: Features, feature: str) -> bool:
        return feature == METADATA_LEARNERS or is_on(self, feature)

    return [(Features, "is_on", always)]


@mutation("the leader does not repeat what it reported before learners could stay")
def learners_never_told() -> Any:
    look = ReplicaChanges._look_at_metadata

    def once(self: ReplicaChanges, group: Group) -> None:
        view = self._metadata.membership
        if group.members.version != view.own.version or not group.members.learners:
            look(self, group)

    return [(ReplicaChanges, "_look_at_metadata", once)]


@mutation("the metadata does not keep who learns")
def learners_not_reported() -> Any:
    return [(replicas, "own_reported", lambda tables, own, _: own_reported(tables, own, ()))]


@mutation("a learner gets the vote whether it answers or not")
def a_learner_that_is_down_votes() -> Any:
    return [(Group, "why_no_vote", lambda self, learner: "")]


@mutation("a node that leaves keeps its vote as long as it has a replica")
def who_leaves_votes() -> Any:
    choose = votes.MetadataVotes.choose

    def with_leaving(self: Any, group: Group, target: Any, view: NodesView) -> Any:
        view.leaving = ()
        return choose(self, group, target, view)

    return [(votes.MetadataVotes, "choose", with_leaving)]


@mutation("a learner that stays gets each entry and each commit at once")
def learners_are_fed_each_entry() -> Any:
    return [(Replicator, "_keeps_up", lambda self, peer, progress: False)]


@mutation("a learner that stays gets nothing with a heartbeat")
def learners_are_not_fed() -> Any:
    heartbeats = Replicator.heartbeats

    def without(self: Replicator) -> Any:
        kept = {peer for peer, one in self.peers.items() if self._keeps_up(peer, one)}
        return [(peer, one) for peer, one in heartbeats(self) if peer not in kept or not one.data]

    return [(Replicator, "heartbeats", without)]
