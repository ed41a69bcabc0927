"""Trust in wall clocks: compared over round trips, and with the node's own steady clock."""

from __future__ import annotations

import logging

import pytest

from cluster.consensus.message import ClockProbe, ClockReply, Message
from cluster.node.health.clock_agreement import ClockAgreement

BOUND_MS = 1000
DAY_MS = 24 * 3600 * 1000


class World:
    """Nodes 1..n with clocks that a test sets, and a network that takes `delay` each way."""

    def __init__(self, nodes: int, *, delay: float = 0.01) -> None:
        self.now, self.delay = 1000.0, delay
        self.ahead_ms = dict.fromkeys(range(1, nodes + 1), 0)
        self.cut: set[int] = set()
        self.sick: set[int] = set()
        self.sent: list[tuple[int, int, Message]] = []
        self.clocks = {node: self._clocks(node, nodes) for node in self.ahead_ms}

    def _clocks(self, node: int, nodes: int) -> ClockAgreement:
        def send(peer: int, messages: list[Message]) -> None:
            self.sent += [(node, peer, message) for message in messages]

        return ClockAgreement(
            set(range(1, nodes + 1)) - {node},
            BOUND_MS,
            lambda: self.now + 77 * node,  # steady clocks begin anywhere
            lambda: int(self.now * 1000) + self.ahead_ms[node],
            send,
            lambda: node in self.sick,
        )

    def look(self, *nodes: int) -> None:
        """Lets these nodes look, and delivers all messages until there are none."""
        for node in nodes or self.clocks:
            self.clocks[node].look()
        while self.sent:
            self.now += self.delay
            under_way, self.sent = self.sent, []
            for sender, receiver, message in under_way:
                if not self.cut & {sender, receiver}:
                    assert isinstance(message, ClockProbe | ClockReply)
                    self.clocks[receiver].receive(sender, message)

    def agreed(self) -> list[bool]:
        return [clocks.agreed for clocks in self.clocks.values()]


def test_nodes_agree_after_one_round_trip_and_not_before() -> None:
    world = World(3)
    assert world.agreed() == [False] * 3
    assert world.clocks[1].now_ms() == 0
    world.look(1)
    assert world.agreed() == [True] * 3
    assert world.clocks[1].now_ms() == int(world.now * 1000)


@pytest.mark.parametrize(
    ("ahead_ms", "expected"),
    [
        ([0, 900, 0], [True, True, True]),
        ([0, DAY_MS, 0], [True, False, True]),
        ([0, -DAY_MS, 0], [True, False, True]),
        ([0, 1500, 800], [True, True, True]),  # 3 is near both
        ([0, 1500, 3000], [False, False, False]),
        ([0, DAY_MS, 2 * DAY_MS], [False, False, False]),
        ([0, 0, DAY_MS, DAY_MS, DAY_MS], [False, False, True, True, True]),
        ([0, DAY_MS], [False, False]),  # of two, nobody knows which is wrong
    ],
)
def test_a_node_agrees_with_a_majority_or_not(ahead_ms: list[int], expected: list[bool]) -> None:
    world = World(len(ahead_ms))
    world.ahead_ms = dict(enumerate(ahead_ms, 1))
    world.look()
    world.look()
    assert world.agreed() == expected
    assert [clocks.disagrees for clocks in world.clocks.values()] == [not one for one in expected]


def test_the_own_jump_stops_the_time_at_once() -> None:
    world = World(3)
    world.look()
    before = world.clocks[1].now_ms()
    world.ahead_ms[1] = DAY_MS
    assert world.clocks[1].now_ms() == before
    assert world.agreed() == [False, True, True]
    world.look()
    world.look()
    assert world.clocks[2].wrong == {1}
    world.ahead_ms[1] = 0
    assert world.clocks[1].now_ms() >= before
    assert world.agreed() == [True] * 3
    world.look()
    assert world.clocks[2].wrong == set()


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_jump_before_anybody_asked_leaves_a_time_that_was_agreed(nodes: int) -> None:
    """A stamp of 0 would make all producers look idle for decades."""
    world = World(nodes)
    begun = int(world.now * 1000)
    world.look()
    world.ahead_ms[1] = DAY_MS
    assert begun <= world.clocks[1].now_ms() <= int(world.now * 1000)
    assert not world.clocks[1].agreed


def test_a_node_that_hears_nobody_goes_on_with_what_it_knows() -> None:
    world = World(3)
    world.look()
    world.cut = {1}
    world.now += 3600.0
    world.look()
    assert world.agreed()[0]
    world.ahead_ms[1] = 2000
    world.clocks[1].look()
    assert not world.agreed()[0]


def test_an_answer_that_took_too_long_says_nothing() -> None:
    world = World(3, delay=0.3)  # an error of 300 ms, where 250 are allowed
    world.look()
    assert world.agreed() == [False] * 3
    assert not world.clocks[1].disagrees, "unknown is not wrong"


def test_an_older_answer_does_not_replace_a_newer_one() -> None:
    world = World(3)
    world.look()
    old = int((world.now + 77) * 1_000_000) - 100_000
    world.clocks[1].receive(2, ClockReply(old, DAY_MS, False))
    assert abs(world.clocks[1].offsets()[2]) < 0.1


