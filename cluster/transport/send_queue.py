"""Queue of one link: small messages overtake entries.

    PeerLink.send --put--> small: heartbeats, votes, replies  --+--> next_frame
                           bulk:  entries, in their order -------+

All groups of two nodes share a connection. A vote or a heartbeat behind megabytes of another
group's entries comes too late, and its group elects a new leader for nothing. docs/adr/0020 has the
rules of overtaking, and why Raft allows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from cluster.consensus.message import Append, Message
from cluster.transport.frames import size_of

FRAME_BYTES = 1024 * 1024  # of a frame with more than one message, about
MAX_BULK_BYTES = 128 * 1024 * 1024
MAX_SMALL_BYTES = 8 * 1024 * 1024  # some 100,000 messages


class SendQueue:
    """Messages for one peer. If the queue is full they are dropped: Raft sends them again."""

    def __init__(self) -> None:
        self._small: deque[Message] = deque()
        self._bulk: deque[Append] = deque()
        self.small_bytes = self.bulk_bytes = 0
        self._in_bulk: dict[int, int] = {}  # group -> how many of its messages wait in bulk

    def __len__(self) -> int:
        return len(self._small) + len(self._bulk)

    def clear(self) -> None:
        self._small.clear()
        self._bulk.clear()
        self._in_bulk.clear()
        self.small_bytes = self.bulk_bytes = 0

    def put(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(message, Append) and self._belongs_to_bulk(message):
                self._put_bulk(message)
            elif self.small_bytes <= MAX_SMALL_BYTES:
                self._small.append(message)
                self.small_bytes += size_of(message)

    def next_frame(self) -> list[Message]:
        """Returns the next messages, in order."""
        frame: list[Message] = []
        small = bulk = 0
        while self._small and small < FRAME_BYTES:
            message = self._small.popleft()
            small += size_of(message)
            frame.append(message)
        self.small_bytes -= small
        while self._bulk and small + bulk < FRAME_BYTES:
            append = self._bulk.popleft()
            bulk += size_of(append)
            frame.append(append)
            left = self._in_bulk.pop(append.group) - 1
            if left:
                self._in_bulk[append.group] = left
        self.bulk_bytes -= bulk
        return frame

    def _belongs_to_bulk(self, message: Append) -> bool:
        """Whether it must stay behind its group's entries, as a heartbeat that refers to them."""
        return bool(message.data) or (message.prev_index > 0 and message.group in self._in_bulk)

    def _put_bulk(self, message: Append) -> None:
        if self.bulk_bytes <= MAX_BULK_BYTES:
            self._bulk.append(message)
            self.bulk_bytes += size_of(message)
            self._in_bulk[message.group] = self._in_bulk.get(message.group, 0) + 1
