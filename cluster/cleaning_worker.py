"""Entry point of a cleaner's worker: answers the requests of its node until its input ends.

    Cleaner (in the node) --frames on stdin--> CleaningWorker --frames on stdout--> Cleaner

Frames are those of `cleaning/messages.py`. The process yields the processor to its node, and has a
limit of memory: it ends where it would need more.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys

NICENESS = 10
OWN_BYTES = 512 << 20  # of the program and of the batches at hand, beside the keys


def main(memory_bytes: int) -> None:
    # A terminal's Ctrl-C is for the node. In a session of its own this process would not yield to
    # the node: the kernel may share out processors by session first (autogroup).
    os.setpgrp()
    os.nice(NICENESS)
    # Only now: to load these takes 0.2 s of a core.
    from cluster.cleaning.messages import LENGTH_BYTES, CleaningWorker

    limit = memory_bytes + OWN_BYTES
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    worker, requests, replies = CleaningWorker(), sys.stdin.buffer, sys.stdout.buffer
    while head := requests.read(LENGTH_BYTES):
        request = requests.read(int.from_bytes(head, "little"))
        reply = worker.answer(request)
        replies.write(len(reply).to_bytes(LENGTH_BYTES, "little"))
        replies.write(reply)
        replies.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
