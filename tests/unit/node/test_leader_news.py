"""News of leaders: numbers, what a node is sent after its question, and how much at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.consensus.message import LeaderChanges, LeaderNotice, LeadersSince, Message
from cluster.node.leadership import news as news_module
from cluster.node.leadership.leaders import Leaders
from cluster.node.leadership.news import LeaderNews

PROCESS = 77


class Rig:
    """The news of node 1, which hears of groups of other nodes; node 9 asks."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.heard: list[int] = []
        self.planned: list[Callable[[], None]] = []
        self.gone: set[int] = set()  # groups of deleted partitions
        self.leaders = Leaders({})
        self.news = LeaderNews(
            1,
            PROCESS,
            self.leaders,
            {},
            {9},
            lambda gid: gid in self.gone,
            lambda: True,
            lambda peer, messages: self.sent.extend((peer, one) for one in messages),
            self.heard.append,
            lambda seconds, call: self.planned.append(call),
        )

    def tell(self, *groups: int, term: int = 1) -> None:
        for gid in groups:
            self.news.receive(2, LeaderNotice(gid, term, 2))

    def ask(self, number: int = 0, process: int = PROCESS) -> list[LeaderChanges]:
        return self._answers(lambda: self.news.receive(9, LeadersSince(process, number)))

    def wait(self) -> list[LeaderChanges]:
        planned, self.planned = self.planned, []
        return self._answers(lambda: [call() for call in planned])

    def known(self, voter: int) -> tuple[int, int]:
        return self.news._known.get(voter, (0, 0))

    def _answers(self, act: Callable[[], Any]) -> list[LeaderChanges]:
        self.sent.clear()
        act()
        assert {peer for peer, _ in self.sent} <= {9}
        return [one for _, one in self.sent if isinstance(one, LeaderChanges)]


def test_a_question_is_answered_with_what_came_after_the_number() -> None:
    rig = Rig()
    rig.tell(16, 17, 18)
    assert rig.ask() == [LeaderChanges(PROCESS, 0, 3, (16, 17, 18), (1, 1, 1), (2, 2, 2))]
    assert rig.ask(3) == []
    rig.tell(17, term=5)
    assert rig.ask(3) == [LeaderChanges(PROCESS, 3, 4, (17,), (5,), (2,))]
    assert rig.ask(1) == [LeaderChanges(PROCESS, 1, 4, (18, 17), (1, 5), (2, 2))]


def test_a_number_of_another_process_counts_as_none() -> None:
    rig = Rig()
    rig.tell(16, 17)
    assert [one.groups for one in rig.ask(2, process=PROCESS + 1)] == [(16, 17)]


def test_changes_go_to_who_asked_once_and_together() -> None:
    rig = Rig()
    rig.tell(16)
    assert rig.planned == [], "nobody asks"
    rig.ask()
    rig.tell(17, 18)
    assert len(rig.planned) == 1
    assert [one.groups for one in rig.wait()] == [(17, 18)]
    assert rig.planned == []
    rig.news.linked(9, False)
    rig.tell(19)
    assert rig.planned == []


def test_a_node_that_asks_no_more_is_sent_nothing() -> None:
    rig = Rig()
    rig.ask()
    rig.news.look()
    rig.tell(16)
    assert [one.groups for one in rig.wait()] == [(16,)]
    rig.news.look()
    rig.tell(17)
    assert rig.wait() == []


def test_what_is_known_is_not_news() -> None:
    rig = Rig()
    rig.tell(16, term=4)
    rig.tell(16, term=4)
    rig.tell(16, term=3)
    assert rig.heard == [16]
    assert [one.number for one in rig.ask()] == [1]


def test_news_of_others_are_passed_on() -> None:
    rig = Rig()
    rig.news.receive(3, LeaderChanges(5, 0, 40, (16, 17), (2, 1), (4, 5)))
    assert rig.heard == [16, 17]
    assert rig.leaders.leader_of(16) == (4, 2)
    assert rig.ask() == [LeaderChanges(PROCESS, 0, 2, (16, 17), (2, 1), (4, 5))]


def test_after_a_lost_message_a_voter_is_asked_again_for_what_it_had() -> None:
    """3 votes. Its first three changes are lost on a link that is down in that direction only."""
    rig = Rig()
    assert rig.known(3) == (0, 0)
    rig.news.receive(3, LeaderChanges(5, 3, 4, (19,), (1,), (4,)))
    assert rig.heard == [19], "it is news all the same"
    assert rig.known(3) == (0, 0)
    rig.news.receive(3, LeaderChanges(5, 0, 4, (16, 17, 18, 19), (1,) * 4, (4,) * 4))
    assert rig.heard == [19, 16, 17, 18]
    assert rig.known(3) == (5, 4)
    rig.news.receive(3, LeaderChanges(6, 4, 9, (16,), (2,), (4,)))
    assert rig.known(3) == (5, 4), "of another process the first ones are missing"
    rig.news.receive(3, LeaderChanges(6, 0, 9, (16,), (2,), (4,)))
    assert rig.known(3) == (6, 9)


def test_many_changes_take_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_module, "MAX_ROWS", 2)
    rig = Rig()
    rig.tell(*range(16, 21))
    parts = rig.ask()
    while rig.planned:
        parts += rig.wait()
    assert [one.groups for one in parts] == [(16, 17), (18, 19), (20,)]


def test_groups_of_deleted_partitions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, nodes kept them and told them to each other, also to nodes that started anew."""
    monkeypatch.setattr(news_module, "SPARE", 4)
    rig = Rig()
    for first in range(100, 400, 10):
        rig.tell(*range(first, first + 10))
        rig.gone |= {*range(first + 1, first + 10)}
    kept = [*range(100, 400, 10)]
    (answer,) = rig.ask()
    assert len(answer.groups) <= 2 * len(kept) + 4 + 10, "not 300"
    assert [gid for gid in answer.groups if gid not in rig.gone] == kept
    assert {rig.leaders.leader_of(gid) for gid in kept} == {(2, 1)}
    assert rig.leaders.leader_of(101) == (0, 0)
    rig.heard.clear()
    rig.tell(101, 100, term=2)
    assert rig.heard == [100], "another node still tells of it"
    assert [one.groups for one in rig.ask(answer.number)] == [(100,)]