def test_strangers_and_answers_from_the_future_are_not_counted() -> None:
    world = World(3)
    clocks, wall_ms = world.clocks[1], int(world.now * 1000)
    clocks.receive(9, ClockReply(int((world.now + 77) * 1_000_000), wall_ms, False))
    clocks.receive(2, ClockReply(int((world.now + 99) * 1_000_000), wall_ms, False))
    assert not clocks.agreed
    assert clocks.offsets() == {}


def test_a_node_alone_refuses_a_jump_and_follows_small_steps() -> None:
    world = World(1)
    clocks = world.clocks[1]
    assert world.agreed() == [True]
    for _ in range(5):
        world.ahead_ms[1] += 900
        clocks.look()
    assert world.agreed() == [True]
    before = clocks.now_ms()
    world.ahead_ms[1] += DAY_MS
    world.now += 60.0
    assert clocks.now_ms() == before
    clocks.look()
    assert world.agreed() == [False]
    world.ahead_ms[1] -= DAY_MS
    assert clocks.now_ms() == before + 60_000


def test_the_log_says_it_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    world = World(3)
    with caplog.at_level(logging.INFO, "cluster.node.health.clock_agreement"):
        world.ahead_ms[1] = DAY_MS
        for _ in range(3):
            world.look()
        errors = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert len(errors) == 1
        assert "-86400.0" in errors[0].getMessage()
        world.ahead_ms[1] = 0
        caplog.clear()
        for _ in range(3):
            world.look()
    assert [one.getMessage() for one in caplog.records] == [
        "this node's wall clock agrees with a majority's"
    ]


def test_nodes_hear_of_each_other_whether_disk_and_loop_keep_up() -> None:
    world = World(3)
    world.sick.add(1)
    world.look()
    assert [clocks.sick for clocks in world.clocks.values()] == [set(), {1}, {1}]
    world.sick.clear()
    world.look()
    assert [clocks.sick for clocks in world.clocks.values()] == [set()] * 3


def test_nodes_that_are_asked_beside_the_voters_do_not_count() -> None:
    """1 to 3 vote. 4 asks them and its follower 5. 6 hears of wrong clocks from the voters."""
    world = World(6)
    voters = {1, 2, 3}
    for node, clocks in world.clocks.items():
        others = {4, 5, 6} if node in voters else {5} if node == 4 else set()
        clocks.compare_with(voters - {node}, others - {node})
    world.ahead_ms[5] = DAY_MS
    world.sick.add(5)
    for _ in range(3):
        world.look()
    assert world.agreed() == [True] * 4 + [False, True]
    assert [clocks.wrong for clocks in world.clocks.values() if clocks is not world.clocks[5]] == [
        {5}
    ] * 5
    assert [5 in clocks.sick for clocks in world.clocks.values()] == [True] * 4 + [False] * 2
    assert set(world.clocks[4].offsets()) == voters
    assert set(world.clocks[4].round_trips()) == {*voters, 5}
    world.clocks[4].compare_with(voters)
    assert world.clocks[4].sick == set()
    assert set(world.clocks[4].round_trips()) == voters
    world.ahead_ms[5] = 0
    for _ in range(3):
        world.look()
    assert not any(clocks.wrong for clocks in world.clocks.values())


def test_a_node_is_not_asked_for_its_own_question() -> None:
    world = World(3)
    world.clocks[1].compare_with({2})
    world.clocks[1].receive(3, ClockProbe(1))
    world.clocks[1].linked(3, up=True)
    assert [(peer, type(message)) for _, peer, message in world.sent] == [(3, ClockReply)]


def test_new_voters_count_once_they_were_asked() -> None:
    world = World(7)
    clocks = world.clocks[7]
    clocks.compare_with({1, 2, 3})
    world.look()
    clocks.compare_with({4, 5, 6})
    assert clocks.agreed
    assert set(clocks.offsets()) == {1, 2, 3}
    world.look(7)
    clocks.compare_with({4, 5, 6})
    assert clocks.agreed
    assert set(clocks.offsets()) == {4, 5, 6}
    world.cut = {1, 2, 3}
    clocks.compare_with({1, 2, 3})
    clocks.compare_with({1, 2, 3})
    assert not clocks.agreed, "they were asked, and did not answer"


def test_a_node_that_does_not_agree_counts_new_voters_at_once() -> None:
    """It has nothing to lose: two nodes that it was told of at its start decide nothing."""
    world = World(7)
    clocks = world.clocks[7]
    clocks.compare_with({1})
    clocks.compare_with({1, 2, 3, 4})
    world.cut = {2, 3, 4, 5, 6}
    world.look(7, 1)
    assert not clocks.agreed


def test_a_voter_that_is_gone_tells_nothing_of_others() -> None:
    world = World(4)
    clocks = world.clocks[4]
    clocks.compare_with({1, 2})
    world.look(4)
    now_us = int((world.now + 77 * 4) * 1_000_000)
    for voter in (1, 2):
        clocks.receive(voter, ClockReply(now_us, int(world.now * 1000), False, wrong=(3,)))
    clocks.linked(1, up=False)
    assert clocks.wrong == {3}
    clocks.linked(2, up=False)
    assert not clocks.wrong
