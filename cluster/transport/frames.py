"""Messages between nodes <-> the bytes of a frame.

    u32 little-endian: length of the head | head: protobuf Frame | entries' bytes

The head says what each message is and how long its entries are; their bytes
follow as they are stored, so a frame costs no copy to build and one slice for
each entry to take apart. Everything is checked before it is believed: the
sender is another process, perhaps of another version.
"""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError

from cluster.consensus.message import (
    Append,
    AppendReply,
    ClockProbe,
    ClockReply,
    Heartbeat,
    HeartbeatReply,
    Leadership,
    Message,
    PreVote,
    PreVoteReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from cluster.v1 import peer_pb2 as pb

_LENGTH = struct.Struct("<I")
HEARTBEAT_ROW_BYTES = 12
OVERHEAD_BYTES = 64  # of a message beside its entries, about


class FrameError(ValueError):
    """The bytes are no frame of this version."""


def size_of(message: Message) -> int:
    """About how many bytes the message takes in a frame."""
    if isinstance(message, Append) and message.data:
        return OVERHEAD_BYTES + sum(map(len, message.data))
    if isinstance(message, Heartbeat):
        return OVERHEAD_BYTES + HEARTBEAT_ROW_BYTES * len(message.groups)
    return OVERHEAD_BYTES


def encode_hello(hello: pb.Hello) -> bytes:
    head = pb.Frame(hello=hello).SerializeToString()
    return _LENGTH.pack(len(head)) + head


def encode_frame(messages: list[Message]) -> list[bytes]:
    """The pieces of the frame, in order; entries as they are, not copied."""
    head = pb.Frame(messages=[_head_of(message) for message in messages]).SerializeToString()
    pieces = [_LENGTH.pack(len(head)) + head]
    for message in messages:
        if isinstance(message, Append):
            pieces += message.data
    return pieces


def decode_frame(raw: bytes | memoryview) -> tuple[pb.Frame, list[Message]]:
    """Raises FrameError if the bytes are no frame of this version."""
    if len(raw) < _LENGTH.size:
        raise FrameError(f"frame of {len(raw)} bytes")
    (length,) = _LENGTH.unpack_from(raw)
    at = _LENGTH.size + length
    if at > len(raw):
        raise FrameError(f"frame's head of {length} bytes in a frame of {len(raw)}")
    try:
        head = pb.Frame.FromString(bytes(raw[_LENGTH.size : at]))
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
        messages.append(_append(message, tuple(data)))
    if at != len(raw):
        raise FrameError(f"{len(raw) - at} bytes too many in a frame")
    return head, messages


def _append(raw: pb.Message, data: tuple[bytes, ...]) -> Append:
    terms = tuple([entry.term for entry in raw.entries])
    return Append(raw.group, raw.term, raw.index, raw.log_term, raw.commit, terms, data)


def _head_of(message: Message) -> pb.Message:
    match message:
        case Append(group, term, prev, prev_term, commit, terms, data):
            return pb.Message(
                group=group,
                type=pb.MESSAGE_TYPE_APPEND,
                term=term,
                index=prev,
                log_term=prev_term,
                commit=commit,
                entries=[pb.Entry(term=t, size=len(d)) for t, d in zip(terms, data, strict=True)],
            )
        case AppendReply(group, term, next_index, success, rejected):
            return pb.Message(
                group=group,
                type=pb.MESSAGE_TYPE_APPEND_REPLY,
                term=term,
                index=next_index,
                success=success,
                rejected=rejected,
            )
        case Vote(group, term, last, last_term):
            kind = pb.MESSAGE_TYPE_VOTE
            return pb.Message(group=group, type=kind, term=term, index=last, log_term=last_term)
        case VoteReply(group, term):
            return pb.Message(group=group, type=pb.MESSAGE_TYPE_VOTE_REPLY, term=term)
        case PreVote(group, term, last, last_term):
            kind = pb.MESSAGE_TYPE_PRE_VOTE
            return pb.Message(group=group, type=kind, term=term, index=last, log_term=last_term)
        case PreVoteReply(group, term, granted):
            kind = pb.MESSAGE_TYPE_PRE_VOTE_REPLY
            return pb.Message(group=group, type=kind, term=term, success=granted)
        case TimeoutNow(group, term):
            return pb.Message(group=group, type=pb.MESSAGE_TYPE_TIMEOUT_NOW, term=term)
        case Leadership(group, term, leader):
            kind = pb.MESSAGE_TYPE_LEADER
            return pb.Message(group=group, type=kind, term=term, leader=leader)
        case Heartbeat(groups, terms, commits):
            kind = pb.MESSAGE_TYPE_BEAT
            return pb.Message(type=kind, groups=groups, terms=terms, commits=commits)
        case HeartbeatReply(disagree):
            return pb.Message(type=pb.MESSAGE_TYPE_BEAT_REPLY, groups=disagree)
        case ClockProbe(sent_us):
            return pb.Message(type=pb.MESSAGE_TYPE_CLOCK_PROBE, sent_us=sent_us)
        case ClockReply(sent_us, wall_ms, disagrees):
            kind = pb.MESSAGE_TYPE_CLOCK_REPLY
            return pb.Message(type=kind, sent_us=sent_us, wall_ms=wall_ms, disagrees=disagrees)


def _decode(raw: pb.Message) -> Message:
    match raw.type:
        case pb.MESSAGE_TYPE_APPEND_REPLY:
            return AppendReply(raw.group, raw.term, raw.index, raw.success, raw.rejected)
        case pb.MESSAGE_TYPE_VOTE:
            return Vote(raw.group, raw.term, raw.index, raw.log_term)
        case pb.MESSAGE_TYPE_VOTE_REPLY:
            return VoteReply(raw.group, raw.term)
        case pb.MESSAGE_TYPE_PRE_VOTE:
            return PreVote(raw.group, raw.term, raw.index, raw.log_term)
        case pb.MESSAGE_TYPE_PRE_VOTE_REPLY:
            return PreVoteReply(raw.group, raw.term, raw.success)
        case pb.MESSAGE_TYPE_TIMEOUT_NOW:
            return TimeoutNow(raw.group, raw.term)
        case pb.MESSAGE_TYPE_LEADER:
            return Leadership(raw.group, raw.term, raw.leader)
        case pb.MESSAGE_TYPE_BEAT:
            heartbeat = Heartbeat(tuple(raw.groups), tuple(raw.terms), tuple(raw.commits))
            if not len(heartbeat.groups) == len(heartbeat.terms) == len(heartbeat.commits):
                raise FrameError("heartbeat: its columns differ in length")
            return heartbeat
        case pb.MESSAGE_TYPE_BEAT_REPLY:
            return HeartbeatReply(tuple(raw.groups))
        case pb.MESSAGE_TYPE_CLOCK_PROBE:
            return ClockProbe(raw.sent_us)
        case pb.MESSAGE_TYPE_CLOCK_REPLY:
            return ClockReply(raw.sent_us, raw.wall_ms, raw.disagrees)
    raise FrameError(f"message of unknown type {raw.type}")
