"""Consumer in a group, as a process of its own that reports its events.

    python -m harness.group_worker '{"bootstrap": "...", "topic": "t", "group": "g", ...}'

Each output line is an event as JSON: `assigned` with the ownership numbers, `revoked`, `lost`,
`records` (each partition's first offset and the one after the last), `committing` with the
offsets, and `committed` with the error. `at` is the machine's monotonic clock, which all
processes share. On SIGTERM the worker leaves its group and ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.own_python import ROOT
from oncelog import Consumer, OncelogError, TopicPartition

Event = dict[str, Any]


class Worker:
    """Consumer that reads, works a little and commits until it is stopped."""

    def __init__(self, topic: str, work_s: float, **settings: Any) -> None:
        self._work_s = work_s
        self._stopped = False
        signal.signal(signal.SIGTERM, self._stop)
        self._consumer = Consumer(
            topic,
            auto_offset_reset="earliest",
            on_assigned=self._assigned,
            on_revoked=lambda tps, _: self._tell("revoked", partitions=_numbers(tps)),
            on_lost=lambda tps: self._tell("lost", partitions=_numbers(tps)),
            **settings,
        )

    def run(self) -> None:
        with self._consumer as consumer:
            while not self._stopped:
                found = consumer.getmany(timeout_ms=200, max_records=50)
                if not found:
                    continue
                spans = {
                    tp.partition: [some[0].offset, some[-1].offset + 1]
                    for tp, some in found.items()
                }
                time.sleep(self._work_s)
                self._tell("records", spans=spans)
                self._commit({tp: some[-1].offset + 1 for tp, some in found.items()})

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        places = {tp.partition: offset for tp, offset in offsets.items()}
        self._tell("committing", offsets=places)
        error = ""
        try:
            self._consumer.commit(dict(offsets.items()))
        except OncelogError as refused:
            error = refused.reason
        self._tell("committed", error=error)

    def _assigned(self, tps: list[TopicPartition]) -> None:
        rebalance = self._consumer._rebalance
        assert rebalance is not None
        self._tell("assigned", numbers={tp.partition: rebalance.numbers[tp] for tp in tps})

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _tell(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, "at": time.monotonic(), **facts})
        os.write(1, (line + "\n").encode())


def _numbers(tps: list[TopicPartition]) -> list[int]:
    return [tp.partition for tp in tps]


class WorkerProcess:
    """Handle of a worker's process: its events, and signals to it.

    command: words put before the worker's own command, such as a wrapper that enters a namespace.
    """

    def __init__(self, log: Path, *, command: Sequence[str] = (), **settings: Any) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, sys.executable, "-m", "harness.group_worker", json.dumps(settings)],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            event["pid"] = self._process.pid
            for name in ("numbers", "spans", "offsets"):
                if name in event:  # JSON has no numbers as keys
                    event[name] = {int(key): value for key, value in event[name].items()}
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()

    @property
    def owned(self) -> dict[int, int]:
        """Owned partitions -> ownership numbers, from the events."""
        held: dict[int, int] = {}
        with self._changed:
            for event in self.events:
                held |= event.get("numbers", {})
                for number in event.get("partitions", ()):
                    held.pop(number, None)
        return held

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM, timeout: float = 30.0) -> None:
        """Ends the worker, even a stopped one, and reads its events to the last line."""
        if self.running:
            self.send(number)
            if number != signal.SIGKILL:
                self.send(signal.SIGCONT)
        self._process.wait(timeout)
        self._reader.join(timeout)


def main() -> None:
    given = json.loads(sys.argv[1])
    worker = Worker(
        given.pop("topic"),
        given.pop("work_s", 0.0),
        bootstrap_servers=given.pop("bootstrap"),
        group_id=given.pop("group"),
        **given,
    )
    worker.run()


if __name__ == "__main__":
    main()
