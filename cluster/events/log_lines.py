"""Log lines of a node as events: leaders, moves, slow fsyncs, lost memberships, links.

    log.info("leads partition=%s term=%d", ...) --> LogEvents --> Recorder

A line below the node's `log_level` is no event. `partition=` and `group=` in a line name its
subject.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial

from cluster.events.recorder import GROUP, LEADER, MOVE, NODE, SLOW, Recorder

LOGGER = "cluster"  # all of a node's own lines
# The beginnings of lines, and their kinds.
_BEGINNINGS = {
    "leads ": LEADER,
    "steps down ": LEADER,
    "lost member ": GROUP,
    "configuration ": MOVE,
    "%s of node ": MOVE,
    "removed ": MOVE,
    "replica removed ": MOVE,
    "partition deleted ": MOVE,
    "damaged replica": MOVE,
    "snapshot ": MOVE,
    "sending snapshot ": MOVE,
    "an fsync ": SLOW,
    "the fsync ": SLOW,
    "the event loop ": SLOW,
}
_PARTITION = re.compile(r"\bpartition=(\S+)-(\d+)(?=[\s,:]|$)")
_GROUP = re.compile(r"\bgroup=(\S+)")


def record_log(recorder: Recorder) -> Callable[[], None]:
    """Note each line from now on; the returned function ends that."""
    handler, logger = LogEvents(recorder), logging.getLogger(LOGGER)
    logger.addHandler(handler)
    return partial(logger.removeHandler, handler)


class LogEvents(logging.Handler):
    """Notes each line of the node's own loggers in its recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.INFO)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text, form = record.getMessage(), str(record.msg)
        except (TypeError, ValueError):  # the line's own handler reports it
            return
        kind = next((kind for words, kind in _BEGINNINGS.items() if form.startswith(words)), NODE)
        partition, group = _PARTITION.search(text), _GROUP.search(text)
        if partition is not None:
            name, number = partition.group(1), int(partition.group(2))
            self._recorder.note(kind, "topic", name, text, partition=number)
        elif kind == GROUP and group is not None:
            self._recorder.note(kind, "group", group.group(1), text)
        else:
            self._recorder.note(kind, "cluster", "", text)
