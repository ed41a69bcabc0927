"""Clocks and news of leaders of simulated nodes, of this release and of one before it.

A node whose release lacks learners of the metadata compares clocks with all, and tells all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cluster.consensus.group import Group
from cluster.consensus.message import (
    ClockProbe,
    ClockReply,
    LeaderNotice,
    Message,
    NewsMessage,
)
from cluster.features import METADATA_LEARNERS
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.leadership.leaders import Leaders
from cluster.node.leadership.news import LeaderNews
from tests.sim.checker import Violation

if TYPE_CHECKING:
    from tests.sim.node import Node, Process

Send = Callable[[int, list[Message]], None]


def clocks_of(node: Node) -> ClockAgreement:
    peers, bound_ms = set(node.cluster.node_ids) - {node.id}, node.settings.clock_bound_ms
    # In runs without news a release from before the gate stands for any older one.
    kind = OlderClocks if node.settings.news and _is_older(node) else ClockAgreement
    return kind(peers, bound_ms, node.steady, node.wall_ms, node.send)


def news_of(node: Node, process: Process) -> LeaderNews | OlderNews:
    groups, links = process.driver.groups, process.linked_since.keys()
    if _is_older(node):
        return OlderNews(node.id, process.known_leaders, groups, links, node.send)
    features = process.state.features
    return LeaderNews(
        node.id,
        node.incarnation,
        process.known_leaders,
        groups,
        links,
        process.state.is_deleted,
        lambda: features.is_on(METADATA_LEARNERS),
        node.send,
        lambda gid: None,
        node.later,
    )


def _is_older(node: Node) -> bool:
    return METADATA_LEARNERS not in node.release.features


class OlderClocks(ClockAgreement):
    """Asks the voters and all that ask; says nothing of other nodes, and hears nothing of them."""

    def __init__(
        self,
        peers: Collection[int],
        bound_ms: int,
        steady: Callable[[], float],
        wall_ms: Callable[[], int],
        send: Send,
    ) -> None:
        def as_before(peer: int, messages: list[Message]) -> None:
            send(peer, [_without_others(one) for one in messages])

        super().__init__(peers, bound_ms, steady, wall_ms, as_before)

    def compare_with(self, peers: Collection[int], others: Collection[int] = ()) -> None:
        self._asked |= frozenset(peers)
        super().compare_with(peers, {*self._reached, *others})

    def receive(self, peer: int, message: ClockProbe | ClockReply) -> None:
        self._asked |= {peer}
        plain = _without_others(message)
        assert isinstance(plain, ClockProbe | ClockReply)
        super().receive(peer, plain)


def _without_others(message: Message) -> Message:
    return replace(message, wrong=()) if isinstance(message, ClockReply) else message


class OlderNews:
    """Tells all nodes of each leadership, and knows no other news."""

    def __init__(
        self,
        node_id: int,
        leaders: Leaders,
        groups: Mapping[int, Group],
        links: Collection[int],
        send: Send,
    ) -> None:
        self._node_id = node_id
        self._leaders = leaders
        self._groups = groups
        self._links = links
        self._send = send

    def leads(self, gid: int) -> None:
        for peer in list(self._links):
            self._send(peer, [self._notice(gid)])

    def linked(self, peer: int, up: bool) -> None:
        led = [gid for gid, group in self._groups.items() if up and group.is_leader]
        self._send(peer, [self._notice(gid) for gid in led])

    def look(self) -> None:
        return None

    def receive(self, sender: int, message: NewsMessage) -> None:
        if not isinstance(message, LeaderNotice):
            raise Violation(f"node {self._node_id} does not know this of {sender}: {message}")
        self._leaders.announced(message)

    def _notice(self, gid: int) -> LeaderNotice:
        return LeaderNotice(gid, self._groups[gid].term, self._node_id)
