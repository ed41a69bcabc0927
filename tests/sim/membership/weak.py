"""Mutations of changed members: bugs that the rules of ADR 0038 keep out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cluster.consensus.group as group_module
from cluster.consensus import election, leader_term, snapshots, survivor
from cluster.consensus.configuration import (
    ChangeStep,
    Configuration,
    ConfigurationChange,
    Members,
    changed,
    pack_configuration,
    unpack_placed,
)
from cluster.consensus.election import Election
from cluster.consensus.group import Group
from cluster.consensus.guard import Guard
from cluster.consensus.journal import Journal
from cluster.consensus.leader_term import LeaderTerm
from cluster.consensus.message import (
    PreVoteReply,
    Snapshot,
    SnapshotError,
    addressed,
    checksum_of,
)
from cluster.consensus.raft import Raft
from cluster.consensus.replication import Replicator
from cluster.consensus.snapshots import Checked, is_held
from cluster.consensus.tombstone import Tombstone
from cluster.metadata import nodes as node_rules
from cluster.metadata import placement, repairs
from cluster.metadata import replicas as replica_rules
from cluster.metadata.balance import plan
from cluster.metadata.nodes import NodesView
from cluster.metadata.registrations import Registration, RegistrationClaim, is_put_back
from cluster.metadata.state import MetadataState
from cluster.node.membership import known_nodes, welcome
from cluster.node.membership.find_cluster import Admission
from cluster.node.membership.known_nodes import OtherNodes
from cluster.node.replicas import balance as balancing
from cluster.node.replicas import changes as replica_changes
from cluster.node.replicas import node_changes
from cluster.node.replicas.repairs import Repairs
from cluster.node.replicas.replicas import Replicas
from cluster.transport.hellos import Acceptance
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from tests.sim.joining import Joining
from tests.sim.membership import many_weaknesses, rest_weaknesses, weak_learners, weak_voters
from tests.sim.mutations import mutation
from tests.sim.registering import Registering

# Which schedule must catch which weakness.
CAUGHT_BY = {
    **many_weaknesses.CAUGHT_BY,
    **rest_weaknesses.CAUGHT_BY,
    **weak_learners.CAUGHT_BY,
    **weak_voters.CAUGHT_BY,
    "changes-overlap": "one_change_at_a_time",
    "waiting-change-forgotten": "a_change_waits_behind_much_else",
    "stands-unconfigured": "nobody_stands_with_an_unapplied_configuration",
    "commit-not-stored": "a_restart_knows_the_configuration_before",
    "lone-vote-not-durable": "a_lone_voter_leads_once_its_own_vote_is_durable",
    "learners-count": "votes_of_learners_do_not_count",
    "all-count": "votes_of_removed_replicas_do_not_count",
    "removed-leads-on": "a_leader_that_is_removed_hands_over",
    "removed-just-stops": "a_leader_that_is_removed_hands_over",
    "last-voter-removed": "of_two_voters_none_goes_without_the_other",
    "silent-tombstone": "who_was_removed_proves_it",
    "tombstone-forgotten": "a_tombstone_outlives_a_restart",
    "refused-by-what-is-known": "an_older_snapshot_than_what_is_known_is_taken",
    "instances-mixed-up": "an_older_instance_does_not_vote",
    "removed-by-older": "a_learner_behind_the_logs_start_gets_a_snapshot",
    "strangers-ignored": "who_is_not_known_is_voted_for",
    "handed-over-early": "leadership_goes_to_who_has_the_configuration_in_force",
    "polls-prove-nothing": "who_was_removed_unheard_learns_it_from_an_answer_to_its_poll",
    "snapshot-without-configuration": "a_snapshot_carries_the_configuration",
    "metadata-instance-ignored": "a_lost_disk_is_replaced",
    "lost-replicas-opened": "an_empty_disk_holds_nothing_that_the_lost_one_held",
    "leaving-joins": "a_node_that_is_being_removed_gets_no_new_directory",
    "given-up-joins": "a_directory_that_was_given_up_does_not_join_again",
    "joins-at-once": "a_new_directory_waits_until_the_old_replica_is_removed",
    "forgotten-at-once": "a_node_that_left_is_forgotten_when_all_know",
    "removal-taken-back": "a_removal_is_taken_back_too_late",
    "emptied-in-place": "a_damaged_replica_is_never_the_voter_that_it_was",
    "put-back-unnoticed": "a_directory_that_was_put_back_elects_nobody",
    "takes-part-unregistered": "a_peer_that_has_not_heard_of_a_start_is_no_way_in",
    "begun-registrations-forgotten": "a_start_that_died_before_it_was_confirmed_is_known",
    "group-id-reused": "a_topic_gets_more_partitions_while_a_node_is_away",
    "counted-on-one-replica": "a_topic_gets_more_partitions_while_a_node_is_away",
    "expectation-ignored": "a_topic_gets_more_partitions_while_a_node_is_away",
    "leader-dropped": "replicas_become_one_and_three_again",
    "balance-over-moves": "balances_end_and_keep_to_their_limits",
    "balance-without-limit": "balances_end_and_keep_to_their_limits",
    "ended-beside-a-move": "a_balance_does_not_end_beside_a_move",
    "first-damaged-only": "two_of_three_are_damaged_and_one_comes_back",
    "lone-voter-stops-for-a-learner": "the_only_voter_cannot_read_for_a_learner",
    "balance-ignores-racks": "balances_keep_partitions_spread",
    "removal-ignores-racks": "a_leaving_nodes_replica_stays_in_its_rack",
    "ended-by-an-old-plan": "a_balance_does_not_end_on_a_plan_from_before",
    "behind-judges": "who_was_away_does_not_judge",
    "behind-judges-starts": "who_was_away_knows_registrations_of_another_directory",
    "behind-closes-ways": "who_joined_and_starts_alone_is_found",
    "told-of-those-up": "who_joins_is_told_of_who_is_away",
    "only-newer-heard": "who_joined_and_starts_alone_is_found",
    "said-by-itself-only": "who_never_said_where_it_is_is_let_in",
    "addresses-forgotten": "who_joined_through_a_node_that_is_gone_finds_the_others",
    "removed-is-a-stranger": "a_node_that_was_removed_while_away_ends",
    "put-back-let-in": "a_directory_that_was_put_back_does_not_elect_the_metadata",
    "rest-not-asked": "who_is_left_is_a_majority_that_answers",
    "rest-far-behind": "who_is_left_holds_what_is_committed",
    "dead-gets-a-vote": "a_learner_that_does_not_answer_gets_no_vote",
    "both-go-alone": "of_two_that_are_gone_neither_goes_on_alone",
    "outvoted-goes-alone": "who_may_be_outvoted_does_not_go_on_alone",
    "lost-metadata-forgotten": "of_two_nodes_one_disk_is_lost",
    "those-of-before-forgotten": "those_of_before_do_not_decide_beside_one_alone",
    "excluded-still-heard": "a_late_answer_of_who_is_excluded_counts_nothing",
    "nobody-goes-alone": "of_two_one_disk_is_lost",
    "moved-unheard": "a_grown_cluster_moves_at_once",
    "asked-once": "a_grown_cluster_moves_at_once",
    "silence-knows-nothing": "two_wiped_nodes_do_not_found_again_while_the_third_is_down",
    "founding-from-a-hello": "who_hears_of_a_cluster_is_none_of_its_voters",
    "admitted-again": "who_hears_of_a_cluster_is_none_of_its_voters",
    "founds-without-listening": "the_first_node_of_a_grown_cluster_does_not_found_again",
    "given-up-by-older-copies": "of_two_replacements_at_once_the_second_is_refused",
    "made-anew-for-ever": "a_replica_that_is_damaged_again_and_again_stays_where_it_is",
}


@mutation("R1: changes are proposed while another is under way")
def changes_overlap() -> Any:
    def change(self: LeaderTerm, change: Any, done: Any) -> None:
        now = self._members.configuration
        self.proposals.propose(pack_configuration(changed(now, change)), done)

    return [(LeaderTerm, "change", change)]


@mutation("R1: a change that waits to be appended is forgotten with the first slice before it")
def waiting_change_forgotten() -> Any:
    append = LeaderTerm._append_proposals

    def and_forget(self: LeaderTerm) -> None:
        append(self)
        self._change_queued = False

    return [(LeaderTerm, "_append_proposals", and_forget)]


@mutation("R2: a replica stands with a configuration that is committed and not in force")
def stands_unconfigured() -> Any:
    return [(Raft, "is_configured", True)]


@mutation("R3: the commit index is not stored with a configuration")
def commit_not_stored() -> Any:
    return [(Journal, "save_commit", lambda self, index: None)]


@mutation("a lone voter leads before its own vote is durable")
def lone_vote_not_durable() -> Any:
    return [(Raft, "leads", property(lambda self: self.core.is_leader))]


@mutation("R4: the votes of learners count")
def learners_count() -> Any:
    return [(Members, "counts", Members.is_member)]


@mutation("R4: the votes of all count")
def all_count() -> Any:
    return [(Members, "counts", lambda self, node, instance: True)]


@mutation("R5: a leader that was removed leads on")
def removed_leads_on() -> Any:
    return [(LeaderTerm, "leave", lambda self: None)]


@mutation("R5: a leader that was removed hands over to nobody")
def removed_just_stops() -> Any:
    return [(LeaderTerm, "best_successor", lambda self, up: 0)]


@mutation("R6: the last voter may be removed")
def last_voter_removed() -> Any:
    def any_removal(now: Configuration, change: ConfigurationChange) -> Configuration:
        if change.step is ChangeStep.REMOVE and len(now.voters) == 1:
            return Configuration(now.version + 1, (), now.learners)
        return changed(now, change)

    unasked = (LeaderTerm, "_check_left", lambda self, after: None)
    return [(leader_term, "changed", any_removal), unasked]


@mutation("R7: who was removed is silent")
def silent_tombstone() -> Any:
    return [(Tombstone, "answer", lambda self, message: None)]


@mutation("R7: a replica that was removed is opened again")
def tombstone_forgotten() -> Any:
    def delete(self: Replicas, gid: int, tombstone: Any = None) -> None:
        before(self, gid)

    before = Replicas.delete
    return [(Replicas, "delete", delete)]


@mutation("R8: a snapshot is refused if a newer configuration is known, not in force")
def refused_by_what_is_known() -> Any:
    def check(config: Any, raft: Raft, checked: Checked) -> bool:
        version, snapshot = 0, checked.snapshot
        if snapshot.configuration:
            version = unpack_placed(snapshot.configuration).configuration.version
        if version < raft.journal.configurations[-1].configuration.version:
            raise SnapshotError("it is older than what is known")
        return is_held(config, raft, checked)

    return [(group_module, "is_held", check)]


@mutation("a node's replica is taken for the one that was there before")
def instances_mixed_up() -> Any:
    receive = Group._receive

    def any_instance(self: Group, sender: int, message: Any) -> None:
        if message.to_instance != self.config.instance:
            message = addressed(message, message.from_instance, self.config.instance)
        receive(self, sender, message)

    return [
        (Group, "_receive", any_instance),
        (Members, "may_vote", True),
        (Members, "counts", lambda self, node, instance: node in self.voters),
    ]


@mutation("a replica takes itself for removed by a configuration from before it was added")
def removed_by_older() -> Any:
    take = Members.take

    def any_version(self: Members, placed: Any) -> None:
        take(self, placed)
        held = self._instances.get(self.node) == self.instance
        self.is_removed = not held

    return [(Members, "take", any_version)]


@mutation("who is in no known configuration is not voted for")
def strangers_ignored() -> Any:
    vote, poll = Guard.vote, Election.on_pre_vote

    def known_vote(self: Guard, sender: int, message: Any) -> None:
        if sender in self._members.peers:
            vote(self, sender, message)

    def known_poll(self: Election, now: float, sender: int, message: Any) -> Any:
        if sender in self._members.peers:
            return poll(self, now, sender, message)
        return PreVoteReply(message.group, self._core.term, False)

    return [(Guard, "vote", known_vote), (Election, "on_pre_vote", known_poll)]


@mutation("leadership is handed to who has not the configuration in force")
def handed_over_early() -> Any:
    return [(LeaderTerm, "_knows_configuration", lambda self, peer: peer in self._members.voters)]


@mutation("an answer to a poll proves nothing")
def polls_prove_nothing() -> Any:
    def nothing(*proof: Any) -> None:
        """Takes no proof."""

    return [(election, "take_proof", nothing)]


@mutation("a snapshot is sent without its configuration")
def snapshot_without_configuration() -> Any:
    made = snapshots.base_reading

    def without(group: int, raft: Raft, peer: int) -> Callable[[], Snapshot]:
        sound = made(group, raft, peer)()
        checksum = checksum_of(group, sound.index, sound.index_term, sound.state)
        return lambda: replace(sound, configuration=b"", checksum=checksum)

    return [(group_module, "base_reading", without)]


# -- nodes --------------------------------------------------------------------------------------


@mutation("a directory that joins is not given its instance")
def metadata_instance_ignored() -> Any:
    opened = Replicas.open_metadata

    def without(self: Replicas, members: Any, machine: Any, instance: int = 0) -> Group:
        return opened(self, members, machine)

    return [(Replicas, "open_metadata", without)]


@mutation("an empty directory opens what the lost one held")
def lost_replicas_opened() -> Any:
    def shall_hold(self: Replicas, record: Any, *, admitted: bool) -> bool:
        return self._settings.node_id in record.replicas

    return [(Replicas, "_shall_hold", shall_hold)]


@mutation("a new directory of a node that is being removed joins, only to be removed")
def leaving_joins() -> Any:
    return [(NodesView, "awaits", lambda self, node: node in self.expected)]


@mutation("a directory that joined before is taken for the new one")
def given_up_joins() -> Any:
    ask = welcome.welcome

    def forgets(join: pb.Join, *known: Any) -> Any:
        join.instance = 0
        return ask(join, *known)

    return [(known_nodes, "welcome", forgets)]


@mutation("a new directory joins while the old one's replica may still count")
def joins_at_once() -> Any:
    def join(tables: Any, command: Any) -> bool:
        tables.expected.discard(command.node_id)
        tables.joining.add(command.node_id)
        tables.directories[command.node_id] = command.directory_id
        return True

    return [(node_rules, "join", join)]


@mutation("a removed node is forgotten while others may need its word")
def forgotten_at_once() -> Any:
    return [(node_changes, "_all_know", lambda group: True)]


@mutation("a removal is taken back after the replica has gone")
def removal_taken_back() -> Any:
    def reported(tables: Any, own: Any) -> bool:
        tables.joining -= {*own.replicas}
        changed, tables.own = own != tables.own, own
        return bool(changed)

    return [(replica_rules, "own_reported", reported)]


# -- damage -------------------------------------------------------------------------------------


@mutation("a damaged replica is emptied in place, and votes and acknowledges on")
def emptied_in_place() -> Any:
    def stopped(self: Repairs, gid: int, instance: int) -> None:
        if gid in self._replicas.by_group:
            self._replicas.delete(gid)
            self._replicas.incomplete.add(gid)
        self._replicas._context.driver.touch(gid)

    look = Repairs.look

    def look_again(self: Repairs) -> None:
        look(self)
        self._replicas.reconcile()

    return [(Repairs, "_stopped", stopped), (Repairs, "look", look_again)]


@mutation("a replica that is damaged again and again is made anew without a limit")
def made_anew_for_ever() -> Any:
    return [(repairs, "MAX_REPAIRS", 100)]


# -- put-back directories ----------------------------------------------------------------------


@mutation("a directory that was put back from a copy is let in")
def put_back_unnoticed() -> Any:
    def taken(node: int, last: Any, command: Any) -> Any:
        return (
            Registration(command.registration, 1, command.incarnation)
            if command.registration
            else last
        )

    return [(node_rules, "registered", taken), (node_rules, "is_put_back", lambda *claim: False)]


@mutation("a node takes part before its start is known to the cluster")
def takes_part_unregistered() -> Any:
    return [(Registering, "says_so", lambda self: True)]


@mutation("what a start has begun to register is forgotten by the next one")
def begun_registrations_forgotten() -> Any:
    started = Registering.started

    def forgetful(self: Registering) -> None:
        self.stored = replace(self.stored, begun=self.stored.known)
        started(self)

    return [(Registering, "started", forgetful)]


# -- sizes of topics ---------------------------------------------------------------------------


@mutation("the groups of partitions that are added are given out again")
def group_id_reused() -> Any:
    add = replica_rules._add_partitions

    def forgetful(tables: Any, command: Any, now_ms: int) -> bool:
        before = tables.next_group_id
        changed = add(tables, command, now_ms)
        tables.next_group_id = before
        return changed

    return [(replica_rules, "_add_partitions", forgetful)]


@mutation("the first replica that adds partitions is the only one")
def counted_on_one_replica() -> Any:
    add, done = replica_rules._add_partitions, set()

    def once(tables: Any, command: Any, now_ms: int) -> bool:
        if command.expected_partitions in done:
            return True
        done.add(command.expected_partitions)
        return add(tables, command, now_ms)

    return [(replica_rules, "_add_partitions", once)]


@mutation("partitions are added whatever number the topic has by then")
def expectation_ignored() -> Any:
    add = replica_rules._add_partitions

    def trusting(tables: Any, command: Any, now_ms: int) -> bool:
        known = tables.topics.get(command.name)
        command.expected_partitions = len(known.partitions) if known is not None else 0
        return add(tables, command, now_ms)

    return [(replica_rules, "_add_partitions", trusting)]


@mutation("fewer replicas are the first ones, whoever leads")
def leader_dropped() -> Any:
    def first_ones(self: Any, record: Any, count: int, leader: int) -> tuple[int, ...]:
        others = [node for node in record.replicas if node != leader] or [leader]
        return tuple(self._filled(others[:count], count))

    return [(placement._Load, "resize", first_ones)]


# -- balances ----------------------------------------------------------------------------------


@mutation("a balance moves what an operator moves by then")
def balance_over_moves() -> Any:
    before = replica_rules.retargeted

    def trusting(record: Any, command: Any, nodes: Any) -> Any:
        if not command.for_balance:
            return before(record, command, nodes)
        found = before(replace(record, target=()), command, nodes)
        return replace(found, before_balance=record.replicas)

    return [(replica_rules, "retargeted", trusting)]


@mutation("a balance moves all at once")
def balance_without_limit() -> Any:
    def unlimited(records: Any, nodes: Any, sizes: Any, limit: int, *rest: Any) -> Any:
        return plan(records, nodes, sizes, 1000, *rest)

    return [(balancing, "plan", unlimited)]


@mutation("a balance ignores racks")
def balance_ignores_racks() -> Any:
    def without(records: Any, nodes: Any, sizes: Any, limit: int, *rest: Any) -> Any:
        return plan(records, nodes, sizes, limit)

    return [(balancing, "plan", without)]


@mutation("a leaving node's replicas go to the least loaded node of any rack")
def removal_ignores_racks() -> Any:
    before = node_changes.moves
    return [(node_changes, "moves", lambda *args: before(*args[:4]))]


@mutation("a balance ends by a plan from before partitions were moved")
def ended_by_an_old_plan() -> Any:
    change = replica_rules._change_balance

    def whatever(tables: Any, command: Any) -> bool:
        command.expected_layout = 0
        return change(tables, command)

    return [(replica_rules, "_change_balance", whatever)]


@mutation("a balance ends beside a move by hand")
def ended_beside_a_move() -> Any:
    before = balancing.Balancing.begin

    def begin(self: balancing.Balancing, moves: balancing.Moves) -> None:
        if moves or not self.is_due or any(one.before_balance for one in self._records()):
            return before(self, moves)
        end = mpb.ChangeBalance(balancing=False, expected_layout=self._layout)
        return self._ask(mpb.MetadataCommand(change_balance=end))

    return [(balancing.Balancing, "begin", begin)]


# -- nodes that may or may not speak -----------------------------------------------------------


@mutation("who is behind judges a newer directory by what it knows")
def behind_judges() -> Any:
    known = MetadataState.directory_of
    return [(MetadataState, "directory_of", lambda self, node, instance=0: known(self, node))]


@mutation("who is behind judges a start of a newer directory by those of the old one")
def behind_judges_starts() -> Any:
    def judge(self: NodesView, node: int, directory: int, claim: RegistrationClaim) -> str:
        return "put back" if is_put_back(self.registration_of(node), claim) else ""

    return [(NodesView, "put_back", judge)]


@mutation("who is behind closes the way of nodes that it does not know")
def behind_closes_ways() -> Any:
    follow = OtherNodes.follow

    def by_what_is_known(self: OtherNodes) -> None:
        self._said_version = 0
        follow(self)

    return [
        (OtherNodes, "follow", by_what_is_known),
        (OtherNodes, "heard_of", lambda self, hello: None),
    ]


@mutation("a node that starts goes by no address of its own copy of the metadata")
def addresses_forgotten() -> Any:
    follow = OtherNodes.follow

    def by_what_it_is_told(self: OtherNodes) -> None:
        follow(self)
        for node in {*self._addresses} - {*self._said, *self._named}:
            del self._addresses[node]
        self._peers.connect_to(self._addresses)

    return [(OtherNodes, "follow", by_what_it_is_told)]


@mutation("a node that was removed is told nothing")
def removed_is_a_stranger() -> Any:
    def is_stranger(self: Acceptance, hello: Any) -> bool:
        return hello.node_id not in self._peers

    return [(Acceptance, "_is_stranger", is_stranger)]


@mutation("a node that joins is told of nodes that are up, and takes no other's word")
def told_of_those_up() -> Any:
    welcome, heard_of = OtherNodes.welcome, OtherNodes.heard_of

    def heard_if_newer(self: OtherNodes, hello: Any) -> None:
        """Hears a Hello if it is newer; else a node it was not told of would speak for itself."""
        if hello.instance > self._metadata.membership.own.version:
            heard_of(self, hello)

    def only_up(self: OtherNodes, join: Any) -> Any:
        answer = welcome(self, join)
        for node in set(answer.peers) - {*self._peers.linked_since, self._config.node_id}:
            del answer.peers[node]
        return answer

    return [(OtherNodes, "welcome", only_up), (OtherNodes, "heard_of", heard_if_newer)]


@mutation("only newer directories are heard of")
def only_newer_heard() -> Any:
    heard_of = OtherNodes.heard_of

    def heard_if_newer(self: OtherNodes, hello: Any) -> None:
        if hello.instance > self._metadata.membership.own.version:
            heard_of(self, hello)

    return [(OtherNodes, "heard_of", heard_if_newer)]


@mutation("each node says where it is, and nobody for it")
def said_by_itself_only() -> Any:
    say = OtherNodes._say

    def say_own(self: OtherNodes, node: int, *place: Any) -> None:
        if node == self._config.node_id:
            say(self, node, *place)

    return [(OtherNodes, "_say", say_own)]


@mutation("peers let in a directory that was put back")
def put_back_let_in() -> Any:
    return [(NodesView, "put_back", lambda self, *claimed: "")]


@mutation("a replica goes though the others cannot commit without it")
def rest_not_asked() -> Any:
    return [(LeaderTerm, "_check_left", lambda self, after: None)]


@mutation("a replica goes though the others hold little of what is committed")
def rest_far_behind() -> Any:
    def is_fit(self: LeaderTerm, node: int) -> bool:
        return node == self._members.node or self.is_responsive(node)

    return [(LeaderTerm, "_is_fit", is_fit)]


@mutation("a learner that does not answer becomes a voter")
def dead_gets_a_vote() -> Any:
    return [(LeaderTerm, "is_responsive", lambda self, peer: True)]


@mutation("who is gone itself goes on alone")
def both_go_alone() -> Any:
    def is_survivor(members: Members, gone: Any) -> bool:
        other = survivor.other_of_two(members)
        return other is not None and not members.is_alone and other[:2] in gone

    return [(group_module, "is_survivor", is_survivor)]


@mutation("who may be outvoted goes on alone")
def outvoted_goes_alone() -> Any:
    return [(group_module, "who_else_decides", lambda members, configurations: "")]


@mutation("of two voters none goes on without the other")
def nobody_goes_alone() -> Any:
    return [(Group, "exclude_lost", lambda self, gone: "")]


@mutation("after a restart nothing is known of the metadata's replica that is lost")
def lost_metadata_forgotten() -> Any:
    return [(NodesView, "lost", ())]


@mutation("who is excluded is a member as before")
def excluded_still_heard() -> Any:
    def exclude_other(self: Members) -> None:
        self.voters, self.peers, self.majority = (), self.learners, 1

    return [(Members, "exclude_other", exclude_other)]


@mutation("who goes on alone does not ask who decided before")
def those_of_before_forgotten() -> Any:
    who_else = survivor.who_else_decides

    def of_later(members: Members, configurations: Any) -> str:
        later = [one for one in configurations if one.index >= members.placed.index]
        said = who_else(members, later)
        return "" if "of before" in said else said

    return [(group_module, "who_else_decides", of_later)]


@mutation("what ends without a node is asked before its replacement is proposed, and not after")
def given_up_by_older_copies() -> Any:
    return [(node_rules, "_ended", lambda tables, node: [])]


@mutation("a node that does not answer is taken for one that knows no founding")
def silence_knows_nothing() -> Any:
    may_found = Admission._may_found

    def founds(self: Any, now: float, answers: Any) -> bool:
        return may_found(self, now, {at: answer or pb.Welcome() for at, answer in answers.items()})

    return [(Admission, "_may_found", founds)]


@mutation("a node without data takes the founding that it hears for its own")
def founding_from_a_hello() -> Any:
    def heard_of(self: Any, hello: pb.Hello) -> None:
        if not self._directory.founding:
            self._directory.note_founding(hello.members, hello.founding)

    return [(Admission, "heard_of", heard_of)]


@mutation("each directory is admitted of a node of which the metadata here knows none")
def admitted_again() -> Any:
    def behind(self: Any, node: int, instance: int = 0) -> int:
        return 0

    return [(Joining, "admit", lambda self, number, directory: True),
            (MetadataState, "directory_of", behind)]  # fmt: skip


@mutation("a node that names nobody founds at once")
def founds_without_listening() -> Any:
    return [(Admission, "heard_of", lambda self, hello: None)]


# -- damage --------------------------------------------------------------------------------------


@mutation("a leader looks at the first damaged replica only, and no mark goes")
def first_damaged_only() -> Any:
    draw = replica_changes.next_change

    def first(now: Any, target: Any, leader: int, lives: Any, lost: Any, *rest: Any) -> Any:
        damaged, votes = rest
        found = draw(now, target, leader, lives, lost, damaged[:1], votes)
        return None if damaged and found != (ChangeStep.REMOVE, damaged[0][0]) else found

    return [(replica_changes, "next_change", first), (Repairs, "_sound", lambda self, gid: None)]


@mutation("the only voter stops when it cannot read an entry for a learner")
def lone_voter_stops_for_a_learner() -> Any:
    def readable(self: Replicator, progress: Any, last: int) -> Any:
        return self._append(progress, last, may_read=True)

    return [(Replicator, "_readable", readable)]


@mutation("where a node is now is believed only of the metadata")
def moved_unheard() -> Any:
    return [(OtherNodes, "_tell", lambda self, node, address: None)]


@mutation("a node that nobody leads does not ask again where the others are")
def asked_once() -> Any:
    return [(OtherNodes, "is_lost", lambda self, now: False)]
