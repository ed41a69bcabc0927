"""Shadows of simulated replicas: beside each an `Oracle` gets the same messages in order.

    ShadowedDriver -- each message, each round, each sync --> Shadow -- the same --> Oracle
                                                                |
                     after each step: may the real replica be where it is?

The paper leaves some choices free, and the oracle takes them from the real replica: when it
stands or steps down, the entries a leader appends, its messages, and the unsynced part that a
crash leaves. The paper's decisions must be equal: the term, the vote, the leader, every entry.
Acknowledgements, votes and commit indexes of the real one must be allowed by the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any

from cluster.consensus.group import Group
from cluster.consensus.journal import Journal
from cluster.consensus.message import (
    Append,
    AppendReply,
    Message,
    PreVote,
    PreVoteReply,
    Snapshot,
    Vote,
    VoteReply,
)
from cluster.consensus.port import Clock
from cluster.consensus.replay_budget import ReplayBudget
from cluster.consensus.snapshots import Checked
from storage.keys import numbered
from storage.kv import Family
from tests.sim.model import Violation
from tests.sim.oracle import Entry, Log, Oracle, Role
from tests.sim.watched import WatchedDriver

if TYPE_CHECKING:
    from tests.sim.node import Node

FIRST = 1  # an empty log of ours begins with this index


class Disagreement(Violation):
    """A replica is where the paper's server cannot be."""


class Replica:
    """An oracle's knowledge of its disk: the states that a crash may leave."""

    def __init__(self, group: Group) -> None:
        journal = group.journal
        assert (journal.base_index, journal.last_index, journal.term) == (FIRST, FIRST, 0)
        self.oracle = Oracle(group.config.node_id, group.config.peers, Log(FIRST, 0))
        # Since the last sync: (term, vote) pairs, the shortest log, each entry that was at an
        # index.
        self.hard_states = [(0, 0)]
        self.shortest = FIRST
        self.held: dict[int, set[Entry]] = {}
        self.installing = (0, 0)  # index and term of a snapshot that was not seen to be durable
        self.syncing: tuple[int, int, tuple[int, int]] | None = None  # last index and term, state
        self.granted: set[tuple[int, int]] = set()  # (term, candidate)
        self.accepted: dict[int, int] = {}  # term -> the highest index proven equal

    def note(self, first: int) -> None:
        """Notes the log before and after a step that may change it from `first` on."""
        oracle = self.oracle
        log, state = oracle.log, (oracle.term, oracle.voted_for)
        if self.hard_states[-1] != state:
            self.hard_states.append(state)
        last = log.last
        if last < self.shortest:
            self.shortest = last
        for index in range(max(first, log.base + 1), last + 1):
            self.held.setdefault(index, set()).add(log.entry(index))

    def begin_sync(self) -> None:
        oracle = self.oracle
        self.syncing = (oracle.log.last, oracle.log.last_term, (oracle.term, oracle.voted_for))

    def end_sync(self) -> None:
        """Ends a sync: writes from before its begin are durable.

        No message is handled while it runs. But if an earlier slice could not be written to a full
        disk, its writes are not in the sync.
        """
        if self.syncing is None:
            return
        log, (last, last_term, state) = self.oracle.log, self.syncing
        self.syncing = None
        self.hard_states = self.hard_states[self.hard_states.index(state) :]
        if log.last < last or log.term(last) != last_term:
            return  # some of it was replaced in memory: the part that still counts is unknown
        self.shortest = last
        self.oracle.sync(last)
        if log.last == last:
            self.held.clear()


