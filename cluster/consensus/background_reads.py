"""Background disk reads of the replicas: a few threads read while the node's loop goes on.

    ReadAhead, snapshots --ask--> BackgroundReads --start--> a thread: read()
                                        '<--on the loop: done(outcome)--'   then `touch`

The simulator starts reads at times of its own.

A read result waits in memory until its replica is advanced, possibly after a long fsync. A read
that ended since the last round therefore counts as still running.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

AT_A_TIME = 4

Done = Callable[[Any], None]
# Calls `read` anywhere, then calls `done` with its result on the loop.
Start = Callable[[Callable[[], object], Done], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    group: int
    read: Callable[[], Any]
    done: Done
    is_wanted: Callable[[], bool]


class BackgroundReads:
    """Background reads of all replicas of one node. The driver owns it.

    touch(group): the replica has something to do.
    """

    def __init__(self, start: Start, touch: Callable[[int], None]) -> None:
        self._start = start
        self._touch = touch
        self._asked: deque[_Asked] = deque()
        self._under_way = self._ended = 0

    def ask(
        self,
        group: int,
        read: Callable[[], Any],
        done: Done,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Queues `read`; then calls `done` with its result or the exception it raised.

        is_wanted: checked when the read's turn comes; if False, nothing is called.
        """
        self._asked.append(_Asked(group, read, done, is_wanted))
        self._begin_some()

    def next_round(self) -> None:
        """Starts a round, in which the results of finished reads are used."""
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
        try:
            asked.done(outcome)
        finally:
            self._touch(asked.group)


def _outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - whoever asked must not wait for ever
        return error
