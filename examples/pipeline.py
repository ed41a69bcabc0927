"""Read, transform, write: every input record has its output exactly once, even after kills.

    python examples/pipeline.py --source lines --target words --worker a
    python examples/pipeline.py --source lines --target words --worker b     # in another terminal

How it works:

- The workers are members of one group: the nodes share the source's partitions out among them.
- A worker writes the output of some records, and its read position, in one transaction
  (`commit_offsets`). Both become true at the same moment, or neither does. So no record has its
  output stored without its position, and none is processed twice.
- A zombie worker that wakes up is rejected: another member owns its partitions, so its positions
  are not stored, and its output is dropped with them, unread.
- After an abort the worker goes back to the group's committed offsets, and tries again.

Readers of the target need no setting for it. To copy this, change `transform`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from oncelog import (
    CommitTimeoutError,
    Consumer,
    FencedMemberError,
    Producer,
    Record,
    Transaction,
    TransactionAbortedError,
)


def transform(record: Record) -> Iterator[tuple[bytes, bytes]]:
    """Return (key, value) of each output of this record: the words of a line.

    It depends on the record alone: after an abort it is called again.
    """
    place = f"{record.partition}/{record.offset}".encode()
    for word in (record.value or b"").split():
        yield word, place


class Pipeline:
    """One worker. Its producer name is its own, so a restart ends the transaction left open."""

    def __init__(
        self, bootstrap: str, source: str, target: str, group: str, worker: str, session_ms: int
    ) -> None:
        self._target = target
        self._producer = Producer(bootstrap_servers=bootstrap, producer_name=f"{group}-{worker}")
        self._consumer = Consumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=session_ms,
        )

    def step(self) -> int:
        """Process the available records; returns how many records were written."""
        found = self._consumer.getmany(timeout_ms=500)
        records = [record for some in found.values() for record in some]
        if not records:
            return 0
        txn = self._producer.transaction()
        try:
            return self._commit(txn, records)
        except CommitTimeoutError:
            # No node answered with the outcome. It has ended one way or the other: ask again.
            self._resolve(txn)
        except (TransactionAbortedError, FencedMemberError):
            pass  # none of it is readable
        self._go_back()
        return 0

    def _commit(self, txn: Transaction, records: list[Record]) -> int:
        written = 0
        with txn:
            for record in records:
                for key, value in transform(record):
                    txn.send(self._target, value, key)
                    written += 1
            txn.commit_offsets(self._consumer)
        return written

    def _resolve(self, txn: Transaction) -> None:
        while True:
            try:
                txn.commit()
                return
            except CommitTimeoutError:
                continue
            except TransactionAbortedError:
                return

    def _go_back(self) -> None:
        """Seek to the group's committed offsets: later records were not processed."""
        for place in self._consumer.assignment():
            committed = self._consumer.committed(place)
            if committed is None:
                self._consumer.seek_to_beginning(place)
            else:
                self._consumer.seek(place, committed.offset)

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Words of lines, each exactly once.")
    parser.add_argument("--bootstrap", default="127.0.0.1:7001")
    parser.add_argument("--source", default="lines")
    parser.add_argument("--target", default="words")
    parser.add_argument("--group", default="words-of-lines")
    parser.add_argument("--worker", required=True, help="its name: one for each that runs")
    parser.add_argument("--session-ms", type=int, default=10_000)
    wanted = parser.parse_args()
    pipeline = Pipeline(
        wanted.bootstrap,
        wanted.source,
        wanted.target,
        wanted.group,
        wanted.worker,
        wanted.session_ms,
    )
    try:
        while True:
            if written := pipeline.step():
                print(written, flush=True)
    except KeyboardInterrupt:
        return 0
    finally:
        pipeline.close()


if __name__ == "__main__":
    raise SystemExit(main())
