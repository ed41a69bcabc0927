"""One chaos run: workload, faults by a seed, then every replica read and judged."""

from __future__ import annotations

import hashlib
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import grpc

from harness.api import Api
from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from harness.payload import decompress, values_and_keys
from tests.chaos.checker import Check, check
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.flight import Flights
from tests.chaos.history import History, Replica
from tests.chaos.workload import Load, Timeline, Workload

LEADER_LOOK = 0.1  # seconds between looks at leaders, for the timeline
CALM = (0.5, 2.0)  # seconds between faults
WARM_UP = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    """A fault in the timeline; seconds since the start."""

    name: str
    start: float
    end: float
    what: str


@dataclass(slots=True)
class Result:
    """All data that the report shows."""

    seed: int
    faults: Sequence[str]
    seconds: float
    load: Load
    history: History
    timeline: Timeline
    events: list[Event]
    leaders: list[tuple[float, int, int]]  # (second, partition, leader or 0)
    checks: list[Check]
    recovery: list[float] = field(default_factory=list)  # after each kill and power cut, s
    kills: int = 0  # of nodes, all faults together
    left_out: Mapping[str, str] = field(default_factory=dict)  # faults, and why

    @property
    def good(self) -> bool:
        return all(one.holds for one in self.checks)


class LeaderWatch(threading.Thread):
    """A watch that notes changes of leadership, as the leaders themselves see them."""

    def __init__(self, cluster: LocalCluster, load: Load, timeline: Timeline) -> None:
        super().__init__(name="leader-watch")
        self._load, self._timeline = load, timeline
        self._apis = {node: Api(address) for node, address in cluster.addresses.items()}
        self._stop_asked = threading.Event()
        self.changes: list[tuple[float, int, int]] = []

    def run(self) -> None:
        known: dict[int, int] = {}
        while not self._stop_asked.wait(LEADER_LOOK):
            best: dict[int, tuple[int, int]] = {}  # partition -> (term, leader)
            for node, api in self._apis.items():
                try:
                    info = api.topic(self._load.topic, timeout=0.3)
                except grpc.RpcError:
                    continue
                for part in info.partitions:
                    if part.leader_id == node:
                        best[part.partition] = max(
                            best.get(part.partition, (0, 0)), (part.term, node)
                        )
            for partition in range(self._load.partitions):
                leader = best.get(partition, (0, 0))[1]
                if known.get(partition) != leader:
                    known[partition] = leader
                    self.changes.append((self._timeline.now, partition, leader))

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()
        for api in self._apis.values():
            api.close()


def inject_each(
    kinds: Sequence[Fault], seconds: float, rng: random.Random, say: Callable[[str], None]
) -> list[str]:
    """Injects faults for `seconds` at least, and each of them once; returns their descriptions."""
    started, events, deck = time.monotonic(), list[str](), list[Fault]()
    time.sleep(WARM_UP)
    while kinds and (time.monotonic() < started + seconds or len(events) < len(kinds)):
        deck = deck or rng.sample(kinds, len(kinds))
        start = time.monotonic() - started
        events.append(deck.pop().inject(rng, time.sleep))
        say(f"{start:7.1f} s  {events[-1]}")
        time.sleep(rng.uniform(*CALM))
    time.sleep(max(0.0, started + seconds - time.monotonic()))
    return events