class Shadow:
    """All oracles of one run, by node and group. Methods raise Disagreement.

    deleted: groups without any more promises.
    """

    def __init__(self, deleted: Set[int]) -> None:
        self.replicas: dict[tuple[int, int], Replica] = {}
        self._deleted = deleted
        self._led: dict[tuple[int, int], int] = {}  # (group, term) -> node
        self.steps = 0

    def opened(self, group: Group) -> None:
        """Opens a replica: for the first time, or again after a crash."""
        key = (group.config.node_id, group.config.group)
        if group.config.group in self._deleted:
            return
        if key in self.replicas:
            self._restarted(self.replicas[key], group)
        else:
            self.replicas[key] = Replica(group)

    def received(self, group: Group, sender: int, message: Message) -> None:
        """Takes one message as the replica did."""
        replica = self._of(group)
        if replica is not None:
            self._step(replica, group, lambda: _deliver(replica, sender, message), message)

    def advanced(self, group: Group) -> None:
        """Follows the replica's own step."""
        replica = self._of(group)
        if replica is not None:
            self._step(replica, group, None, "a round")

    def installs(self, group: Group, snapshot: Snapshot) -> None:
        """Notes a snapshot about to be taken: from here on the disk may hold it."""
        replica = self._of(group)
        if replica is not None:
            replica.installing = (snapshot.index, snapshot.index_term)
            replica.shortest = min(replica.shortest, snapshot.index)
            replica.note(FIRST)
            if snapshot.term > replica.oracle.term:
                replica.hard_states.append((snapshot.term, 0))

    def installed(self, group: Group, sender: int, snapshot: Snapshot, *, new: bool) -> None:
        """Takes a sound snapshot. A new one is synced, and the replica begins anew with it."""
        replica = self._of(group)
        if replica is not None:
            leader = self._led.get((snapshot.group, snapshot.term))
            if leader != sender:
                raise Disagreement(f"node {sender} sends a snapshot of group {snapshot.group} in "
                                   f"term {snapshot.term}, which node {leader} leads")  # fmt: skip
            place = (snapshot.term, snapshot.index, snapshot.index_term)
            self._step(replica, group, lambda: replica.oracle.install(*place), "a snapshot")
            if new:
                replica.begin_sync()
                replica.end_sync()

    def syncs(self, group: Group) -> None:
        """Notes the begin of a sync of all writes so far."""
        replica = self._of(group)
        if replica is not None:
            replica.begin_sync()

    def synced(self, group: Group) -> None:
        """Notes the end of a sync, also of a failed replica: its held messages are sent now."""
        replica = self.replicas.get((group.config.node_id, group.config.group))
        if replica is not None:
            replica.end_sync()

    def sent(self, node: int, peer: int, message: Any) -> None:
        """Checks that a message is one of the oracle's answers."""
        kind = message.__class__
        if kind is not AppendReply and kind is not VoteReply and kind is not Vote:
            return
        replica = self.replicas.get((node, message.group))
        if replica is None or message.group in self._deleted:
            return
        wrong = self._difference_of(replica, node, peer, message)
        if wrong:
            raise Disagreement(f"node {node}, group {message.group}: {message}: {wrong}")

    @staticmethod
    def _difference_of(replica: Replica, node: int, peer: int, message: Any) -> str:
        oracle, kind = replica.oracle, message.__class__
        if kind is VoteReply and (message.term, peer) not in replica.granted:
            return f"the oracle does not grant it to node {peer}"
        stored_term, stored_vote = replica.hard_states[0]
        votes_for = node if kind is Vote else peer
        if kind is not AppendReply and stored_term <= message.term:
            if (stored_term, stored_vote) != (message.term, votes_for):
                return f"the vote is not synced, {replica.hard_states} is"
        if kind is AppendReply and message.success:
            if message.next_index - 1 > max(oracle.synced, oracle.log.base, FIRST):
                return f"only {oracle.synced} is synced"
            if message.next_index - 1 > replica.accepted.get(message.term, 0):
                return "the oracle has not proven that much"
        if kind is Vote and (oracle.term, oracle.role) == (message.term, Role.CANDIDATE):
            log = oracle.log
            if (log.last, log.last_term) != (message.last_index, message.last_term):
                return f"its log ends at {log.last} of term {log.last_term}"
        return ""

    def compare_logs(self, group: Group) -> None:
        """Compares each entry of the replica's log, read from its disk."""
        replica = self._of(group)
        if replica is None:
            return
        log = _trimmed(replica.oracle.log, group.journal)
        for index in range(log.base + 1, log.last + 1):
            if _entry(group.journal, index) != log.entry(index):
                raise Disagreement(f"{_name(group)}: entry {index} is not the oracle's")

    def _of(self, group: Group) -> Replica | None:
        """Finds a running replica: a failed one takes no step; the oracle waits for its restart."""
        if group.failed is not None or group.config.group in self._deleted:
            return None
        return self.replicas.get((group.config.node_id, group.config.group))

    # -- one step -------------------------------------------------------------------------------

    def _step(
        self, replica: Replica, group: Group, do: Callable[[], object] | None, what: Any
    ) -> None:
        self.steps += 1
        oracle = replica.oracle
        entries = isinstance(what, Append) and what.terms
        first = what.prev_index + 1 if entries else oracle.log.last + 1
        replica.note(first)
        try:
            if do is not None:
                do()
            self._follow(oracle, group)
        except AssertionError as error:
            text = f"{_name(group)} after {what}: the oracle says: {error}"
            raise Disagreement(text) from None
        if oracle.role is Role.LEADER:
            self._led[group.config.group, oracle.term] = oracle.me
        self._compare(oracle, group, what)
        replica.note(first)

    @staticmethod
    def _follow(oracle: Oracle, group: Group) -> None:
        """Takes over choices that the paper leaves free."""
        core, journal = group.core, group.journal
        stood = core.term == oracle.term + 1 and journal.voted_for == oracle.me
        if stood and oracle.role is not Role.LEADER:
            oracle.stand()
        if oracle.role is Role.LEADER and not core.is_leader:
            oracle.step_down()
        _trimmed(oracle.log, journal)
        if core.is_leader:
            for index in range(oracle.log.last + 1, journal.last_index + 1):
                oracle.propose(_entry(journal, index))
        oracle.advance_commit()

    def _compare(self, oracle: Oracle, group: Group, what: Any) -> None:
        wrong = _difference(oracle, group)
        if not wrong and isinstance(what, Append) and what.terms:
            last = min(what.last_index, oracle.log.last)
            for index in range(max(what.prev_index, oracle.log.base) + 1, last + 1):
                if _entry(group.journal, index) != oracle.log.entry(index):
                    wrong = f"entry {index} is not the oracle's"
        if wrong:
            raise Disagreement(f"{_name(group)} after {what}: {wrong}")

    # -- a restart ------------------------------------------------------------------------------

    def _restarted(self, replica: Replica, group: Group) -> None:
        """Checks that the disk's contents are possible; the oracle goes on from them."""
        old, journal, where = replica.oracle, group.journal, f"{_name(group)} restarts"
        if (journal.term, journal.voted_for) not in replica.hard_states:
            raise Disagreement(f"{where} with term {journal.term} and vote {journal.voted_for}, "
                            f"not one of {replica.hard_states}")  # fmt: skip
        if journal.last_index < replica.shortest:
            raise Disagreement(f"{where} with {journal.last_index} entries, "
                            f"{replica.shortest} were synced")  # fmt: skip
        base = (journal.base_index, journal.base_term)
        if base[0] > old.log.last and base != replica.installing:
            raise Disagreement(f"{where} from a snapshot at {base} that it never got")
        oracle = Oracle(old.me, old.peers, Log(*base))
        oracle.commit = max(base[0], old.log.base)
        for index in range(journal.base_index + 1, journal.last_index + 1):
            entry, could = _entry(journal, index), replica.held.get(index, set())
            certain = old.log.base < index <= old.log.last and old.log.entry(index) == entry
            if entry not in could and not certain and index > old.log.base:
                raise Disagreement(f"{where} with an entry {index} that it never had")
            oracle.log.entries.append(entry)
            if certain and index == oracle.commit + 1 <= old.commit:
                oracle.commit = index  # all its applied entries were committed
        oracle.term, oracle.voted_for = journal.term, journal.voted_for
        oracle.synced = oracle.log.last
        replica.oracle, replica.syncing = oracle, None
        replica.hard_states = [(oracle.term, oracle.voted_for)]
        replica.shortest = oracle.log.last
        replica.held.clear()
        replica.granted.clear()
        replica.accepted.clear()


