"""What replicas read from the disk while the node's loop goes on: by threads, a few at a time.

    ReadAhead, snapshots --ask--> BackgroundReads --start--> a thread: read()
                                        '<--on the loop: done(outcome)--'   then `touch`

The simulator starts reads at times of its own.

What was read waits in memory until its replica is moved on, which may be after a long fsync.
So what ended since the last round counts as one that runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from storage.errors import StorageError

AT_A_TIME = 4

Done = Callable[[Any], None]
# Calls `read` anywhere, then `done` with what it returned, on the loop.
Start = Callable[[Callable[[], object], Done], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    group: int
    read: Callable[[], Any]
    done: Done
    is_wanted: Callable[[], bool]


class BackgroundReads:
    """Of all replicas of one node. The driver owns it.

    touch(group): the replica has something to do.
    """

    def __init__(self, start: Start, touch: Callable[[int], None]) -> None:
        self._start, self._touch = start, touch
        self._asked: deque[_Asked] = deque()
        self._under_way = self._ended = 0

    def ask(
        self,
        group: int,
        read: Callable[[], Any],
        done: Done,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Calls `read` in its turn, then `done` with what it gave: or the StorageError it raised.

        is_wanted: asked when it is its turn; False: nothing is called.
        """
        self._asked.append(_Asked(group, read, done, is_wanted))
        self._begin_some()

    def next_round(self) -> None:
        """What ended is about to be used."""
        if self._ended:
            self._ended = 0
            self._begin_some()

    def _begin_some(self) -> None:
        while self._asked and self._under_way + self._ended < AT_A_TIME:
            asked = self._asked.popleft()
            if asked.is_wanted():
                self._under_way += 1
                self._start(partial(_outcome, asked.read), partial(self._end, asked))

    def _end(self, asked: _Asked, outcome: Any) -> None:
        self._under_way -= 1
        self._ended += 1
        assert self._under_way >= 0
        asked.done(outcome)
        self._touch(asked.group)


def _outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except StorageError as error:
        return error