def run(
    cluster: LocalCluster,
    *,
    seconds: float,
    faults: Sequence[str],
    seed: int,
    load: Load,
    say: Callable[[str], None],
    left_out: Mapping[str, str] | None = None,
    kills: int = 0,
    replicas: int = 0,
    recorders: bool = False,
) -> Result:
    """Runs for `seconds` at least, and until each fault was there once. The cluster must serve.

    kills: and until so many nodes were killed. The topic is made unless it is there; it must be
    empty. replicas: of each partition; 0: one on each machine. left_out: unavailable faults, and
    why, for the report. recorders: compare the nodes' events with the clients' answers. Raises
    HarnessError if the cluster does not recover from a fault.
    """
    rng = random.Random(seed)
    api = cluster.api(cluster.running[0])
    if load.topic not in (topic.name for topic in api.topics()):
        api.create_topic(load.topic, load.partitions, replicas or len(cluster.machines))
    kinds = [FAULTS[name](cluster, load.topic, load.partitions) for name in faults]
    workload = Workload(cluster.bootstrap, cluster.addresses, load, rng)
    timeline, events, deck = workload.timeline, list[Event](), list[Fault]()
    watch = LeaderWatch(cluster, load, timeline)
    flights = Flights(cluster.addresses if recorders else {}, load.topic)
    workload.start()
    watch.start()
    try:
        time.sleep(WARM_UP)
        while kinds and (
            timeline.now < seconds
            or len(events) < len(kinds)
            or sum(kind.kills for kind in kinds) < kills
        ):
            deck = deck or rng.sample(kinds, len(kinds))
            kind = deck.pop()
            start = timeline.now
            what = kind.inject(rng, time.sleep)
            events.append(Event(kind.name, start, timeline.now, what))
            say(f"{start:7.1f} s  {what}")
            time.sleep(rng.uniform(*CALM))
        time.sleep(max(0.0, seconds - timeline.now))
    finally:
        workload.stop()
        watch.stop()
    say("reading all replicas")
    cluster.wait_level(load.topic)
    described = cluster.describe_topic(load.topic).partitions
    held = [(node, part.partition) for part in described for node in part.replicas]
    read = [read_replica(cluster.api(node), node, load.topic, number) for node, number in held]
    checks = check(workload.history, read, held) + flights.judge(workload.history, say)
    return Result(
        seed=seed,
        faults=faults,
        seconds=timeline.now,
        load=load,
        history=workload.history,
        timeline=timeline,
        events=events,
        leaders=watch.changes,
        checks=checks,
        recovery=recoveries(events, timeline),
        left_out=left_out or {},
        kills=sum(kind.kills for kind in kinds),
    )


def silences(events: Sequence[Event], timeline: Timeline) -> list[float]:
    """Finds each fault's longest time in seconds without an acknowledgement in a partition.

    It counts silences that began with the fault or after it, and before the next one.
    """
    end = max((max(tenths) for tenths in timeline.served.values()), default=0)
    gaps = [
        (first, second)
        for tenths in timeline.served.values()
        for first, second in pairwise([*sorted(tenths), end])
    ]
    # The last acknowledgement may come up to 0.2 s before the fault.
    starts = [event.start * 10 - 2 for event in events]
    return [
        max((second - first for first, second in gaps if start <= first < following), default=0)
        / 10
        for start, following in zip(starts, [*starts[1:], math.inf], strict=False)
    ]


def recoveries(events: Sequence[Event], timeline: Timeline) -> list[float]:
    """Finds the silence of each fault that shows how long nodes need to recover, in seconds."""
    found = zip(events, silences(events, timeline), strict=True)
    return [silence for event, silence in found if FAULTS[event.name].shows_recovery]


def read_replica(api: Api, node: int, topic: str, partition: int) -> Replica:
    """Reads one node's copy; nothing is asked of the others."""
    try:
        start = api.offset(topic, partition, "earliest", any_replica=True)
        high_watermark = api.offset(topic, partition, "latest", any_replica=True)
        digest, batches = hashlib.sha256(), []
        for stored in api.stored(topic, partition, start=start):
            digest.update(stored.SerializeToString(deterministic=True))
            values, _ = values_and_keys(decompress(stored.header.codec, stored.payload))
            batches.append((stored.base_offset, tuple(value or b"" for value in values)))
        last_seen = {one.producer_id: str(one) for one in api.last_seen(topic, partition)}
    except grpc.RpcError as error:
        raise HarnessError(f"node {node}, {topic}-{partition} cannot be read: {error}") from error
    return Replica(
        node=node,
        partition=partition,
        start=start,
        high_watermark=high_watermark,
        batches=tuple(batches),
        digest=digest.hexdigest(),
        last_seen=last_seen,
    )
