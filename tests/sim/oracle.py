"""Raft server written from the paper (Ongaro, Ousterhout, USENIX ATC 14, figures 2, 13).

It does nothing by itself: no clock, no network, no disk, no chance. Its driver says which messages
arrive and when its server stands, steps down, or has synced. It shares no code with
`cluster.consensus`; `shadow` compares each of its steps with those that this server allows.

Only the paper's rules are here. It leaves free when to stand, which messages to send, and how far
to go back after a refusal, so the real replica decides those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

Entry = tuple[int, bytes]  # term, command


class Role(Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(slots=True)
class Log:
    """Entries above a base: those at or below it are committed, and kept as a snapshot."""

    base: int
    base_term: int
    entries: list[Entry] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.base + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.term(self.last)

    def entry(self, index: int) -> Entry:
        place = index - self.base - 1
        assert 0 <= place < len(self.entries), (index, self.base, self.last)
        return self.entries[place]

    def term(self, index: int) -> int:
        return self.base_term if index == self.base else self.entry(index)[0]

    def cut(self, index: int) -> None:
        """Drops the entries from `index` on."""
        del self.entries[index - self.base - 1 :]

    def trim(self, index: int) -> None:
        """A snapshot covers all up to `index`."""
        term = self.term(index)
        del self.entries[: index - self.base]
        self.base, self.base_term = index, term


class Oracle:
    """One server of one group. Handlers return the paper's answer."""

    def __init__(self, me: int, peers: Iterable[int], log: Log) -> None:
        self.me, self.peers = me, frozenset(peers)
        self.term = self.voted_for = 0
        self.log = log
        self.role = Role.FOLLOWER
        self.commit = log.base
        self.synced = log.last  # last of its own entries on stable storage
        self.votes: set[int] = set()
        self.match: dict[int, int] = {}

    # -- terms and roles ----------------------------------------------------------------------

    def see_term(self, term: int) -> None:
        """Adopts a higher term of any message and becomes a follower (all servers)."""
        if term > self.term:
            self.term, self.voted_for = term, 0
            self.role = Role.FOLLOWER

    def stand(self) -> None:
        """Stands: its election timeout passed."""
        assert self.role is not Role.LEADER
        self.term += 1
        self.voted_for, self.votes = self.me, {self.me}
        self.role = Role.CANDIDATE
        self._count_votes()

    def step_down(self) -> None:
        """Steps down: a server may at any time, as a leader does that hears no majority."""
        self.role = Role.FOLLOWER

    def _count_votes(self) -> None:
        if self._is_majority(len(self.votes)):
            self.role = Role.LEADER
            self.match = dict.fromkeys(self.peers, 0)

    def _is_majority(self, servers: int) -> bool:
        return 2 * servers > len(self.peers) + 1

    # -- elections ----------------------------------------------------------------------------

    def request_vote(self, candidate: int, term: int, last: int, last_term: int) -> bool:
        """RequestVote: returns whether the vote is granted."""
        if candidate not in self.peers:
            return False
        self.see_term(term)
        up_to_date = (last_term, last) >= (self.log.last_term, self.log.last)
        granted = term == self.term and self.voted_for in (0, candidate) and up_to_date
        if granted:
            self.voted_for = candidate
        return granted

    def vote(self, voter: int, term: int) -> None:
        """Takes a granted vote."""
        if voter not in self.peers:
            return
        self.see_term(term)
        if term == self.term and self.role is Role.CANDIDATE:
            self.votes.add(voter)
            self._count_votes()

    # -- entries ------------------------------------------------------------------------------

    def append_entries(
        self, leader: int, term: int, prev: int, prev_term: int, entries: Sequence[Entry],
        commit: int,
    ) -> int | None:  # fmt: skip
        """AppendEntries: the index up to which both logs are equal, None if refused.

        prev 0: the message names no entry, so that it proves none.
        """
        if leader not in self.peers or term < self.term:
            return None
        self.see_term(term)
        assert self.role is not Role.LEADER, f"two leaders in term {term}: {leader} and {self.me}"
        self.role = Role.FOLLOWER
        if prev == 0:
            return 0
        log = self.log
        if prev > log.last or (prev >= log.base and log.term(prev) != prev_term):
            return None
        for index, entry in enumerate(entries, prev + 1):
            if index <= log.base:
                continue
            if index <= log.last and log.term(index) != entry[0]:
                assert index > self.commit, f"entry {index} is committed and would be replaced"
                log.cut(index)
                self.synced = min(self.synced, index - 1)
            if index > log.last:
                log.entries.append(entry)
        proven = prev + len(entries)
        self.commit = max(self.commit, min(commit, proven))
        return proven

    def appended(self, follower: int, term: int, match: int) -> None:
        """Takes a follower's success: its log equals this leader's up to `match`."""
        self.see_term(term)
        if term == self.term and self.role is Role.LEADER and follower in self.peers:
            assert match <= self.log.last, f"{follower} acknowledges {match}, which is nowhere"
            self.match[follower] = max(self.match[follower], match)
            self.advance_commit()

    def propose(self, entry: Entry) -> None:
        """Appends an entry of the leader's own term."""
        assert self.role is Role.LEADER, f"{self.me} appends and does not lead"
        assert entry[0] == self.term, f"{self.me} appends {entry[0]} in term {self.term}"
        self.log.entries.append(entry)

    def sync(self, last: int) -> None:
        """Notes that its entries up to `last` are on stable storage."""
        self.synced = min(last, self.log.last)
        self.advance_commit()

    def prove(self, index: int, term: int) -> None:
        """Takes a proof that the entry at `index`, of `term`, is committed (log matching)."""
        if self.commit < index <= self.log.last and self.log.term(index) == term:
            self.commit = index

    def advance_commit(self) -> None:
        """Commits the entries that a majority holds, by entries of its own term (5.4.2).

        Without other servers, no other entries can exist.
        """
        if self.role is not Role.LEADER:
            return
        if not self.peers:
            self.commit = max(self.commit, self.synced)
        held = sorted([self.synced, *self.match.values()], reverse=True)
        index = held[len(held) // 2]
        if index > self.commit and self.log.term(index) == self.term:
            self.commit = index

    # -- snapshots ------------------------------------------------------------------------------

    def install(self, term: int, index: int, index_term: int) -> None:
        """InstallSnapshot: a log that holds its last entry is kept, any other goes."""
        if term < self.term:
            return
        self.see_term(term)
        assert self.role is not Role.LEADER, f"two leaders in term {term}"
        self.role = Role.FOLLOWER
        log = self.log
        held = index <= log.base or (index <= log.last and log.term(index) == index_term)
        if not held:
            self.log = Log(index, index_term)
            self.synced = index
        self.commit = max(self.commit, index)
