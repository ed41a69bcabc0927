"""Conditional appends and examples/kv_store.py under faults, judged by Porcupine too.

    racers (contests.py), clients of the store --answers with their times--> history.jsonl
    history.jsonl --tests/chaos/porcupine, a program in Go--> linearizable, or not
    racers' writes, all replicas --------> checker.py: the same run by our own checker

The Go program knows the answers of one log and one table, and nothing of ours.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.kv_store import Store
from harness.api import Api
from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from oncelog import OncelogError
from oncelog.v1.cluster_pb2 import EXPECTED_OFFSETS_CHECKED, EXPECTED_OFFSETS_IGNORED
from tests.chaos.checker import Check, check
from tests.chaos.contests import Racer
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.history import NO, YES, History, Writes, value_of
from tests.chaos.run import inject_each, read_replica

PROGRAM = Path(__file__).parent / "porcupine"
RACERS, CLIENTS = 3, 3
KEYS = ("a", "b", "c")
SIZE = 10  # bytes of a racer's value
KV_PAUSE = 0.02  # seconds between two calls of a client

Operation = dict[str, Any]  # as porcupine/main.go reads it


@dataclass(frozen=True, slots=True)
class Load:
    """topic: of the racers' partition. kv: the store's. ignored: conditions are unchecked."""

    topic: str = "raced"
    kv: str = "kv"
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """said: Porcupine's verdict. checks: our own."""

    linearizable: bool
    said: str
    checks: list[Check]
    operations: list[Operation]
    events: list[str]

    @property
    def good(self) -> bool:
        return self.linearizable and all(one.holds for one in self.checks)


class TimedRacer(Racer):
    """A racer that notes when each attempt began and ended."""

    def __init__(self, client: int, bootstrap: str, topic: str, writes: Writes) -> None:
        super().__init__(bootstrap, topic, 0, SIZE, writes, lambda text: None, [])
        self._client, self.operations = client, list[Operation]()

    def _append(self, expected: int) -> int:
        call = time.monotonic_ns()
        following = super()._append(expected)
        number = len(self._writes.outcomes) - 1
        result = {YES: "ok", NO: "mismatch"}.get(self._writes.outcomes[number], "unknown")
        self.operations.append(
            {
                "model": "log",
                "client": self._client,
                "call": call,
                "return": -1 if result == "unknown" else time.monotonic_ns(),
                "op": "append",
                "result": result,
                "expected": expected,
                "offset": self._writes.offsets[number],
                "next": following,
                "value": value_of(self._writes.worker, number, SIZE).decode(),
            }
        )
        return following


class KvClient(threading.Thread):
    """A client that reads and changes a few shared keys of a store."""

    def __init__(self, client: int, bootstrap: str, topic: str, rng: random.Random) -> None:
        super().__init__(name=f"kv-{client}")
        self._client, self._servers, self._topic, self._rng = client, bootstrap, topic, rng
        self._stop_asked = threading.Event()
        self.operations: list[Operation] = []

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            try:
                store = Store(self._servers, self._topic, shards=1)
            except OncelogError:
                continue  # it waits by itself
            try:
                while not self._stop_asked.wait(KV_PAUSE) and self._call(store):
                    pass
            finally:
                store.close()

    def _call(self, store: Store) -> bool:
        """Makes one call; returns whether the store may be used on."""
        rng, number = self._rng, len(self.operations)
        op, key = rng.choice(("get", "get", "put", "increment")), rng.choice(KEYS)
        value: str | None = str(100_000 * self._client + 1000 * number)
        noted: Operation = {"model": "kv", "client": self._client, "op": op, "key": key}
        noted |= {"call": time.monotonic_ns(), "return": -1, "result": "unknown", "value": value}
        self.operations.append(noted)
        try:
            if op == "get":
                found = store.get(key.encode())
                value = None if found is None else found.decode()
            elif op == "put":
                assert value is not None
                store.put(key.encode(), value.encode())
            else:
                value = str(store.increment(key.encode()))
        except OncelogError:
            return False
        noted |= {"return": time.monotonic_ns(), "result": "ok", "value": value}
        return True


def judge(operations: Sequence[Operation], folder: Path) -> tuple[bool, str]:
    """Has Porcupine judge a history. Raises HarnessError if it gives no verdict."""
    go = shutil.which("go")
    if go is None:
        raise HarnessError("there is no Go here, which Porcupine is written in: install it")
    folder.mkdir(parents=True, exist_ok=True)
    history = folder / "history.jsonl"
    history.write_text("".join(json.dumps(one) + "\n" for one in operations))
    command = [go, "run", ".", "-html", str(folder.resolve() / "history.html"),
               str(history.resolve())]  # fmt: skip
    done = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise HarnessError(f"Porcupine does not judge {history}: {done.stdout}{done.stderr}")
    return done.returncode == 0, done.stdout.strip()


def whole(racers: Sequence[TimedRacer], values: Sequence[bytes]) -> list[Operation]:
    """Joins the racers' answers with the final log.

    For an append without an answer the log tells whether it came; if not, it is left out.
    """
    there = {value.decode() for value in values}
    told = [
        one
        for racer in racers
        for one in racer.operations
        if one["result"] != "unknown" or one["value"] in there
    ]
    end = time.monotonic_ns()
    final = {"model": "log", "client": len(racers), "call": end, "return": end + 1, "op": "final"}
    return [*told, {**final, "values": [value.decode() for value in values]}]


def run(
    cluster: LocalCluster,
    *,
    seconds: float,
    faults: Sequence[str],
    seed: int,
    say: Callable[[str], None],
    out: Path,
    load: Load | None = None,
) -> Result:
    """Runs for `seconds` at least, and until each fault was there once. The cluster must serve."""
    load, rng, history = load or Load(), random.Random(seed), History()
    _make_topic(cluster.api(cluster.running[0]), load)
    kinds = [FAULTS[name](cluster, load.topic, 1) for name in faults]
    racers = [
        TimedRacer(number, cluster.bootstrap, load.topic, history.of(number, "conditional"))
        for number in range(RACERS)
    ]
    clients = [
        KvClient(number, cluster.bootstrap, load.kv, random.Random(rng.random()))
        for number in range(CLIENTS)
    ]
    events = _under_faults([*racers, *clients], kinds, seconds, rng, say)
    for racer in racers:
        racer.finish()
    say("reading all replicas")
    cluster.wait_level(load.topic)
    part = cluster.describe_topic(load.topic).partitions[0]
    held = [(node, 0) for node in part.replicas]
    read = [read_replica(cluster.api(node), node, load.topic, 0) for node, _ in held]
    operations = whole(racers, [value for _, value in read[0].records()])
    operations += [one for client in clients for one in client.operations]
    linearizable, said = judge(operations, out)
    return Result(linearizable, said, check(history, read, held), operations, events)


def _make_topic(api: Api, load: Load) -> None:
    ignored, checked = EXPECTED_OFFSETS_IGNORED, EXPECTED_OFFSETS_CHECKED
    api.create_topic(load.topic, 1, 0, expected_offsets=ignored if load.ignored else checked)


def _under_faults(
    threads: Sequence[TimedRacer | KvClient],
    kinds: Sequence[Fault],
    seconds: float,
    rng: random.Random,
    say: Callable[[str], None],
) -> list[str]:
    try:
        for thread in threads:
            thread.start()
        return inject_each(kinds, seconds, rng, say)
    finally:
        for thread in threads:
            thread.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
