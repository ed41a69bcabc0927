"""Schedules of the votes on the metadata: three of five nodes have one. The metadata is real."""

from __future__ import annotations

from dataclasses import replace

from cluster.consensus.message import Append
from cluster.features import METADATA_LEARNERS, THIS_RELEASE, Release
from cluster.metadata.tables import METADATA_GROUP
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.cluster import register_node
from tests.sim.many_nodes import AT_REST, ManyNodes
from tests.sim.membership.node_schedules import Nodes
from tests.sim.network import split
from tests.sim.schedules import schedule
from tests.sim.stage import GID

BEFORE = replace(THIS_RELEASE, features=THIS_RELEASE.features - {METADATA_LEARNERS})


class Voting(Nodes):
    """Three nodes, which `joining` join; three vote.

    release: of all nodes at first; without the feature all vote.
    """

    def __init__(
        self,
        racks: str = "",
        joining: tuple[int, ...] = (4, 5),
        release: Release = THIS_RELEASE,
        older: tuple[int, ...] = (),
    ) -> None:
        super().__init__(racks=racks, voters=3, release=release, older=older)
        for number in joining:
            assert not self.change(number, mpb.NODE_ACTION_ADD)
            self.until(lambda number=number: number in self.view.own.replicas, f"{number} joins")  # type: ignore[misc]
        if release is THIS_RELEASE:
            self.settle()

    def upgrade(self) -> None:
        """Finalizes the upgrade to this release."""
        self.finalize(THIS_RELEASE)
        self.until(lambda: self.state.features.is_on(METADATA_LEARNERS), "learners may stay")

    @property
    def votes(self) -> set[int]:
        members = self.group(self.leader.id).members
        return {one.node for one in members.configuration.voters}

    def follower(self) -> int:
        """Returns a voter that does not lead."""
        return min(self.votes - {self.leader.id})

    def settle(self) -> None:
        super().settle()
        self.until(
            lambda: {*self.view.learners} == {*self.view.own.replicas} - self.votes,
            f"the metadata knows who votes: {self.view.learners}, {self.votes}",
        )


@schedule
def three_of_five_nodes_vote() -> None:
    """Those that join learn; all of them know all, also after they were down."""
    nodes = Voting()
    assert nodes.votes == {1, 2, 3} and {*nodes.view.learners} == {4, 5}
    for number in (4, 5):
        nodes.node(number).crash("down")
    assert not nodes.change(1, mpb.NODE_ACTION_DRAIN)
    for number in (4, 5):
        nodes.node(number).start()
    nodes.settle()
    if not all(1 in nodes.node(one).running.state.membership.drained for one in (4, 5)):
        raise Violation("a learner has not heard of a change")


@schedule
def a_silent_voter_loses_its_vote() -> None:
    """One is down: a learner votes in its place, and then the cluster bears one more."""
    nodes = Voting()
    for _ in range(2):
        silent = nodes.follower()
        nodes.node(silent).crash("down")
        nodes.until(lambda: silent not in nodes.votes and len(nodes.votes) == 3, "3 vote")  # noqa: B023
    assert not nodes.change(nodes.leader.id, mpb.NODE_ACTION_DRAIN)
    for node in nodes.cluster.nodes.values():
        if not node.alive:
            node.start()
    nodes.settle()


@schedule
def silent_voters_lose_their_votes_one_at_a_time() -> None:
    """Two of five are down, and a learner. Four vote meanwhile: each commit is on three disks."""
    nodes = ManyNodes(8, (), settings=replace(AT_REST, silent=3.0))
    down = {*sorted({*nodes.voters} - {nodes.leader.id})[:2], 6}
    living, counts = {*nodes.cluster.node_ids} - down, set[int]()
    for number in down:
        nodes.node(number).crash("down")

    def is_replaced() -> bool:
        group = nodes.leader.machines[METADATA_GROUP].group
        assert group is not None
        voters = {one.node for one in group.members.configuration.voters}
        counts.add(len(voters))
        return voters == living

    nodes.until(is_replaced, f"{living} vote")
    if counts != {4, 5}:
        raise Violation(f"meanwhile {counts} nodes voted")


@schedule
def a_leader_that_leads_again_hears_the_voters_anew() -> None:
    """It last heard them in its earlier term: one that is silent now keeps its vote for a while."""
    nodes = Voting()
    first = nodes.leader.id
    second, third = sorted(nodes.votes - {first})
    nodes.lead(second, METADATA_GROUP)
    nodes.run(2 * nodes.cluster.settings.silent)
    nodes.node(third).crash("down")
    nodes.lead(first, METADATA_GROUP)
    nodes.run(nodes.cluster.settings.silent / 2)
    if third not in nodes.votes:
        raise Violation(f"{third} was silent for half of the time, and has lost its vote")
    nodes.node(third).start()
    nodes.settle()


@schedule
def each_rack_has_a_vote() -> None:
    """1 and 2 are in one rack: one of them gives its vote to 5, in a rack of its own."""
    nodes = Voting(racks="aabbc")
    nodes.until(lambda: len({"aabbc"[one - 1] for one in nodes.votes}) == 3, "one in each rack")
    nodes.settle()