def _deliver(replica: Replica, sender: int, message: Message) -> None:
    oracle = replica.oracle
    match message:
        case Append():
            entries = list(zip(message.terms, message.data, strict=True))
            proven = oracle.append_entries(
                sender, message.term, message.prev_index, message.prev_term, entries,
                message.commit,
            )  # fmt: skip
            if proven is not None:
                known = replica.accepted.get(message.term, 0)
                replica.accepted[message.term] = max(known, proven)
        case AppendReply():
            if message.success:
                oracle.appended(sender, message.term, message.next_index - 1)
            elif sender in oracle.peers:
                oracle.see_term(message.term)
        case PreVote():
            oracle.prove(message.commit, message.commit_term)
        case Vote():
            oracle.prove(message.commit, message.commit_term)
            place = (message.last_index, message.last_term)
            if oracle.request_vote(sender, message.term, *place):
                replica.granted.add((message.term, sender))
        case VoteReply():
            oracle.vote(sender, message.term)
        case PreVoteReply():
            oracle.prove(message.commit, message.commit_term)
            if not message.granted and sender in oracle.peers:
                oracle.see_term(message.term)
        case _:
            """Says nothing of terms, votes or entries."""


def _difference(oracle: Oracle, group: Group) -> str:
    """Names a difference between replica and oracle, except in the bytes of entries."""
    core, journal, log = group.core, group.journal, oracle.log
    theirs = (core.term, journal.term, journal.voted_for, core.is_leader)
    ours = (oracle.term, oracle.term, oracle.voted_for, oracle.role is Role.LEADER)
    if theirs != ours:
        return f"(term, stored, vote, leads) is {theirs}, the oracle's {ours}"
    last = log.last
    theirs_end, ours_end = (journal.last_index, journal.last_term), (last, log.term(last))
    if theirs_end != ours_end:
        return f"its log ends with (index, term) {theirs_end}, the oracle's with {ours_end}"
    if group.commit_index > oracle.commit:
        return f"{group.commit_index} is committed, the oracle allows {oracle.commit}"
    for peer, progress in group.progress.items():
        if progress.match > oracle.match[peer]:
            held = oracle.match[peer]
            return f"node {peer} is believed to hold {progress.match}, it acknowledged {held}"
    return ""


