"""End of a producer: its flush, its unseen failures, and the end of the program.

Place in the flow: `Producer` flushes and closes through it. A dropped producer is ended here on the
engine's loop. Producers that are open when the program ends are flushed for a bounded time.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import time
from collections.abc import Iterable
from multiprocessing import util

from oncelog import errors
from oncelog._engine.net import diverting, runtime
from oncelog._engine.net.cluster import Cluster
from oncelog._engine.net.threads import refuse_to_wait
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.sender import Sender
from oncelog._engine.produce.transactions import ProducerTransactions

log = logging.getLogger("oncelog.producer")

EXIT_FLUSH_S = 5.0
_STOP_S = 1.0

_open: set[Sender] = set()
_exit_of = 0  # process with a prepared end


def opened(sender: Sender) -> None:
    """Flush it when the program ends, unless it was ended before."""
    global _exit_of
    _open.add(sender)
    if _exit_of != os.getpid():
        _exit_of = os.getpid()
        if multiprocessing.parent_process() is not None:
            # A process forked by multiprocessing does not call atexit functions.
            util.Finalize(None, flush_open, exitpriority=0)


async def end(sender: Sender, cluster: Cluster) -> None:
    """Free everything; unsettled records fail."""
    await sender.stop()
    _open.discard(sender)
    await cluster.close()


async def end_dropped(sender: Sender, transactions: ProducerTransactions, cluster: Cluster) -> None:
    """End a dropped producer once its records are settled."""
    await transactions.close(None)
    sender.accumulator.begin_flush()
    while sender.accumulator.incomplete:
        sender.settled.clear()
        await sender.settled.wait()
    await end(sender, cluster)
    _say("a producer was dropped without close", [sender])


def flush(accumulator: Accumulator, timeout: float | None) -> None:
    """Send lingering records and wait until all are settled. Raises RequestTimeoutError."""
    refuse_to_wait("flush")
    deadline = None if timeout is None else time.monotonic() + timeout
    waiting = accumulator.begin_flush()
    try:
        for position, delivery in enumerate(waiting):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not delivery.wait_told(left):
                raise errors.RequestTimeoutError(
                    f"{len(waiting) - position} batches are not settled after {timeout:g} s"
                )
    finally:
        accumulator.end_flush()


def undelivered(senders: Iterable[Sender]) -> errors.UndeliveredRecordsError | None:
    """Return the failures that the application has not seen, once."""
    first: errors.OncelogError | None = None
    count = 0
    for sender in senders:
        count += sender.failed_dropped
        sender.failed_dropped = 0
        while sender.failed:
            delivery = sender.failed.popleft()
            missing = delivery.unhandled
            count += missing
            if missing and first is None:
                first = delivery.error
    if not count:
        return None
    text = f"{count} records were not delivered" + (f", the first: {first}" if first else "")
    error = errors.UndeliveredRecordsError(text, count=count)
    if isinstance(first, errors.DeliveryError):
        error.outcome = first.outcome
    error.__cause__ = first
    return error


def raise_undelivered(sender: Sender) -> None:
    if (error := undelivered([sender])) is not None:
        raise error


def flush_open() -> None:
    """Flush open producers at the end of the program, and log undelivered records."""
    senders = list(_open)
    if senders and not runtime.is_over():
        deadline = time.monotonic() + EXIT_FLUSH_S
        for sender in senders:
            try:
                flush(sender.accumulator, max(0.0, deadline - time.monotonic()))
            except (errors.OncelogError, RuntimeError) as error:
                log.debug("at exit: %s", error)
        for sender in senders:
            try:
                runtime.run(sender.stop(), _STOP_S)
            except (errors.OncelogError, RuntimeError, TimeoutError) as error:
                log.debug("at exit: %s", error)
        _open.difference_update(senders)
        _say("the program ends without closing its producer", senders)
    diverting.finish(_STOP_S)


def _say(what: str, senders: Iterable[Sender]) -> None:
    if (error := undelivered(senders)) is not None:
        log.error("%s: %s", what, error)


atexit.register(flush_open)
os.register_at_fork(after_in_child=_open.clear)
