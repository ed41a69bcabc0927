"""Codec of messages between nodes: messages <-> the bytes of a frame.

    u32 length of the head | u32 its CRC-32C | head: protobuf Frame | entries' bytes

The head says for each message its kind and the lengths of its entries. The entries' bytes follow as
they are stored, so a frame costs no copy to build and one slice for each entry to take apart.
Everything is checked: the sender is another process, perhaps of another version, and TCP's own
checksum misses errors of bad memory or network cards. An entry's checksum is not made here: its
leader made it, and each disk stores it.
"""

from __future__ import annotations

import struct

from crc32c import crc32c
from google.protobuf.message import DecodeError

from cluster.consensus.message import (
    OF_NODES,
    Append,
    AppendReply,
    CheckpointAt,
    ClockProbe,
    ClockReply,
    Heartbeat,
    HeartbeatReply,
    LeaderChanges,
    LeaderNotice,
    LeadersSince,
    Message,
    NewsMessage,
    PreVote,
    PreVoteReply,
    Removed,
    StateChecksum,
    TimeoutNow,
    Vote,
    VoteReply,
)
from cluster.v1 import peer_pb2 as pb

_PREFIX = struct.Struct("<II")
HEARTBEAT_ROW_BYTES = 12
OVERHEAD_BYTES = 64  # of a message beside its entries, about
NOT_OF_GROUPS = (Heartbeat, HeartbeatReply, *OF_NODES)


class FrameError(ValueError):
    """The bytes are not a frame of this version."""


class DamagedFrameError(FrameError):
    """The bytes differ from those sent."""


def size_of(message: Message) -> int:
    """Returns about how many bytes the message takes in a frame."""
    if isinstance(message, Append) and message.data:
        return OVERHEAD_BYTES + sum(map(len, message.data))
    if isinstance(message, Heartbeat | LeaderChanges):
        return OVERHEAD_BYTES + HEARTBEAT_ROW_BYTES * len(message.groups)
    return OVERHEAD_BYTES


def encode_hello(hello: pb.Hello) -> bytes:
    return encode_head(pb.Frame(hello=hello))


def encode_head(frame: pb.Frame) -> bytes:
    """Encodes a frame without messages."""
    return _prefixed(frame.SerializeToString())


def _prefixed(head: bytes) -> bytes:
    return _PREFIX.pack(len(head), crc32c(head)) + head


def encode_frame(messages: list[Message]) -> list[bytes]:
    """Returns the pieces of the frame, in order; entries as they are, not copied."""
    head = pb.Frame(messages=[_addressed_head(message) for message in messages]).SerializeToString()
    pieces = [_prefixed(head)]
    for message in messages:
        if isinstance(message, Append):
            pieces += message.data
    return pieces


def decode_frame(raw: bytes | memoryview) -> tuple[pb.Frame, list[Message]]:
    """Decodes a frame. Raises FrameError if it is not of this version, or was damaged."""
    if len(raw) < _PREFIX.size:
        raise FrameError(f"frame of {len(raw)} bytes")
    length, checksum = _PREFIX.unpack_from(raw)
    at = _PREFIX.size + length
    if at > len(raw):
        raise FrameError(f"frame's head of {length} bytes in a frame of {len(raw)}")
    serialized = bytes(raw[_PREFIX.size : at])
    if not _is_intact(serialized, checksum):
        raise DamagedFrameError(f"frame's head of {length} bytes fails its checksum")
    try:
        head = pb.Frame.FromString(serialized)
    except DecodeError as error:
        raise FrameError(f"frame's head: {error}") from error
    messages: list[Message] = []
    for message in head.messages:
        if message.type != pb.MESSAGE_TYPE_APPEND:
            messages.append(_decode(message))
            continue
        data = []
        for entry in message.entries:
            end = at + entry.size
            if entry.size == 0 or end > len(raw):
                raise FrameError(f"entry of {entry.size} bytes at {at} of {len(raw)}")
            data.append(bytes(raw[at:end]))
            at = end
            if not _is_intact(data[-1], entry.crc32c):
                index = message.index + len(data)
                raise DamagedFrameError(
                    f"entry {index} of group {message.group} fails its checksum"
                )
        messages.append(_append(message, tuple(data)))
    if at != len(raw):
        raise FrameError(f"{len(raw) - at} bytes too many in a frame")
    return head, messages


