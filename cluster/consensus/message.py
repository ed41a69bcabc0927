"""What replicas of one group say to each other.

These are the only values that cross the boundary between a group and the
network: the guard reads and writes them, `cluster.transport.frames` turns them into
bytes and back, the simulator passes them as they are. A message is
immutable; `term` is always the sender's term when it was made.

Entries travel as parallel tuples (terms, data, checksums) that start at `prev_index + 1`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import crc32c


class Append(NamedTuple):
    """Leader to follower. Without entries it is a heartbeat.

    `prev_index` 0 verifies nothing: it only says that the leader lives. checksums: CRC-32C
    of each entry, made once, by the leader that appended it.
    """

    group: int
    term: int
    prev_index: int
    prev_term: int
    commit: int
    terms: tuple[int, ...] = ()
    data: tuple[bytes, ...] = ()
    checksums: tuple[int, ...] = ()

    @property
    def last_index(self) -> int:
        return self.prev_index + len(self.terms)


class AppendReply(NamedTuple):
    """Follower to leader.

    success: everything below `next_index` equals the leader's log of this term
    and is on this follower's stable storage. Otherwise `next_index` is where
    the leader should try next, and `rejected` the prev_index that did not fit.
    """

    group: int
    term: int
    next_index: int
    success: bool
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Vote:
    """Candidate to all: vote for me in `term`."""

    group: int
    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class VoteReply:
    """Granted, durably, in `term`. A refusal is silence, as in the core."""

    group: int
    term: int


@dataclass(frozen=True, slots=True)
class PreVote:
    """Would you vote for me in `term`? Changes nothing (Raft thesis, 9.6)."""

    group: int
    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class PreVoteReply:
    """`term`: the asked term if granted, else the refuser's own term."""

    group: int
    term: int
    granted: bool


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """Leader to the follower that shall lead next (Raft thesis, 3.10)."""

    group: int
    term: int


class SnapshotError(Exception):
    """A snapshot that a peer sent is damaged or cannot be loaded. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class CheckpointAt:
    """Leader to followers: save your state when you have applied `index`, and say its checksum."""

    group: int
    term: int
    index: int


@dataclass(frozen=True, slots=True)
class StateChecksum:
    """Replica to all others: CRC-32C of its state at `index`."""

    group: int
    term: int
    index: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A leader's state exactly at `index`, in pieces on the wire: it goes by a call of its own."""

    group: int
    term: int
    index: int
    index_term: int
    state: bytes
    checksum: int  # see checksum_of; made by the leader, with the state at hand

    @property
    def is_whole(self) -> bool:
        """Whether it is what the leader made: this state, of this group, at this index."""
        return self.checksum == checksum_of(self.group, self.index, self.index_term, self.state)


_PLACE = struct.Struct("<QQQ")


def checksum_of(group: int, index: int, index_term: int, state: bytes) -> int:
    """Of a snapshot: of whose state it is, too."""
    return crc32c.crc32c(state, crc32c.crc32c(_PLACE.pack(group, index, index_term)))


@dataclass(frozen=True, slots=True)
class Leadership:
    """To nodes without a replica: `leader` leads the group in `term`."""

    group: int
    term: int
    leader: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Coalesced: leader of many quiescent groups to a follower of all, as parallel tuples."""

    groups: tuple[int, ...]
    terms: tuple[int, ...]
    commits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """To a Heartbeat: it arrived, but these groups here see it otherwise."""

    disagree: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClockProbe:
    """Node to node: what is your wall clock? `sent_us`: the sender's steady clock."""

    sent_us: int


@dataclass(frozen=True, slots=True)
class ClockReply:
    """To a ClockProbe, with its `sent_us`.

    disagrees: the replying node's clock is outside of what a majority agrees on.
    sick:      its disk or its event loop does not keep up.
    """

    sent_us: int
    wall_ms: int
    disagrees: bool
    sick: bool = False


GroupMessage = (
    Append | AppendReply | Vote | VoteReply | PreVote | PreVoteReply | TimeoutNow
    | CheckpointAt | StateChecksum
)  # fmt: skip
NodeMessage = Leadership | ClockProbe | ClockReply  # for the node, not for a group
Message = GroupMessage | NodeMessage | Heartbeat | HeartbeatReply
NODE_MESSAGES = frozenset((Leadership, ClockProbe, ClockReply))

# These promise something about the sender's stable storage, so they wait for
# its fsync. The others only speak of what the receiver must check itself.
DURABLE: tuple[type, ...] = (AppendReply, Vote, VoteReply)
