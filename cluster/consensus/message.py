"""Messages between the replicas of one group.

Only these values cross the boundary between a group and the network. The guard reads and writes
them, `cluster.transport.frames` turns them into bytes and back, and the simulator passes them as
they are. A message is immutable; `term` is always the sender's term when it was made.

Entries travel as parallel tuples (terms, data, checksums) that start at `prev_index + 1`.

Most messages name the sending and the receiving replica by their instances (`configuration.py`): 0
for those that a group began with.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import NamedTuple

import crc32c


class Append(NamedTuple):
    """Entries from leader to follower; a heartbeat if there are none.

    `prev_index` 0 verifies nothing: it only says that the leader lives. checksums: CRC-32C of each
    entry, made once, by the leader that appended it.
    """

    group: int
    term: int
    prev_index: int
    prev_term: int
    commit: int
    terms: tuple[int, ...] = ()
    data: tuple[bytes, ...] = ()
    checksums: tuple[int, ...] = ()
    from_instance: int = 0
    to_instance: int = 0

    @property
    def last_index(self) -> int:
        return self.prev_index + len(self.terms)


class AppendReply(NamedTuple):
    """Answer of a follower to an Append.

    success: everything below `next_index` equals the leader's log of this term
    and is on this follower's stable storage. Otherwise `next_index` is where
    the leader should try next, and `rejected` the prev_index that did not fit.
    version: of the configuration that is in force there.
    """

    group: int
    term: int
    next_index: int
    success: bool
    rejected: int = 0
    version: int = 0
    from_instance: int = 0
    to_instance: int = 0


@dataclass(frozen=True, slots=True)
class Vote:
    """Candidate to all: vote for me in `term`. commit, commit_term: see `commit_proof.py`."""

    group: int
    term: int
    last_index: int
    last_term: int
    commit: int = 0
    commit_term: int = 0
    from_instance: int = 0
    to_instance: int = 0


@dataclass(frozen=True, slots=True)
class VoteReply:
    """Granted, durably, in `term`. A refusal is silence, as in the core."""

    group: int
    term: int
    from_instance: int = 0
    to_instance: int = 0


@dataclass(frozen=True, slots=True)
class PreVote:
    """Would you vote for me in `term`? Changes nothing (Raft thesis, 9.6)."""

    group: int
    term: int
    last_index: int
    last_term: int
    commit: int = 0
    commit_term: int = 0
    from_instance: int = 0
    to_instance: int = 0


@dataclass(frozen=True, slots=True)
class PreVoteReply:
    """`term`: the asked term if granted, else the refuser's own term."""

    group: int
    term: int
    granted: bool
    commit: int = 0
    commit_term: int = 0
    from_instance: int = 0
    to_instance: int = 0


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """Request of the leader to its successor: stand for election now (Raft thesis, 3.10)."""

    group: int
    term: int
    from_instance: int = 0
    to_instance: int = 0


@dataclass(frozen=True, slots=True)
class Removed:
    """Notice of a removed replica to any peer that contacts it or may wait for it.

    index, index_term: the entry that removed it, so proven to be committed. version: of the
    configuration in it.
    """

    group: int
    term: int
    index: int
    index_term: int
    version: int
    from_instance: int = 0
    to_instance: int = 0


class SnapshotError(Exception):
    """A snapshot that a peer sent is damaged or cannot be loaded. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class CheckpointAt:
    """Request to followers: save your state at `index` once applied, and send its checksum."""

    group: int
    term: int
    index: int
    from_instance: int = 0
    to_instance: int = 0


@dataclass(frozen=True, slots=True)
class StateChecksum:
    """Checksum (CRC-32C) of a replica's state at `index`, to all other replicas."""

    group: int
    term: int
    index: int
    checksum: int
    from_instance: int = 0
    to_instance: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A leader's state exactly at `index`, in pieces on the wire: it goes by a call of its own.

    configuration: in force there, as it is stored; empty: the group's first.
    """

    group: int
    term: int
    index: int
    index_term: int
    state: bytes
    checksum: int  # see checksum_of; made by the leader, with the state at hand
    configuration: bytes = b""
    to_instance: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is as the leader made it: this state, of this group, at this index."""
        return self.checksum == checksum_of(
            self.group, self.index, self.index_term, self.state, self.configuration
        )


_PLACE = struct.Struct("<QQQ")


def checksum_of(
    group: int, index: int, index_term: int, state: bytes, configuration: bytes = b""
) -> int:
    """Returns a snapshot's checksum, which also covers its group and index."""
    head = _PLACE.pack(group, index, index_term) + configuration
    return crc32c.crc32c(state, crc32c.crc32c(head))


@dataclass(frozen=True, slots=True)
class LeaderNotice:
    """Notice to other nodes: `leader` leads the group in `term`."""

    group: int
    term: int
    leader: int


@dataclass(frozen=True, slots=True)
class LeadersSince:
    """Request to a voter: send the changes after `number`, which your `process` gave; 0: all."""

    process: int
    number: int


@dataclass(frozen=True, slots=True)
class LeaderChanges:
    """All changes of leaders after `since` up to `number`, as parallel tuples, oldest first."""

    process: int
    since: int
    number: int
    groups: tuple[int, ...]
    terms: tuple[int, ...]
    leaders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Coalesced heartbeat of many quiescent groups' leader to one follower, as parallel tuples."""

    groups: tuple[int, ...]
    terms: tuple[int, ...]
    commits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """Answer to a Heartbeat: it arrived, but these groups disagree with their rows."""

    disagree: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClockProbe:
    """Request for another node's wall clock. `sent_us`: the sender's steady clock."""

    sent_us: int


@dataclass(frozen=True, slots=True)
class ClockReply:
    """Answer to a ClockProbe, with its `sent_us`.

    disagrees: the replying node's clock is outside of the majority's range.
    sick: its disk or its event loop does not keep up.
    wrong: other nodes that told the replying voter that their clocks disagree.
    """

    sent_us: int
    wall_ms: int
    disagrees: bool
    sick: bool = False
    wrong: tuple[int, ...] = ()


GroupMessage = (
    Append | AppendReply | Vote | VoteReply | PreVote | PreVoteReply | TimeoutNow
    | CheckpointAt | StateChecksum | Removed
)  # fmt: skip
NewsMessage = LeaderNotice | LeadersSince | LeaderChanges
NodeMessage = NewsMessage | ClockProbe | ClockReply  # for the node, not for a group
Message = GroupMessage | NodeMessage | Heartbeat | HeartbeatReply
OF_NODES = (LeaderNotice, LeadersSince, LeaderChanges, ClockProbe, ClockReply)
NODE_MESSAGES = frozenset(OF_NODES)


def addressed(message: GroupMessage, from_instance: int, to_instance: int) -> GroupMessage:
    """Returns the message with the instances of its sender and receiver."""
    if not from_instance and not to_instance:
        return message
    if isinstance(message, Append | AppendReply):
        return message._replace(from_instance=from_instance, to_instance=to_instance)
    return replace(message, from_instance=from_instance, to_instance=to_instance)


# These promise something about the sender's stable storage, so they wait for its fsync. The
# receiver itself checks the content of all other messages.
DURABLE: tuple[type, ...] = (AppendReply, Vote, VoteReply)
