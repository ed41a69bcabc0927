"""Frames between nodes: what goes in comes out, and damage is a FrameError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from cluster.transport.frames import FrameError, decode_frame, encode_frame, encode_hello
from cluster.v1 import peer_pb2 as pb

u64 = st.integers(0, 2**64 - 1)
entry_lists = st.lists(st.tuples(u64, st.binary(min_size=1, max_size=40)), max_size=5)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    entries = draw(entry_lists)
    numbers = [draw(u64) for _ in range(5)]
    terms, data = tuple(t for t, _ in entries), tuple(d for _, d in entries)
    return Append(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], terms, data)


@st.composite
def beats(draw: st.DrawFn) -> Heartbeat:
    rows = draw(st.lists(st.tuples(u64, u64, u64), max_size=5))
    return Heartbeat(*(tuple(row[column] for row in rows) for column in range(3)))


messages: st.SearchStrategy[Message] = st.one_of(
    appends(),
    st.builds(AppendReply, u64, u64, u64, st.booleans(), u64),
    st.builds(Vote, u64, u64, u64, u64),
    st.builds(VoteReply, u64, u64),
    st.builds(PreVote, u64, u64, u64, u64),
    st.builds(PreVoteReply, u64, u64, st.booleans()),
    st.builds(TimeoutNow, u64, u64),
    st.builds(Leadership, u64, u64, st.integers(0, 2**31 - 1)),
    beats(),
    st.builds(ClockProbe, u64),
    st.builds(ClockReply, u64, st.integers(-(2**63), 2**63 - 1), st.booleans()),
    st.builds(HeartbeatReply, st.lists(u64, max_size=5).map(tuple)),
)


def whole(sent: list[Message]) -> bytes:
    return b"".join(encode_frame(sent))


@given(st.lists(messages, max_size=6))
def test_round_trip(sent: list[Message]) -> None:
    head, received = decode_frame(whole(sent))
    assert received == sent
    assert not head.HasField("hello")


def test_a_beat_with_columns_of_unequal_length_is_refused() -> None:
    beat = pb.Message(type=pb.MESSAGE_TYPE_BEAT, groups=[1, 2], terms=[1, 1], commits=[5])
    head = pb.Frame(messages=[beat]).SerializeToString()
    with pytest.raises(FrameError, match="columns"):
        decode_frame(len(head).to_bytes(4, "little") + head)


def test_hello() -> None:
    hello = pb.Hello(cluster_id="c", node_id=3, protocol_version=1, incarnation=9)
    head, received = decode_frame(encode_hello(hello))
    assert head.hello == hello
    assert received == []


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(raw: bytes) -> None:
    try:
        decode_frame(raw)
    except FrameError:
        return


@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_damaged_frames_are_taken_or_refused(sent: list[Message], data: st.DataObject) -> None:
    raw = bytearray(whole(sent))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    try:
        decode_frame(bytes(raw))
    except FrameError:
        return


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "frame of 0 bytes"),
        (b"\xff\xff\xff\x7f", "head of 2147483647 bytes"),
        (whole([Append(1, 1, 1, 1, 1, (1,), (b"abc",))])[:-1], "entry of 3 bytes"),
        (whole([Append(1, 1, 1, 1, 1, (1,), (b"abc",))]) + b"x", "1 bytes too many"),
        (whole([Append(1, 1, 1, 1, 1, (1,), (b"",))]), "entry of 0 bytes"),
    ],
    ids=["empty", "head too long", "cut off", "too long", "empty entry"],
)
def test_refusal_says_why(raw: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        decode_frame(raw)
