"""News of leaders: tells other nodes which groups this node leads, and passes on their news.

    group led here --LeaderNotice--> its other replicas, voters of the metadata
    each node, each look --LeadersSince--> voters --LeaderChanges--> Leaders

While all nodes vote on the metadata, a leader tells all nodes itself. Where nodes learn, each node
numbers the changes that it hears of, and asks each voter for those after the last number that it
has of the voter. A voter also sends changes to the nodes that asked, without another question. So
a change that was lost, or that a node missed while votes moved, comes with the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from cluster.consensus.group import Group
from cluster.consensus.message import (
    LeaderChanges,
    LeaderNotice,
    LeadersSince,
    Message,
    NewsMessage,
)
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.leadership.leaders import Leaders

WAIT = 0.02  # seconds from a change to the message that has it, and others since
MAX_ROWS = 10_000  # of one message
SPARE = 1000  # groups of deleted partitions that may be kept, and as many more as there are others


class LeaderNews:
    """The news of one node.

    process: a number of this process of the node, which no other one has.
    groups: its replicas. links: nodes whose link is up.
    is_gone(group): its partition was deleted.
    may_learn: whether all nodes know of learners of the metadata that stay, so of these messages.
    heard(group): a leader of the group was announced.
    later(seconds, call): calls once, in this process.
    """

    def __init__(
        self,
        node_id: int,
        process: int,
        leaders: Leaders,
        groups: Mapping[int, Group],
        links: Collection[int],
        is_gone: Callable[[int], bool],
        may_learn: Callable[[], bool],
        send: Callable[[int, list[Message]], None],
        heard: Callable[[int], None],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._node_id = node_id
        self._process = process
        self._leaders = leaders
        self._groups = groups
        self._links = links
        self._is_gone = is_gone
        self._may_learn = may_learn
        self._send = send
        self._heard = heard
        self._later = later
        self._number = 0
        self._changes: dict[int, int] = {}  # group -> number of its last change, rising
        self._most = SPARE  # of them; with more, those of deleted partitions go
        self._told: set[int] = set()  # nodes that were told of all groups led here
        self._askers: dict[int, int] = {}  # node that asks here -> the last number that it has
        self._asked: set[int] = set()  # of these since the last look
        self._is_planned = False
        self._known: dict[int, tuple[int, int]] = {}  # voter -> its process, the last number

    # -- this node's groups -----------------------------------------------------------

    def leads(self, gid: int) -> None:
        """Tell others that this node leads the group."""
        notice = self._notice(gid)
        if self._leaders.announced(notice):
            self._note(gid)
        for peer in self._audience() | {*self._groups[gid].members.peers}:
            self._send(peer, [notice])

    def linked(self, peer: int, up: bool) -> None:
        if not up:
            self._told.discard(peer)
            self._askers.pop(peer, None)
        elif peer in self._audience():
            self._tell(peer)
        else:
            self._send(peer, [self._notice(gid) for gid in self._led(peer)])

    def look(self) -> None:
        """Tell new voters, and ask the voters, periodically."""
        audience = self._audience()
        self._told &= audience
        for peer in sorted(audience - self._told):
            self._tell(peer)
        self._askers = {peer: at for peer, at in self._askers.items() if peer in self._asked}
        self._asked.clear()
        voters = self._voters_to_ask()
        self._known = {peer: at for peer, at in self._known.items() if peer in voters}
        for voter in voters:
            self._send(voter, [LeadersSince(*self._known.get(voter, (0, 0)))])

    def _tell(self, peer: int) -> None:
        self._told.add(peer)
        if led := [self._notice(gid) for gid in self._led()]:
            self._send(peer, [*led])

    def _led(self, peer: int = 0) -> list[int]:
        """Return the groups led here; peer: those with a replica there."""
        return [
            gid
            for gid, group in self._groups.items()
            if group.is_leader and (not peer or peer in group.members.peers)
        ]

    def _notice(self, gid: int) -> LeaderNotice:
        return LeaderNotice(gid, self._groups[gid].term, self._node_id)

    def _audience(self) -> set[int]:
        """Return the linked nodes to tell of each group."""
        linked = {*self._links}
        return linked & {*self._voters()} if self._nodes_learn() else linked

    def _voters_to_ask(self) -> tuple[int, ...]:
        return self._voters() if self._nodes_learn() else ()

    def _nodes_learn(self) -> bool:
        group = self._groups.get(METADATA_GROUP)
        if group is None or not group.members.configuration.learners:
            return False
        return self._may_learn()

    def _voters(self) -> tuple[int, ...]:
        return self._groups[METADATA_GROUP].members.voters

    # -- others' groups ---------------------------------------------------------------

    def receive(self, sender: int, message: NewsMessage) -> None:
        if isinstance(message, LeaderNotice):
            self._take(message)
        elif isinstance(message, LeadersSince):
            is_ours = message.process == self._process
            self._askers[sender] = message.number if is_ours else 0
            self._asked.add(sender)
            self._answer(sender)
        else:
            rows = zip(message.groups, message.terms, message.leaders, strict=True)
            for row in rows:
                self._take(LeaderNotice(*row))
            process, number = self._known.get(sender, (0, 0))
            if process != message.process:
                number = 0
            # Else changes before these were lost, and the next question asks for them.
            if message.since <= number < message.number:
                self._known[sender] = (message.process, message.number)

    def _take(self, notice: LeaderNotice) -> None:
        if not self._is_gone(notice.group) and self._leaders.announced(notice):
            self._note(notice.group)
            self._heard(notice.group)

    def _note(self, gid: int) -> None:
        """Number a change; it goes to those that asked."""
        self._number += 1
        self._changes.pop(gid, None)
        self._changes[gid] = self._number
        if len(self._changes) > self._most:
            self._forget_gone()
        self._plan()

    def _forget_gone(self) -> None:
        """Forget the groups of deleted partitions: nodes would pass them on for ever."""
        for gid in filter(self._is_gone, [*self._changes]):
            del self._changes[gid]
            self._leaders.forget(gid)
        self._most = 2 * len(self._changes) + SPARE

    def _plan(self) -> None:
        if self._askers and not self._is_planned:
            self._is_planned = True
            self._later(WAIT, self._pass_on)

    def _pass_on(self) -> None:
        self._is_planned = False
        for peer in list(self._askers):
            self._answer(peer)

    def _answer(self, peer: int) -> None:
        """Send the node the changes that it lacks, up to MAX_ROWS at a time."""
        since, changed = self._askers[peer], []
        for gid, number in reversed(self._changes.items()):
            if number <= since:
                break
            changed.append(gid)
        if not changed:
            return
        groups = tuple(changed[: -MAX_ROWS - 1 : -1])  # oldest first
        terms, leaders = zip(*map(self._leaders.announcement, groups), strict=True)
        number = self._askers[peer] = self._changes[groups[-1]]
        self._send(peer, [LeaderChanges(self._process, since, number, groups, terms, leaders)])
        if len(changed) > MAX_ROWS:
            self._plan()
