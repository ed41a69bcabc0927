"""A replica's parts on a disk in memory, for tests of one part at a time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from cluster.consensus.background_reads import BackgroundReads
from cluster.consensus.configuration import Configuration, Member, Members, Placed
from cluster.consensus.guard import Guard
from cluster.consensus.journal import Journal
from cluster.consensus.port import Core
from storage.raft_log import RaftLogStore
from tests.sim.disk import Batch, Disk

GROUP = 7


def reads_at_once() -> BackgroundReads:
    """Reads that have ended when they were asked for."""
    return BackgroundReads(lambda read, done: done(read()), lambda group: None)


def members_of(node: int, *peers: int) -> Members:
    """The configuration that a group of these nodes begins with, at `node`."""
    voters = tuple(map(Member, (node, *peers)))
    return Members(node, 0, Placed(0, 0, Configuration(0, voters)))


@dataclass
class Parts:
    """Node 1 of three. `now` is its clock, in seconds."""

    peers: tuple[int, ...] = (2, 3)
    now: float = 0.0
    disk: Disk = field(default_factory=Disk)

    def __post_init__(self) -> None:
        self.batch = Batch()
        self.members = members_of(1, *self.peers)
        self.journal = self.new_journal()
        self.core = Core(
            1,
            self.peers,
            self.journal,
            applied=self.journal.applied_index,
            clock=lambda: self.now,
            rng=random.Random(1),
            election_timeout=(1.0, 2.0),
            heartbeat=0.1,
        )
        self.guard = Guard(GROUP, self.core, self.journal, self.members)

    def new_journal(self, tail_bytes: int = 1 << 20) -> Journal:
        store = RaftLogStore(self.disk, GROUP)
        return Journal(store, lambda: self.batch, tail_bytes=lambda: tail_bytes)

    def sync(self) -> None:
        """One round of the driver: write, sync."""
        self.journal.begin_sync()
        self.disk.write(self.batch)
        self.batch = Batch()
        self.disk.sync()
        self.journal.end_sync()

    def fill(self, *terms: int) -> None:
        """Appends an entry for each term: `e2`, `e3`, ... by index."""
        for term in terms:
            index = self.journal.last_index + 1
            self.journal.append(f"e{index}".encode(), index, term)

    def apply(self, index: int) -> None:
        self.journal.applied_index = index

    def lead(self, term: int) -> None:
        """Makes node 1 the leader of `term`, by a vote of node 2."""
        self.core.election_deadline = float("-inf")
        while self.core.term < term - 1:
            self.core.see_term(term - 1, 2)
        self.core.election_deadline = float("-inf")
        self.core.tick()
        self.core.deliver(2, {"type": "response_vote", "term": self.core.term})
        self.core.take_sent()
        assert self.core.is_leader and self.core.term == term
