"""Frames between nodes: decoding returns the encoded frame, and damage is a FrameError."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from cluster.consensus.message import (
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
    PreVote,
    PreVoteReply,
    Removed,
    StateChecksum,
    TimeoutNow,
    Vote,
    VoteReply,
)
from cluster.transport import frames
from cluster.transport.frames import (
    DamagedFrameError,
    FrameError,
    decode_frame,
    encode_frame,
    encode_hello,
)
from cluster.v1 import peer_pb2 as pb

u64 = st.integers(0, 2**64 - 1)
node_ids = st.integers(0, 2**31 - 1)
entry_lists = st.lists(st.tuples(u64, st.binary(min_size=1, max_size=40)), max_size=5)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    entries = draw(entry_lists)
    numbers = [draw(u64) for _ in range(5)]
    terms, data = tuple(t for t, _ in entries), tuple(d for _, d in entries)
    made = append(*numbers, terms=terms, data=data)
    return made._replace(from_instance=draw(u64), to_instance=draw(u64))


def append(
    group: int, term: int, prev: int, prev_term: int, commit: int,
    *, terms: tuple[int, ...], data: tuple[bytes, ...],
) -> Append:  # fmt: skip
    return Append(group, term, prev, prev_term, commit, terms, data, tuple(map(crc32c, data)))


@st.composite
def beats(draw: st.DrawFn) -> Heartbeat:
    rows = draw(st.lists(st.tuples(u64, u64, u64), max_size=5))
    return Heartbeat(*(tuple(row[column] for row in rows) for column in range(3)))


@st.composite
def changes(draw: st.DrawFn) -> LeaderChanges:
    rows = draw(st.lists(st.tuples(u64, u64, node_ids), max_size=5))
    columns = (tuple(row[column] for row in rows) for column in range(3))
    return LeaderChanges(draw(u64), draw(u64), draw(u64), *columns)


messages: st.SearchStrategy[Message] = st.one_of(
    appends(),
    st.builds(AppendReply, u64, u64, u64, st.booleans(), u64, u64, u64, u64),
    st.builds(Vote, u64, u64, u64, u64, u64, u64, u64, u64),
    st.builds(VoteReply, u64, u64, u64, u64),
    st.builds(PreVote, u64, u64, u64, u64, u64, u64, u64, u64),
    st.builds(PreVoteReply, u64, u64, st.booleans(), u64, u64, u64, u64),
    st.builds(TimeoutNow, u64, u64, u64, u64),
    st.builds(CheckpointAt, u64, u64, u64, u64, u64),
    st.builds(StateChecksum, u64, u64, u64, st.integers(0, 2**32 - 1), u64, u64),
    st.builds(Removed, u64, u64, u64, u64, u64, u64, u64),
    st.builds(LeaderNotice, u64, u64, node_ids),
    beats(),
    st.builds(ClockProbe, u64),
    st.builds(
        ClockReply,
        u64,
        st.integers(-(2**63), 2**63 - 1),
        st.booleans(),
        st.booleans(),
        st.lists(node_ids, max_size=3).map(tuple),
    ),
    st.builds(LeadersSince, u64, u64),
    changes(),
    st.builds(HeartbeatReply, st.lists(u64, max_size=5).map(tuple)),
)


def whole(sent: list[Message]) -> bytes:
    return b"".join(encode_frame(sent))


@given(st.lists(messages, max_size=6))
def test_round_trip(sent: list[Message]) -> None:
    head, received = decode_frame(whole(sent))
    assert received == sent
    assert not head.HasField("hello")


@pytest.mark.parametrize(
    "message",
    [
        pb.Message(type=pb.MESSAGE_TYPE_BEAT, groups=[1, 2], terms=[1, 1], commits=[5]),
        pb.Message(type=pb.MESSAGE_TYPE_LEADER_CHANGES, groups=[1, 2], terms=[1, 1], nodes=[5]),
    ],
)
def test_columns_of_unequal_length_are_refused(message: pb.Message) -> None:
    head = pb.Frame(messages=[message]).SerializeToString()
    prefix = len(head).to_bytes(4, "little") + crc32c(head).to_bytes(4, "little")
    with pytest.raises(FrameError, match="columns"):
        decode_frame(prefix + head)


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
def test_damaged_frames_are_refused(sent: list[Message], data: st.DataObject) -> None:
    raw = bytearray(whole(sent))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FrameError):
        decode_frame(bytes(raw))


def test_each_flipped_bit_is_found_and_without_the_check_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Message] = [append(7, 3, 9, 3, 8, terms=(3, 3), data=(b"first", b"second"))]
    raw = whole(sent)
    damaged = [(int.from_bytes(raw) ^ (1 << bit)).to_bytes(len(raw)) for bit in range(8 * len(raw))]
    for one in damaged:
        with pytest.raises(FrameError):
            decode_frame(one)
    monkeypatch.setattr(frames, "_is_intact", lambda data, checksum: True)
    assert decode_frame(damaged[0])[1] != sent


def test_what_is_damaged_is_named() -> None:
    raw = whole([append(7, 3, 9, 3, 8, terms=(3, 3), data=(b"first", b"second"))])
    with pytest.raises(DamagedFrameError, match="entry 11 of group 7"):
        decode_frame(raw[:-1] + b"?")
    with pytest.raises(DamagedFrameError, match="head of"):
        decode_frame(raw[:8] + bytes([raw[8] ^ 1]) + raw[9:])


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "frame of 0 bytes"),
        (b"\xff\xff\xff\x7f" + bytes(4), "head of 2147483647 bytes"),
        (whole([append(1, 1, 1, 1, 1, terms=(1,), data=(b"abc",))])[:-1], "entry of 3 bytes"),
        (whole([append(1, 1, 1, 1, 1, terms=(1,), data=(b"abc",))]) + b"x", "1 bytes too many"),
        (whole([append(1, 1, 1, 1, 1, terms=(1,), data=(b"",))]), "entry of 0 bytes"),
    ],
    ids=["empty", "head too long", "cut off", "too long", "empty entry"],
)
def test_refusal_says_why(raw: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        decode_frame(raw)
