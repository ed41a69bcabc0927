"""Port to pysyncobj: the only file that touches its private names.

pysyncobj does terms, votes, elections, the follower's log and the commit index. Everything with a
side effect is cut off here:

    network  its Transport is replaced by `_Outbox`, which hands over dicts
    disk     its journal is ours, handed through the configuration
    time     `monotonicTime` reads the clock of the core that is being entered
    chance   `random` likewise
    apply    committed entries are not run by it, so nothing is unpickled
    sending  `replication.py` decides which entries go to each follower

docs/adr/0001 says why sending and applying moved out of the core. The version
is pinned in pyproject.toml; tests/unit/consensus/test_port.py asserts that each borrowed
name still exists.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol

from pysyncobj import syncobj as _syncobj
from pysyncobj.config import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

NO_OP = b"\x01"  # the entry that pysyncobj appends when it becomes leader
FOLLOWER, CANDIDATE, LEADER = 0, 1, 2

BORROWED = (
    "raftState",
    "raftCurrentTerm",
    "raftLeader",
    "raftCommitIndex",
    "raftLastApplied",
    "raftMatchIndex",
    "raftElectionDeadline",
    "newAppendEntriesTime",
    "lastResponseTime",
    "raftNextIndex",
    "otherNodes",
    "connectedNodes",
    "sendAppendEntries",
    "applyLogEntries",
    "tryLogCompaction",
    "onMessageReceived",
    "onNodeConnected",
)

Clock = Callable[[], float]


class CoreJournal(Protocol):
    """Log interface that the core expects. Positions are relative to the first entry.

    Entries are (command, index, term); new ones come as (command, index, term, checksum). The core
    reads index and term only: command may be empty.
    """

    @property
    def durable_index(self) -> int: ...
    def term_at(self, index: int) -> int: ...
    def add(self, command: bytes, idx: int, term: int, checksum: int | None = None) -> None: ...
    def deleteEntriesFrom(self, entryFrom: int) -> None: ...  # noqa: N802, N803
    def __getitem__(self, item: Any) -> Any: ...
    def __len__(self) -> int: ...


class _Ambient:
    """Clock and randomness of the core that is running now.

    pysyncobj calls module-level functions; a process may hold cores of many
    nodes (the simulator does), so each entry into a core sets these first.
    """

    clock: Clock = staticmethod(lambda: 0.0)
    rng: _random.Random = _random.Random(0)


def _monotonic() -> float:
    return _Ambient.clock()


class _Randomness:
    @staticmethod
    def random() -> float:
        return _Ambient.rng.random()


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """Messages arrive through `Core.deliver`, so there is nothing to poll."""


_syncobj.monotonicTime = _monotonic
_syncobj.random = _Randomness
_syncobj.createJournal = lambda journal: journal
_syncobj.createPoller = lambda kind: _NoPoller()
_syncobj.PIPE_NOTIFIER_ENABLED = False


class _Outbox(Transport):  # type: ignore[misc]
    """Collector of the core's messages, as (receiver id, dict)."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.sent: list[tuple[int, dict[str, Any]]] = []

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        """Drops acknowledgements of appends: the guard makes them, after the sync."""
        if message["type"] != "next_node_idx":
            self.sent.append((node.id, message))
        return True

    def destroy(self) -> None:
        self.sent.clear()


def _alias(name: str) -> Any:
    """Gives an attribute of the core a name of ours."""
    return property(attrgetter(name), lambda core, value: setattr(core, name, value))


