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
    """Open missing standard descriptors on /dev/null; a stopping signal ends the start.

    Otherwise the next opened file, of the store say, would get the number of stderr.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    for signum in stopping():
        signal.signal(signum, _end)


def stopping() -> list[signal.Signals]:
    """Return the stop signals: SIGTERM, and the others unless already ignored (nohup, &)."""
    return [
        signum
        for signum in STOPPING
        if signum == signal.SIGTERM or signal.getsignal(signum) != signal.SIG_IGN
    ]


def _end(signum: int, frame: FrameType | None) -> None:
    os._exit(0)  # nothing is open yet


def part_stderr() -> int:
    """Return a descriptor for waiting on stderr. Libraries' writes to a full pipe are lost.

    Otherwise they would block their thread until its reader comes.
    """
    own = os.dup(2)
    if stat.S_ISFIFO(os.fstat(2).st_mode):
        try:
            # Our own open file description: other writers of this pipe may want to wait.
            other = os.open("/dev/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return own
        os.dup2(other, 2, inheritable=True)
        os.close(other)
    return own
