"""Workers that share the jobs of a topic; one is killed, one is stopped and wakes up.

    python examples/workers.py                    # each job's effect at least once
    python examples/workers.py --transactions     # each job's effect once

How it works:

- The workers are members of one group: the nodes share the topic's partitions out among them.
  Jobs that a worker has not committed before its end are done again by another.
- The effect of a job is a record in another topic. Without transactions a worker writes the
  effects and then commits its position. If it is killed or stopped between the two, others write
  the same effects again.
- With transactions both become true at the same moment, or neither does. A worker that was
  stopped for so long that others own its partitions is rejected when it wakes up: its effects
  are dropped unread.

At the end the effects of each job are counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence

from oncelog import (
    Admin,
    Consumer,
    FencedMemberError,
    Producer,
    Record,
    TransactionAbortedError,
)

PARTITIONS = 6
SESSION_MS = 2000
JOB_S = 0.002  # duration of a job


class Worker:
    """One of the processes, until SIGTERM."""

    def __init__(self, bootstrap: str, run: str, transactions: bool) -> None:
        self._effects = f"{run}-effects"
        self._transactions = transactions
        self._stopped = False
        signal.signal(signal.SIGTERM, self._stop)
        name = f"{run}-{os.getpid()}" if transactions else None
        self._producer = Producer(bootstrap_servers=bootstrap, producer_name=name, linger_ms=0)
        self._consumer = Consumer(
            f"{run}-jobs",
            bootstrap_servers=bootstrap,
            group_id=run,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
        )

    def run(self) -> None:
        with self._producer, self._consumer:
            while not self._stopped:
                found = self._consumer.getmany(timeout_ms=200, max_records=20)
                jobs = [job for some in found.values() for job in some]
                if not jobs:
                    continue
                try:
                    self._work_once(jobs) if self._transactions else self._work(jobs)
                except (FencedMemberError, TransactionAbortedError):
                    self._go_back()  # others own some of these by now

    def _work(self, jobs: Sequence[Record]) -> None:
        for job in jobs:
            time.sleep(JOB_S)
            self._producer.send(self._effects, job.value)
        self._producer.flush()
        self._consumer.commit()

    def _work_once(self, jobs: Sequence[Record]) -> None:
        with self._producer.transaction() as txn:
            for job in jobs:
                time.sleep(JOB_S)
                txn.send(self._effects, job.value)
            txn.commit_offsets(self._consumer)

    def _go_back(self) -> None:
        """Seek to the group's offsets, in our remaining partitions."""
        for place in self._consumer.assignment():
            committed = self._consumer.committed(place)
            self._consumer.seek(place, 0 if committed is None else committed.offset)

    def _stop(self, *_: object) -> None:
        self._stopped = True


def start(bootstrap: str, run: str, transactions: bool) -> subprocess.Popen[bytes]:
    words = [sys.executable, __file__, "--bootstrap", bootstrap, "--work", run]
    return subprocess.Popen([*words, "--transactions"] if transactions else words)


def left(admin: Admin, consumer: Consumer, run: str) -> int:
    """Return the jobs that no worker has committed."""
    tps = [(f"{run}-jobs", number) for number in range(PARTITIONS)]
    offsets = admin.describe_group(run).offsets
    return sum(
        end - (offsets[tp].offset if tp in offsets else 0)
        for tp, end in consumer.end_offsets(tps).items()
    )


def wait_until_left(admin: Admin, consumer: Consumer, run: str, most: int) -> None:
    while left(admin, consumer, run) > most:
        time.sleep(0.1)


def effects(bootstrap: str, run: str) -> Counter[bytes]:
    """Count the effects of each job."""
    with Consumer(
        f"{run}-effects",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=2000,
    ) as consumer:
        return Counter(record.value or b"" for record in consumer)


def demonstrate(bootstrap: str, run: str, count: int, transactions: bool) -> Counter[bytes]:
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(bootstrap_servers=bootstrap) as consumer,
    ):
        admin.create_topic(f"{run}-jobs", PARTITIONS)
        admin.create_topic(f"{run}-effects", 1)
        for number in range(count):
            producer.send(f"{run}-jobs", b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
        workers = [start(bootstrap, run, transactions) for _ in range(3)]
        try:
            wait_until_left(admin, consumer, run, count * 4 // 5)
            print("one is killed, one is stopped for longer than its session", flush=True)
            workers[0].kill()
            workers[1].send_signal(signal.SIGSTOP)
            time.sleep(1.5 * SESSION_MS / 1000)
            print("it wakes up", flush=True)
            workers[1].send_signal(signal.SIGCONT)
            wait_until_left(admin, consumer, run, 0)
        finally:
            for worker in workers:
                worker.send_signal(signal.SIGCONT)
                worker.terminate()
            for worker in workers:
                worker.wait()
    return effects(bootstrap, run)


def main() -> int:
    parser = argparse.ArgumentParser(description="Jobs shared by processes that are harmed.")
    parser.add_argument("--bootstrap", default="127.0.0.1:7001")
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--work", metavar="RUN", help="be one of the workers")
    wanted = parser.parse_args()
    if wanted.work:
        Worker(wanted.bootstrap, wanted.work, wanted.transactions).run()
        return 0
    run = f"workers-{os.getpid()}"
    counts = demonstrate(wanted.bootstrap, run, wanted.jobs, wanted.transactions)
    missing = wanted.jobs - len(counts)
    again = sum(times - 1 for times in counts.values())
    print(f"{wanted.jobs} jobs: {missing} without an effect, {again} effects too many")
    return 1 if missing or (again and wanted.transactions) else 0


if __name__ == "__main__":
    sys.exit(main())