class Core(_syncobj.SyncObj):  # type: ignore[misc]
    """One replica's Raft state, without IO.

    journal:   an object with CoreJournal's methods, at least one entry long.
    applied:   index of the last entry that the caller's state covers.
    timeouts:  (min, max) election timeout in seconds.
    """

    # The core's constructor evaluates every property before it sets this one.
    _SyncObj__newAppendEntriesTime = 0.0

    def __init__(
        self,
        self_id: int,
        peer_ids: Iterable[int],
        journal: CoreJournal,
        *,
        applied: int,
        clock: Clock,
        rng: _random.Random,
        election_timeout: tuple[float, float],
        heartbeat: float,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._journal = journal
        # A majority holds all up to here, if this leader's unsynced entries count.
        self._counted_index = 0
        self._outbox = _Outbox()
        # Every peer ever heard of: a non-voter may be followed and voted for, too.
        self._nodes: dict[int, Node] = {}
        self._self_id = self_id
        voters = [self._node(peer) for peer in peer_ids]
        self._enter()
        conf = SyncObjConf(
            autoTick=False,
            journalFile=journal,
            raftMinTimeout=election_timeout[0],
            raftMaxTimeout=election_timeout[1],
            appendEntriesPeriod=heartbeat,
            connectionTimeout=max(3.5, election_timeout[1]),
            leaderFallbackTimeout=election_timeout[0],
            commandsWaitLeader=False,
            appendEntriesUseBatch=True,
        )
        super().__init__(Node(self_id), voters, conf, transport=self._outbox)
        self._SyncObj__raftLastApplied = applied
        # A link that is down shows as silence, which Raft handles by itself.
        for node in voters:
            self._SyncObj__onNodeConnected(node)
        self.send_due = False

    def _node(self, node_id: int) -> Node:
        node = self._nodes.get(node_id)
        if node is None:
            assert node_id != self._self_id
            node = self._nodes[node_id] = Node(node_id)
        return node

    # -- entering the core ------------------------------------------------

    def _enter(self) -> None:
        _Ambient.clock, _Ambient.rng = self._clock, self._rng

    def tick(self) -> None:
        """Runs timeouts, the commit index and the leader's own deposition."""
        self._enter()
        known = self.commit_index
        self._onTick(0.0)
        self._commit_durable(known)

    def _commit_durable(self, known: int) -> None:
        """Commits durable entries only; pysyncobj counts the leader's entries before the sync.

        An entry of its own term that it may lose in a crash proves nothing about earlier entries of
        older terms (Raft, 5.4.2).
        """
        self._counted_index = self.commit_index
        if self.is_leader and self._counted_index > self._journal.durable_index:
            self.commit_index = known
            if self.commits_more:
                self.commit_index = self._journal.durable_index

    @property
    def commits_more(self) -> bool:
        """Whether it leads and the next tick will commit entries of the last sync."""
        index = min(self._counted_index, self._journal.durable_index)
        if index <= self.commit_index or not self.is_leader:
            return False
        return self._journal.term_at(index) == self.term

    def deliver(self, sender: int, message: dict[str, Any]) -> None:
        self._enter()
        self._SyncObj__onMessageReceived(self._node(sender), message)

    def set_voters(self, peer_ids: Iterable[int]) -> None:
        """Replaces the other voters, in place (docs/adr/0029).

        A candidate follows again: its votes were counted in another set.
        """
        wanted = {self._node(peer) for peer in peer_ids}
        present: set[Node] = getattr(self, "_SyncObj__otherNodes")  # noqa: B009 - a borrowed name
        for node in present - wanted:
            self._SyncObj__connectedNodes.discard(node)
            self._SyncObj__raftNextIndex.pop(node, None)
            self._SyncObj__raftMatchIndex.pop(node, None)
            self._SyncObj__lastResponseTime.pop(node, None)
        for node in wanted - present:
            self._SyncObj__connectedNodes.add(node)
            self._SyncObj__raftNextIndex[node] = 0
            self._SyncObj__raftMatchIndex[node] = 0
            self._SyncObj__lastResponseTime[node] = self._clock()
        self._SyncObj__otherNodes = wanted
        if self.is_candidate:
            self.follow()

    def follow(self) -> None:
        """Becomes a follower in the same term, without a known leader."""
        self.state = FOLLOWER
        if self.leader_id == self._self_id:
            self.leader = None

    sent: Any = property(attrgetter("_outbox.sent"))
    """Messages of the core that nobody took yet."""

    def take_sent(self) -> list[tuple[int, dict[str, Any]]]:
        sent, self._outbox.sent = self._outbox.sent, []
        return sent

    def see_term(self, term: int, witness: int) -> None:
        """Adopts a higher term and follows, by way of a vote that cannot win."""
        assert term > self.term
        vote = {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": -1}
        self.deliver(witness, vote)
        assert self.term == term and not self.is_leader

    def acknowledge(self, sender: int, next_index: int, success: bool) -> None:
        """Notes that a follower's durable log equals ours below `next_index` (if success)."""
        reply = {"type": "next_node_idx", "next_node_idx": next_index}
        self.deliver(sender, {**reply, "success": success, "reset": False})

    # -- reading and setting its state ------------------------------------

    @property
    def is_leader(self) -> bool:
        return bool(self.state == LEADER)

    @property
    def is_candidate(self) -> bool:
        return bool(self._SyncObj__raftState == CANDIDATE)

    # Read several times for each batch: a property over an attrgetter takes no call in Python.
    state: int = _alias("_SyncObj__raftState")
    leader: Node | None = _alias("_SyncObj__raftLeader")
    term: int = _alias("_SyncObj__raftCurrentTerm")
    commit_index: int = _alias("_SyncObj__raftCommitIndex")
    election_deadline: float = _alias("_SyncObj__raftElectionDeadline")
    heartbeat_due: float = _alias("_SyncObj__newAppendEntriesTime")

    @property
    def leader_id(self) -> int:
        """Returns the node id of this term's leader, 0 if none is known."""
        return 0 if self.leader is None else int(self.leader.id)

    def follows(self, leader: int, term: int, commit: int) -> bool:
        """Whether it follows this leader in this term and knows this commit index."""
        return (
            self._SyncObj__raftLeader is self._node(leader)
            and self._SyncObj__raftCurrentTerm == term
            and self._SyncObj__raftCommitIndex >= commit
        )

    def match_index(self, peer: int) -> int:
        return int(self._SyncObj__raftMatchIndex.get(self._node(peer), 0))

    def last_reply_at(self, peer: int) -> float:
        """Returns the time of the voter's last answer to this leader."""
        return float(self._SyncObj__lastResponseTime[self._node(peer)])

    def note_reply(self, peer: int, at: float) -> None:
        """Notes an answer of the peer that came by another way than a message to this group."""
        times, node = self._SyncObj__lastResponseTime, self._node(peer)
        times[node] = max(times[node], at)

    # -- overridden actions of the core -----------------------------------

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        period = self.conf.appendEntriesPeriod
        self._SyncObj__newAppendEntriesTime = self._clock() + period
        self.send_due = True

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        return False

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Does nothing: snapshots are ours, as every snapshot path of the core is unsafe."""

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Does nothing: `group.py` appends the proposals."""