def _trimmed(log: Log, journal: Journal) -> Log:
    """Drops the log's head, as the replica may up to its applied index."""
    if journal.base_index > log.base:
        assert journal.base_index <= log.last, "dropped what is not in the log"
        log.trim(journal.base_index)
        assert log.base_term == journal.base_term
    return log


def _entry(journal: Journal, index: int) -> Entry:
    """Reads an entry without a read that the node would wait for."""
    found, store = journal.in_memory(index), journal._store
    if found is not None:
        return journal.term_at(index), found[0]
    data = store._kv.get(Family.ENTRIES, numbered(store._group, index))
    assert data is not None
    return journal.term_at(index), data


def _name(group: Group) -> str:
    return f"node {group.config.node_id}, group {group.config.group}"


class ShadowedDriver(WatchedDriver):
    """A driver that tells the shadow of each step."""

    def __init__(self, node: Node, clock: Clock, replay: ReplayBudget) -> None:
        super().__init__(node, clock, replay)
        self._shadow = node.cluster.shadow

    def add(self, group: Group) -> None:
        self._shadow.opened(group)
        super().add(group)

    def finish(self) -> None:
        for group in self.groups.values():
            self._shadow.synced(group)
        super().finish()

    def install(self, sender: int, checked: Checked) -> bool:
        snapshot = checked.snapshot
        group = self.groups[snapshot.group]
        base = group.journal.base_index
        self._shadow.installs(group, snapshot)
        taken = super().install(sender, checked)
        if taken:
            new = group.journal.base_index != base
            self._shadow.installed(group, sender, snapshot, new=new)
        return taken

    def begin(self) -> bool:
        must_sync = super().begin()
        for group in self.groups.values() if must_sync and not self.storage_full else ():
            self._shadow.syncs(group)
        return must_sync

    def _deliver_one(self, sender: int, message: Message, touched: dict[int, Group]) -> None:
        super()._deliver_one(sender, message, touched)
        group = self.groups.get(getattr(message, "group", -1))
        if group is not None:
            self._shadow.received(group, sender, message)

    def _advance(self) -> list[Group]:
        touched = super()._advance()
        for group in touched:
            self._shadow.advanced(group)
        return touched
