"""Guard of a consumer: one reader at a time, a second one is rejected at once.

Place in the flow: `Consumer` asks here in each call that returns records, for its thread or, with
asyncio, for its task. Kafka's Java client does the same. Two readers would take records from the
same batch and move each other's position.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog._engine.consume.fetch_buffer import Chunk
from oncelog.errors import InvalidRequestError

_KEY = "reader"


class OneReader:
    """Guard of one consumer. No lock: a signal's exception could leave it taken."""

    def __init__(self) -> None:
        self._reader: dict[str, list[object]] = {}  # `setdefault` asks and takes in one step

    @contextmanager
    def reading(self, who: object = None) -> Iterator[None]:
        """Read as this task (None: this thread). A callback may read within its own read.

        Raises InvalidRequestError while another reader is active.
        """
        mine = [threading.get_ident() if who is None else who]
        try:
            if self._reader.setdefault(_KEY, mine) != mine:
                raise _refusal()
            yield
        finally:
            # No call, after which a signal handler could run.
            if _KEY in self._reader and self._reader[_KEY] is mine:
                del self._reader[_KEY]


def check_free(chunk: Chunk) -> None:
    """Raises InvalidRequestError if another thread iterates over this batch."""
    if chunk.looping_thread not in (0, threading.get_ident()):
        raise _refusal()


def _refusal() -> InvalidRequestError:
    return InvalidRequestError(
        "the consumer is in use by another thread or task: one reads at a time; make a consumer "
        "for each, or read in one and hand the records on",
        field="consumer",
    )
