"""Schedules of nine nodes in three threes that share no partition; 1, 2 and 3 vote on the metadata.

`many_weaknesses.py` names the weakness that each of them catches.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from cluster.consensus.configuration import (
    ChangeRefusedError,
    ChangeStep,
    ConfigurationChange,
)
from cluster.consensus.group import Group
from cluster.consensus.message import Append, LeaderChanges
from cluster.metadata.tables import METADATA_GROUP
from tests.sim.checker import Violation
from tests.sim.many_nodes import ManyNodes, in_ranges
from tests.sim.schedules import schedule

SOON = 3.0  # seconds: some looks
DAY_MS = 24 * 3600 * 1000


class Threes(ManyNodes):
    """The nodes 1 to 3, 4 to 6 and 7 to 9 hold two partitions each."""

    def __init__(self) -> None:
        super().__init__(9, in_ranges(9, 6, neighbours=2), voters=3)
        self.all_know()

    def group(self, number: int, gid: int) -> Group:
        found = self.node(number).machines[gid].group
        assert found is not None
        return found

    def held_by(self, number: int) -> int:
        """Returns a partition that the node holds."""
        return next(gid for gid in self.groups() if gid in self.node(number).partitions)

    def hand_over(self, gid: int, number: int) -> None:
        """Makes the node the leader of a partition, or of the metadata."""
        self.until(lambda: self.cluster.hand_over(gid, number), f"{number} leads {gid}")

    def strangers(self) -> set[tuple[int, int]]:
        """Returns the pairs of nodes that share nothing."""
        learners = [one for one in self.cluster.node_ids if one not in self.voters]
        return {(a, b) for a in learners for b in learners if (a - 1) // 3 != (b - 1) // 3}

    def do_all_know(self) -> bool:
        """Tells whether each node knows each leader."""
        groups = (METADATA_GROUP, *self.groups())
        return self.cluster.know_all_leaders(self.cluster.node_ids, groups)

    def all_know(self) -> None:
        self.until(self.do_all_know, "each node knows each leader", SOON)

    def change_votes(self, step: ChangeStep, number: int) -> None:
        """Changes the votes on the metadata by one step."""
        group = self.group(self.leader.id, METADATA_GROUP)
        version = group.members.version

        def is_done() -> bool:
            now = self.group(self.leader.id, METADATA_GROUP)
            with suppress(ChangeRefusedError):
                now.change(ConfigurationChange(step, number, version), lambda outcome: None)
                self.leader.driver.touch(METADATA_GROUP)
            return now.members.version > version

        self.until(is_done, f"{step} of {number}")


@schedule
def nodes_that_share_nothing_exchange_nothing() -> None:
    """At rest, and while a leader hands over; the voters exchange messages with all."""
    threes = Threes()
    gid = threes.held_by(4)
    count = threes.counting()
    for number in (4, 5, 4):
        threes.hand_over(gid, number)
        threes.run(1.0)
    pairs = {(sender, receiver) for _, sender, receiver in count.pairs}
    if wrong := pairs & threes.strangers():
        raise Violation(f"they share nothing, and exchange messages: {sorted(wrong)}")
    assert {(voter, learner) for voter in (1, 2, 3) for learner in range(4, 10)} <= pairs
    threes.all_know()


@schedule
def each_node_knows_each_leader() -> None:
    """One of the leaders is lost, then a voter; both come back."""
    threes = Threes()
    for lost in (4, 1):
        threes.hand_over(threes.held_by(lost), lost)
        threes.all_know()
        threes.node(lost).crash("down")
        threes.until(threes.is_led, "all are led again")
        threes.all_know()
        threes.node(lost).start()
        threes.all_know()


@schedule
def voters_begin_their_numbers_anew() -> None:
    """They count few changes after their starts, less than other nodes had from them before."""
    threes = Threes()
    gid = threes.held_by(7)
    for turn in range(12):
        threes.hand_over(gid, 7 + turn % 2)
    threes.all_know()
    for voter in (1, 2, 3):
        threes.node(voter).crash("down")
        threes.node(voter).start()
        threes.until(lambda: threes.cluster.leader(METADATA_GROUP) is not None, "somebody leads")
        threes.until(threes.is_led, "all are led again")
        threes.all_know()
    threes.hand_over(gid, 9)
    threes.all_know()


@schedule
def a_leader_that_knows_the_old_voters_tells_the_new_ones_later() -> None:
    """7 does not hear that the votes move from 1, 2 and 3 to 4, 5 and 6, and leads meanwhile.

    It keeps its leadership: it asks the new voters for their time before it counts them.
    """
    threes = Threes()
    threes.cluster.takes_steps = False
    gid = threes.held_by(7)
    threes.hand_over(gid, 8)
    threes.all_know()

    def tap(sender: int, receiver: int, message: Any) -> bool:
        is_metadata = isinstance(message, Append) and message.group == METADATA_GROUP
        return receiver == 7 and is_metadata

    threes.cluster.network.tap = tap
    for old, new in ((1, 4), (2, 5), (3, 6)):
        threes.change_votes(ChangeStep.PROMOTE, new)
        threes.hand_over(METADATA_GROUP, new)
        threes.change_votes(ChangeStep.DEMOTE, old)
    threes.run(SOON)  # until the old voters know that nobody asks them any more
    threes.hand_over(gid, 7)
    threes.run(1.0)
    threes.cluster.network.tap = None
    knows = threes.group(7, METADATA_GROUP).members
    threes.until(lambda: set(knows.voters) == {4, 5, 6}, "7 knows the voters")
    threes.all_know()
    leader = threes.cluster.leader(gid)
    if leader is None or leader.id != 7:
        raise Violation("7 does not lead any more: it did not trust its clock")


@schedule
def changes_that_were_lost_are_asked_for() -> None:
    """9 is told of one leader in vain, and then of another one: it misses none."""
    threes = Threes()
    first, second = (gid for gid in threes.groups() if gid in threes.node(4).partitions)
    for gid in (first, second):
        threes.hand_over(gid, 4)
    threes.all_know()
    lost: set[int] = set()

    def tap(sender: int, receiver: int, message: Any) -> bool:
        is_news = isinstance(message, LeaderChanges) and receiver == 9
        is_lost = is_news and first in message.groups and second not in message.groups
        lost.update([sender] if is_lost else [])
        return is_lost

    threes.cluster.network.tap = tap
    threes.hand_over(first, 5)
    threes.until(lambda: lost == {*threes.voters}, "each voter tells of it in vain", SOON)
    threes.hand_over(second, 5)
    threes.all_know()


@schedule
def each_node_knows_a_wrong_clock() -> None:
    """4 shares nothing with 9, and hears of its clock from the voters; then it is right again."""
    threes = Threes()
    for skew_ms, wrong in ((DAY_MS, {9}), (0, set[int]())):
        threes.node(9).wall_skew_ms = skew_ms
        threes.until(
            lambda: all(node.running.clocks.wrong == wrong for node in threes.sound()),  # noqa: B023
            f"all know the wrong clocks {wrong}",
            2 * SOON,
        )


@schedule
def a_leader_knows_whether_its_followers_keep_up() -> None:
    threes = Threes()
    threes.hand_over(threes.held_by(7), 7)
    threes.node(9).running.clocks._is_sick = lambda: True
    threes.until(lambda: 9 in threes.node(7).running.clocks.sick, "7 knows that 9 is sick", SOON)
    assert 9 not in threes.node(4).running.clocks.sick
    threes.node(9).running.clocks._is_sick = lambda: False
    threes.until(lambda: not threes.node(7).running.clocks.sick, "9 is well again", SOON)
