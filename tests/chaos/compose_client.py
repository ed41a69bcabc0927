"""Workload in a container: an idempotent producer that reports every acknowledgement.

    python compose_client.py TOPIC PARTITIONS RECORDS-PER-SECOND BOOTSTRAP

Writes one line for each acknowledged record: its row, partition, offset, and 1 if an earlier
attempt had stored it. A row is a record's number in the order of sending. Sends until its
standard input ends, waits for records on their way, and ends with a line "sent ROWS". It has
only the image's packages, so it imports nothing of the tests.
"""

from __future__ import annotations

import os
import select
import sys
import time
from functools import partial

from oncelog import OncelogError, Producer, RecordMetadata

TICK = 0.02  # seconds between bursts: the load is a rate
SIZE = 100  # bytes that are added to a record's number


class Reporter:
    """Called on the client's thread."""

    def __init__(self) -> None:
        self.failed = 0

    def delivered(
        self, row: int, metadata: RecordMetadata | None, error: OncelogError | None
    ) -> None:
        if metadata is None:
            self.failed += 1
            print(f"row {row}: {error!r}", file=sys.stderr)
        else:
            say(f"{row} {metadata.partition} {metadata.offset} {int(metadata.duplicate)}")


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def stopped(seconds: float) -> bool:
    """Waits so long; returns whether standard input has ended."""
    return bool(select.select([0], [], [], max(0.0, seconds))[0]) and not os.read(0, 1024)


def main() -> int:
    topic, partitions, rate, bootstrap = sys.argv[1:]
    count, rows, reporter = int(partitions), 0, Reporter()
    begun = time.monotonic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=5, compression_type="zstd") as producer:
        while not stopped(TICK):
            while rows < (time.monotonic() - begun) * int(rate):
                value = b"%d:%s" % (rows, b"x" * SIZE)
                acked = partial(reporter.delivered, rows)
                producer.send(topic, value, partition=rows % count, on_delivery=acked)
                rows += 1
        producer.flush()
    say(f"sent {rows}")
    return 1 if reporter.failed else 0


if __name__ == "__main__":
    sys.exit(main())