def _is_intact(data: bytes, checksum: int) -> bool:
    return crc32c(data) == checksum


def _append(raw: pb.Message, data: tuple[bytes, ...]) -> Append:
    terms = tuple([entry.term for entry in raw.entries])
    sums = tuple([entry.crc32c for entry in raw.entries])
    who = (raw.from_instance, raw.to_instance)
    return Append(raw.group, raw.term, raw.index, raw.log_term, raw.commit, terms, data, sums, *who)


def _addressed_head(message: Message) -> pb.Message:
    head = _head_of(message)
    if not isinstance(message, NOT_OF_GROUPS) and (message.from_instance or message.to_instance):
        head.from_instance, head.to_instance = message.from_instance, message.to_instance
    return head


def _head_of(message: Message) -> pb.Message:
    match message:
        case Append(group, term, prev, prev_term, commit, terms, data, sums):
            entries = zip(terms, data, sums, strict=True)
            return pb.Message(
                group=group,
                type=pb.MESSAGE_TYPE_APPEND,
                term=term,
                index=prev,
                log_term=prev_term,
                commit=commit,
                entries=[pb.Entry(term=t, size=len(d), crc32c=c) for t, d, c in entries],
            )
        case AppendReply(group, term, next_index, success, rejected, version):
            return pb.Message(
                group=group,
                type=pb.MESSAGE_TYPE_APPEND_REPLY,
                term=term,
                index=next_index,
                success=success,
                rejected=rejected,
                version=version,
            )
        case Vote() | VoteReply() | PreVote() | PreVoteReply() | Removed():
            return _head_of_election(message)
        case TimeoutNow(group, term):
            return pb.Message(group=group, type=pb.MESSAGE_TYPE_TIMEOUT_NOW, term=term)
        case CheckpointAt(group, term, index):
            kind = pb.MESSAGE_TYPE_CHECKPOINT_AT
            return pb.Message(group=group, type=kind, term=term, index=index)
        case StateChecksum(group, term, index, checksum):
            kind = pb.MESSAGE_TYPE_STATE_CHECKSUM
            return pb.Message(group=group, type=kind, term=term, index=index, checksum=checksum)
        case Heartbeat(groups, terms, commits):
            kind = pb.MESSAGE_TYPE_BEAT
            return pb.Message(type=kind, groups=groups, terms=terms, commits=commits)
        case HeartbeatReply(disagree):
            return pb.Message(type=pb.MESSAGE_TYPE_BEAT_REPLY, groups=disagree)
        case ClockProbe() | ClockReply():
            return _clock_head(message)
        case LeaderNotice() | LeadersSince() | LeaderChanges():
            return _news_head(message)


def _head_of_election(
    message: Vote | VoteReply | PreVote | PreVoteReply | Removed,
) -> pb.Message:
    head = pb.Message(group=message.group, term=message.term)
    match message:
        case Vote() | PreVote():
            is_vote = isinstance(message, Vote)
            head.type = pb.MESSAGE_TYPE_VOTE if is_vote else pb.MESSAGE_TYPE_PRE_VOTE
            head.index, head.log_term = message.last_index, message.last_term
        case VoteReply():
            head.type = pb.MESSAGE_TYPE_VOTE_REPLY
        case PreVoteReply():
            head.type, head.success = pb.MESSAGE_TYPE_PRE_VOTE_REPLY, message.granted
        case Removed():
            head.type, head.version = pb.MESSAGE_TYPE_REMOVED, message.version
            head.index, head.log_term = message.index, message.index_term
    if isinstance(message, Vote | PreVote | PreVoteReply):
        head.commit, head.commit_term = message.commit, message.commit_term
    return head


def _clock_head(message: ClockProbe | ClockReply) -> pb.Message:
    if isinstance(message, ClockProbe):
        return pb.Message(type=pb.MESSAGE_TYPE_CLOCK_PROBE, sent_us=message.sent_us)
    return pb.Message(
        type=pb.MESSAGE_TYPE_CLOCK_REPLY,
        sent_us=message.sent_us,
        wall_ms=message.wall_ms,
        disagrees=message.disagrees,
        sick=message.sick,
        nodes=message.wrong,
    )


