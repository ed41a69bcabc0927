"""Chaos with a consumer group: members and coordinators are harmed, and all is judged at the end.

    scripts/chaos groups --minutes 1 --seed 1

A producer fills a topic that some processes share, each in a network namespace of its own. Faults
by a seed: members are killed, stopped for longer than their session, come and go, are cut off one
by one or all; the coordinator is killed or stopped. After each fault the group has to settle.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.group_worker import WorkerProcess
from harness.local_cluster import LOOK_AGAIN, LocalCluster
from oncelog import Admin, Consumer, OncelogError, Producer, TopicPartition
from tests.chaos.group_checker import check

TOPIC, GROUP, PARTITIONS = "work", "workers", 8
MEMBERS = 4
FIRST_PLACE = 100
SESSION_S = 4.0
SETTLE_LIMIT_S = 60.0


class Stuck(AssertionError):
    """A group that did not settle."""


class Run:
    """A cluster, a producer, the members, and the times at which each was harmed."""

    def __init__(self, cluster: LocalCluster, seed: int, log: Path) -> None:
        self.cluster, self._log, self._rng = cluster, log, random.Random(seed)
        self._admin = Admin(bootstrap_servers=cluster.bootstrap, request_timeout_ms=30_000)
        self.workers: list[WorkerProcess] = []
        self._places: dict[int, int] = {}  # process -> its namespace
        self.harmed: dict[int, list[tuple[float, float]]] = {}
        self.faults: dict[str, int] = {}
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._filling = threading.Thread(target=self._fill, daemon=True)

    def go(self, seconds: float) -> None:
        self._admin.create_topic(TOPIC, PARTITIONS, 3)
        self._filling.start()
        for _ in range(MEMBERS):
            self._start()
        self._settle("start")
        end = time.monotonic() + seconds
        kinds = list(FAULTS)
        while time.monotonic() < end:
            name = kinds.pop(self._rng.randrange(len(kinds)))
            kinds = kinds or list(FAULTS)
            self.faults[name] = self.faults.get(name, 0) + 1
            FAULTS[name](self)
            self._settle(name)
        self._stop.set()
        self._filling.join()
        self._finish()

    def close(self) -> None:
        self._stop.set()
        for worker in self.workers:
            worker.end(signal.SIGKILL)
        self._admin.close()

    # -- faults ---------------------------------------------------------------------------

    def kill_member(self) -> None:
        self._rng.choice(self._alive()).end(signal.SIGKILL)
        self._start()

    def stop_member(self) -> None:
        """Stops a member for longer than its session: at its wake-up others have its partitions."""
        one = self._rng.choice(self._alive())
        begun = time.monotonic()
        one.send(signal.SIGSTOP)
        time.sleep(SESSION_S * self._rng.uniform(1.1, 1.6))
        one.send(signal.SIGCONT)
        self.harmed.setdefault(one.pid, []).append((begun, time.monotonic()))

    def pause_member(self) -> None:
        """Stops a member for less than its session: nothing may move."""
        before = self._owners()
        one = self._rng.choice(self._alive())
        begun = time.monotonic()
        one.send(signal.SIGSTOP)
        time.sleep(SESSION_S * 0.3)
        one.send(signal.SIGCONT)
        self.harmed.setdefault(one.pid, []).append((begun, time.monotonic()))
        self._must_be("a pause below the session", before)

    def flap(self) -> None:
        """Adds and removes a member: partitions that others need not give to it stay."""
        before = self._owners()
        rounds = 3
        for _ in range(rounds):
            one = self._start()
            self._until(lambda: bool(one.owned), "it joins")  # noqa: B023
            one.end(self._rng.choice([signal.SIGTERM, signal.SIGKILL]))
        self._settle("flap")
        after = self._owners()
        moved = sum(after[partition] != owner for partition, owner in before.items())
        most = rounds * -(-PARTITIONS // (MEMBERS + 1))
        if moved > most:
            self.wrong.append(f"{moved} partitions moved for {rounds} flaps, {most} may")

    def kill_coordinator(self) -> None:
        before = self._owners()
        node = self._coordinator()
        self.cluster.kill([node])
        self._until(lambda: self._coordinator() != node, "another one leads")
        self._must_be("the coordinator's end", before)
        self.cluster.start_nodes([node])

    def stop_coordinator(self) -> None:
        before = self._owners()
        node = self._coordinator()
        self.cluster.pause(node)
        try:
            self._until(lambda: self._coordinator() != node, "another one leads")
            self._must_be("the coordinator's stop", before)
        finally:
            self.cluster.resume(node)

    def cut_member(self) -> None:
        """Cuts a member off for longer than its session: others get its partitions; it drops them.

        Unlike a stopped one it is not harmed in the checker's sense: its clock goes on.
        """
        network = self.cluster.network
        assert network is not None
        one = self._rng.choice(self._alive())
        others = [other for other in self._alive() if other is not one]
        network.unplug(self._places[one.pid])
        try:
            self._until(lambda: sum(len(o.owned) for o in others) == PARTITIONS, "others have all")
        finally:
            network.plug(self._places[one.pid])

    def cut_clients(self) -> None:
        """Cuts all clients off the coordinator, which goes on leading."""
        begun = time.monotonic()
        assert self.cluster.proxy is not None
        route = f"client-{self._coordinator()}"
        self.cluster.proxy.ask("cut", route)
        time.sleep(SESSION_S * 1.2)
        self.cluster.proxy.ask("heal", route)
        time.sleep(SESSION_S)  # all come back, under other numbers
        for one in self._alive():
            self.harmed.setdefault(one.pid, []).append((begun, time.monotonic()))

    # -- parts ----------------------------------------------------------------------------

    def _start(self) -> WorkerProcess:
        network = self.cluster.network
        assert network is not None
        used = {self._places[one.pid] for one in self._alive()}
        place = next(number for number in range(FIRST_PLACE, 200) if number not in used)
        if place not in self._places.values():
            network.join(place)
        one = WorkerProcess(
            self._log,
            command=network.command(place),
            bootstrap=self.cluster.bootstrap,
            topic=TOPIC,
            group=GROUP,
            session_timeout_ms=round(SESSION_S * 1000),
            work_s=0.01,
        )
        self._places[one.pid] = place
        self.workers.append(one)
        return one

    def _alive(self) -> list[WorkerProcess]:
        return [one for one in self.workers if one.running]

    def _coordinator(self) -> int:
        return self._admin.describe_group(GROUP).coordinator_id

    def _owners(self) -> dict[int, tuple[int, int]]:
        """Partition -> process, number of its ownership."""
        return {
            partition: (one.pid, number)
            for one in self._alive()
            for partition, number in one.owned.items()
        }

    def _must_be(self, what: str, before: dict[int, tuple[int, int]]) -> None:
        """Checks that a session later nothing has changed."""
        time.sleep(SESSION_S * 1.1)
        after = self._owners()
        moved = sorted(
            partition for partition in before if after.get(partition) != before[partition]
        )
        if moved:
            self.wrong.append(f"after {what} partitions {moved} have moved")

    def _settle(self, what: str) -> None:
        def even() -> bool:
            shares = [len(one.owned) for one in self._alive()]
            return sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

        self._until(even, f"the group settles after {what}")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + SETTLE_LIMIT_S
        while True:
            try:
                if condition():
                    return
            except OncelogError:
                pass  # nobody answers yet
            if time.monotonic() > end:
                shares = {one.pid: sorted(one.owned) for one in self._alive()}
                raise Stuck(f"not so after {SETTLE_LIMIT_S} s: {what}: {shares}")
            time.sleep(LOOK_AGAIN)

    def _fill(self) -> None:
        with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
            number = 0
            while not self._stop.wait(0.01):
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, b"%d" % number, partition=partition)
                number += 1

    def _finish(self) -> None:
        tps = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        with Consumer(bootstrap_servers=self.cluster.bootstrap) as consumer:
            ends = {tp.partition: end for tp, end in consumer.end_offsets(tps).items()}

        def committed() -> dict[int, int]:
            offsets = self._admin.describe_group(GROUP).offsets
            return {tp.partition: offsets[tp].offset for tp in tps if tp in offsets}

        self._until(lambda: committed() == ends, f"all is committed: {ends}")
        for worker in self._alive():
            worker.end()
        events = [worker.events for worker in self.workers]
        self.wrong += check(events, ends, committed(), self.harmed)
        print(f"{sum(ends.values())} records, {len(self.workers)} processes, {self.faults}")


FAULTS: dict[str, Callable[[Run], None]] = {
    "kill a member": Run.kill_member,
    "stop a member": Run.stop_member,
    "pause a member": Run.pause_member,
    "flap": Run.flap,
    "kill the coordinator": Run.kill_coordinator,
    "stop the coordinator": Run.stop_coordinator,
    "cut off a member": Run.cut_member,
    "cut off the coordinator": Run.cut_clients,
}


def chaos(seconds: float, seed: int, root: Path) -> list[str]:
    """Runs chaos; returns the breaches."""
    with LocalCluster(root, proxied=True, namespaces=True) as cluster:
        run = Run(cluster, seed, root / "workers.log")
        try:
            run.go(seconds)
        finally:
            run.close()
    return run.wrong
