"""First steps of a node's process, before anything large is imported: descriptors and signals.

__main__ --> prepare --> everything else
"""

from __future__ import annotations

import os
import signal
import stat
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def prepare() -> None:
    """Opens /dev/null where a standard descriptor is missing; a stopping signal ends the start.

    Else the next file that is opened, of the store say, gets the number of stderr.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    for signum in stopping():
        signal.signal(signum, _end)


def stopping() -> list[signal.Signals]:
    """Signals that stop the node: all but those that the caller wants ignored (nohup, &)."""
    return [
        signum
        for signum in STOPPING
        if signum == signal.SIGTERM or signal.getsignal(signum) != signal.SIG_IGN
    ]


def _end(signum: int, frame: FrameType | None) -> None:
    os._exit(0)  # nothing is open yet


def part_stderr() -> int:
    """A descriptor of stderr to wait at. What libraries write to a full pipe is lost from now on.

    They would wait for its reader, on whatever thread they are.
    """
    own = os.dup(2)
    if stat.S_ISFIFO(os.fstat(2).st_mode):
        try:
            # A description of our own: others may write to this pipe, too, and want to wait.
            other = os.open("/dev/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return own
        os.dup2(other, 2, inheritable=True)
        os.close(other)
    return own