def _news_head(message: NewsMessage) -> pb.Message:
    match message:
        case LeaderNotice(group, term, leader):
            kind = pb.MESSAGE_TYPE_LEADER
            return pb.Message(group=group, type=kind, term=term, leader=leader)
        case LeadersSince(process, number):
            kind = pb.MESSAGE_TYPE_LEADERS_SINCE
            return pb.Message(type=kind, process=process, index=number)
        case LeaderChanges(process, since, number, groups, terms, leaders):
            kind = pb.MESSAGE_TYPE_LEADER_CHANGES
            head = pb.Message(type=kind, process=process, since=since, index=number)
            head.groups.extend(groups)
            head.terms.extend(terms)
            head.nodes.extend(leaders)
            return head


def _decode(raw: pb.Message) -> Message:
    place, who = (raw.group, raw.term), (raw.from_instance, raw.to_instance)
    proof = (raw.commit, raw.commit_term)
    match raw.type:
        case pb.MESSAGE_TYPE_APPEND_REPLY:
            return AppendReply(*place, raw.index, raw.success, raw.rejected, raw.version, *who)
        case pb.MESSAGE_TYPE_VOTE:
            return Vote(*place, raw.index, raw.log_term, *proof, *who)
        case pb.MESSAGE_TYPE_VOTE_REPLY:
            return VoteReply(*place, *who)
        case pb.MESSAGE_TYPE_PRE_VOTE:
            return PreVote(*place, raw.index, raw.log_term, *proof, *who)
        case pb.MESSAGE_TYPE_PRE_VOTE_REPLY:
            return PreVoteReply(*place, raw.success, *proof, *who)
        case pb.MESSAGE_TYPE_TIMEOUT_NOW:
            return TimeoutNow(*place, *who)
        case pb.MESSAGE_TYPE_CHECKPOINT_AT:
            return CheckpointAt(*place, raw.index, *who)
        case pb.MESSAGE_TYPE_STATE_CHECKSUM:
            return StateChecksum(*place, raw.index, raw.checksum, *who)
        case pb.MESSAGE_TYPE_REMOVED:
            return Removed(*place, raw.index, raw.log_term, raw.version, *who)
        case _:
            return _decode_of_node(raw)


def _decode_of_node(raw: pb.Message) -> Message:
    """Decodes messages between nodes, not between replicas."""
    match raw.type:
        case pb.MESSAGE_TYPE_LEADER:
            return LeaderNotice(raw.group, raw.term, raw.leader)
        case pb.MESSAGE_TYPE_BEAT:
            return _heartbeat(raw)
        case pb.MESSAGE_TYPE_BEAT_REPLY:
            return HeartbeatReply(tuple(raw.groups))
        case pb.MESSAGE_TYPE_CLOCK_PROBE:
            return ClockProbe(raw.sent_us)
        case pb.MESSAGE_TYPE_CLOCK_REPLY:
            told = (raw.wall_ms, raw.disagrees, raw.sick, tuple(raw.nodes))
            return ClockReply(raw.sent_us, *told)
        case pb.MESSAGE_TYPE_LEADERS_SINCE:
            return LeadersSince(raw.process, raw.index)
        case pb.MESSAGE_TYPE_LEADER_CHANGES:
            columns = (tuple(raw.groups), tuple(raw.terms), tuple(raw.nodes))
            if len({len(column) for column in columns}) != 1:
                raise FrameError("leader changes: their columns differ in length")
            return LeaderChanges(raw.process, raw.since, raw.index, *columns)
    raise FrameError(f"message of unknown type {raw.type}")


def _heartbeat(raw: pb.Message) -> Heartbeat:
    heartbeat = Heartbeat(tuple(raw.groups), tuple(raw.terms), tuple(raw.commits))
    if not len(heartbeat.groups) == len(heartbeat.terms) == len(heartbeat.commits):
        raise FrameError("heartbeat: its columns differ in length")
    return heartbeat