@schedule
def a_voter_is_removed() -> None:
    """The leader, too: another one votes before it goes."""
    nodes = Voting()
    for number in (nodes.follower(), nodes.leader.id):
        assert not nodes.change(number, mpb.NODE_ACTION_REMOVE)
        nodes.until(lambda: number not in nodes.state.nodes, f"{number} is forgotten")  # noqa: B023
        nodes.settle()
    assert len(nodes.votes) == 3


@schedule
def a_voters_disk_is_lost() -> None:
    """Its empty disk comes back as a learner, or votes again: three do, and hold all."""
    nodes = Voting()
    for number in (nodes.follower(), nodes.leader.id):
        nodes.lose_disk(number)
        assert not nodes.change(number, mpb.NODE_ACTION_REPLACE)
        nodes.until(lambda: nodes.node(number).joining.instance > 0, f"{number} joins")  # noqa: B023
        nodes.settle()


@schedule
def a_learner_that_is_down_gets_no_vote() -> None:
    """A voter and the first learner are down: the other learner votes."""
    nodes = Voting()
    nodes.node(4).crash("down")
    silent = nodes.follower()
    nodes.node(silent).crash("down")
    nodes.until(lambda: 5 in nodes.votes and silent not in nodes.votes, "5 votes")
    for number in (4, silent):
        nodes.node(number).start()
    nodes.settle()


@schedule
def who_leaves_gives_its_vote_away_first() -> None:
    """Its replica of the partition cannot move yet: it votes no more all the same."""
    nodes = Voting()
    number = nodes.follower()
    nodes.hold_changes(GID)
    assert not nodes.change(number, mpb.NODE_ACTION_REMOVE)
    nodes.until(lambda: number not in nodes.votes and len(nodes.votes) == 3, "another one votes")
    assert number in nodes.view.own.replicas
    nodes.let_changes()
    nodes.until(lambda: number not in nodes.state.nodes, "it is forgotten")
    nodes.settle()


@schedule
def all_vote_until_the_upgrade() -> None:
    """Older releases would give a learner its vote: until all nodes know better, all vote."""
    nodes = Voting(release=BEFORE)
    nodes.until(lambda: len(nodes.votes) == 5, f"all vote: {nodes.votes}")
    nodes.run(5.0)
    version = nodes.view.own.version
    if len(nodes.votes) != 5 or nodes.view.learners or version != 4:
        raise Violation(f"{nodes.votes} vote, {nodes.view.learners} learn at version {version}")
    nodes.upgrade()
    nodes.until(lambda: len(nodes.votes) == 3, f"three vote: {nodes.votes}")
    nodes.settle()


@schedule
def who_learns_at_the_upgrade_is_told() -> None:
    """4 is being filled, and stays a learner from then on; no step of its group follows."""
    nodes = Voting(release=BEFORE, joining=())
    assert not nodes.change(4, mpb.NODE_ACTION_ADD)
    nodes.until(lambda: 4 in nodes.view.joining, "4 may join")
    cut = split([4], [1, 2, 3])
    nodes.cluster.network.block(cut, noticed=True)
    nodes.until(lambda: 4 in nodes.view.own.replicas, "4 is a learner")
    assert nodes.view.own.target and not nodes.view.learners
    nodes.upgrade()
    nodes.until(lambda: nodes.view.learners == (4,), "the metadata knows that 4 learns")
    assert not nodes.view.own.target, "nothing is to be done"
    nodes.cluster.network.unblock(cut)
    nodes.settle()
    assert nodes.view.own.version == 1


@schedule
def who_learns_does_not_lead_the_metadata() -> None:
    """All voters are down, one after the other; 4 and 5 wait for them."""
    nodes = Voting()
    voters = nodes.votes
    for number in voters:
        nodes.node(number).crash("down")
    nodes.run(10.0)
    if nodes.cluster.leader(METADATA_GROUP) is not None:
        raise Violation("a learner leads the metadata")
    for number in voters:
        nodes.node(number).start()
    nodes.settle()


@schedule
def many_commands_cost_a_learner_few_messages() -> None:
    """It has them all soon after, and a command after a silence at once."""
    stage = Voting()
    learner = min({*stage.view.own.replicas} - stage.votes)
    told, appends = list[bytes](), list[Append]()

    def tap(sender: int, receiver: int, message: object) -> bool:
        if receiver == learner and isinstance(message, Append):
            appends.append(message)
        return False

    stage.cluster.network.tap = tap
    for _ in range(100):
        stage.cluster.command(register_node(1), told.append)
        stage.run(0.01)
    stage.run(0.3)
    assert len(told) == 100
    if len(appends) > 50:
        raise Violation(f"100 commands in a second cost a learner {len(appends)} messages")
    if stage.group(learner).applied_index != stage.group(stage.leader.id).applied_index:
        raise Violation("the learner has not applied all")
    stage.settle()
