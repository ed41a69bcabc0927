"""The queue of a link: which frames overtake others, and which are dropped when too many wait."""

from __future__ import annotations

import pytest

from cluster.consensus.message import (
    Append,
    AppendReply,
    Heartbeat,
    Message,
    PreVote,
    TimeoutNow,
    Vote,
)
from cluster.transport import send_queue
from cluster.transport.frames import size_of
from cluster.transport.send_queue import FRAME_BYTES, MAX_BULK_BYTES, SendQueue

SIZE = 300_000


def entries(group: int, index: int, size: int = SIZE) -> Append:
    return Append(group, 1, index - 1, 1, 0, (1,), (bytes(size),))


def heartbeat(group: int, prev: int) -> Append:
    return Append(group, 1, prev, 1 if prev else 0, prev)


def all_of(queue: SendQueue) -> list[Message]:
    out: list[Message] = []
    while queue:
        out += queue.next_frame()
    return out


@pytest.mark.parametrize(
    "small",
    [
        Vote(2, 1, 1, 1),
        PreVote(2, 1, 1, 1),
        AppendReply(1, 1, 5, True),
        Heartbeat((2,), (1,), (1,)),
        TimeoutNow(2, 1),
        heartbeat(2, 7),
        heartbeat(1, 0),
    ],
)
def test_small_messages_overtake_entries(small: Message) -> None:
    queue, bulk = SendQueue(), [entries(1, index) for index in range(2, 30)]
    queue.put(bulk)
    assert queue.next_frame() == bulk[:4], "a frame ends behind the message that fills it"
    queue.put([small])
    assert all_of(queue) == [small, *bulk[4:]]


def test_a_heartbeat_that_speaks_of_entries_stays_behind_them() -> None:
    """The follower would refuse it, and all that is on its way would be sent again."""
    queue = SendQueue()
    sent = [entries(1, 2), heartbeat(1, 2), entries(1, 3), heartbeat(1, 3)]
    queue.put([*sent, heartbeat(2, 5)])
    assert all_of(queue) == [heartbeat(2, 5), *sent]
    queue.put([entries(1, 4, size=5)])
    queue.next_frame()
    queue.put([entries(2, 6), heartbeat(1, 4)])
    assert all_of(queue) == [heartbeat(1, 4), entries(2, 6)], "its own entries have left"


def test_too_many_entries_are_dropped_and_nothing_small_is() -> None:
    queue = SendQueue()
    queue.put([entries(1, index, size=FRAME_BYTES) for index in range(2, 500)])
    assert MAX_BULK_BYTES < queue.bulk_bytes <= MAX_BULK_BYTES + size_of(entries(1, 2, FRAME_BYTES))
    waiting = len(queue)
    queue.put([Vote(1, 2, 1, 1), entries(2, 2)])
    assert len(queue) == waiting + 1
    assert queue.next_frame()[0] == Vote(1, 2, 1, 1)
    all_of(queue)
    assert queue.bulk_bytes == queue.small_bytes == 0


def test_a_peer_that_takes_nothing_costs_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_queue, "MAX_SMALL_BYTES", 1000)
    queue = SendQueue()
    for _ in range(1000):
        queue.put([Vote(1, 2, 1, 1)])
    assert queue.small_bytes <= 1000 + size_of(Vote(1, 2, 1, 1))
    assert len(queue) < 20


def test_nothing_of_a_link_that_broke_is_left() -> None:
    queue = SendQueue()
    queue.put([entries(1, 2), Vote(1, 2, 1, 1)])
    queue.clear()
    queue.put([heartbeat(1, 2), entries(1, 3)])
    assert all_of(queue) == [heartbeat(1, 2), entries(1, 3)]
    assert queue.bulk_bytes == queue.small_bytes == 0
