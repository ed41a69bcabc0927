"""Folding of log lines that come by the thousand: changes of leaders when a node starts or fails.

Group --"leads", "steps down"--> Folding --the first of each burst, then a count--> the log
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

log = logging.getLogger(__name__)

# The beginnings of messages that are folded.
FOLDED = ("leads ", "steps down ")
SHOWN = 20  # lines of each kind in a period
PERIOD = 10.0  # seconds


class Folding(logging.Filter):
    """Lets the first lines of a period through and counts the others, which one line then tells.

    start_timer(seconds, call): calls once, later, in any thread.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        start_timer: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._start_timer = start_timer or _start_timer
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._seen: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = next((one for one in FOLDED if str(record.msg).startswith(one)), None)
        if kind is None or record.levelno > logging.INFO:
            return True
        with self._lock:
            begins = self._clock() >= self._until
            if begins:
                self._until = self._clock() + PERIOD
                self._seen.clear()
            self._seen[kind] += 1
            shown = self._seen[kind] <= SHOWN
            first_hidden = not shown and sum(self._hidden().values()) == 1
        if first_hidden:
            self._start_timer(PERIOD, self.tell)
        return shown

    def tell(self) -> None:
        """Log the number of lines that were folded."""
        with self._lock:
            hidden = self._hidden()
            self._seen.clear()
            self._until = float("-inf")
        if hidden:
            log.info(
                "folded changes of leaders leads=%d steps_down=%d", *(hidden[k] for k in FOLDED)
            )

    def _hidden(self) -> Counter[str]:
        return Counter({k: count - SHOWN for k, count in self._seen.items() if count > SHOWN})


def _start_timer(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
