"""Leadership and producer ids across kill -9, SIGTERM, SIGSTOP and cut connections."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import grpc
import pytest

from harness.api import Api, batch, verdict
from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from harness.replicas import compare
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.waiting import eventually

# Far above the time of a hand-over and the delay of loopback: a gap as long as this can only be the
# silence after which followers elect.
LONG_ELECTION = {"election_timeout_ms": 4000, "heartbeat_ms": 100}


@dataclass(slots=True)
class Trickle:
    """Acknowledged sequences with the time of each acknowledgement."""

    acknowledged: list[tuple[float, int]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def longest_gap(self) -> float:
        times = [at for at, _ in self.acknowledged]
        return max(b - a for a, b in pairwise(times))


@contextmanager
def trickle(cluster: LocalCluster, topic: str) -> Iterator[Trickle]:
    """One producer that sends batches in sequence, wherever the leader is."""
    seen, stop = Trickle(), threading.Event()
    apis = {node: Api(address, cluster.tokens) for node, address in cluster.addresses.items()}
    pid = cluster.api(cluster.running[0]).lease().producer_id

    def run() -> None:
        node, sequence = 1, 0
        while not stop.is_set():
            try:
                (result,) = apis[node].produce_stream(
                    batch(topic, 0, pid, sequence, b"%d" % sequence)
                )
            except grpc.RpcError:
                node = node % 3 + 1
                continue
            name = verdict(result)
            if name in ("APPENDED", "DUPLICATE"):
                seen.acknowledged.append((time.monotonic(), sequence))
                if result.base_offset != sequence:
                    seen.wrong.append(str(result))
                sequence += 1
            elif name == "NOT_LEADER":
                node = result.leader_id or node % 3 + 1
            elif name not in ("NOT_READY", "TIMEOUT"):
                seen.wrong.append(str(result))
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        for api in apis.values():
            api.close()
    assert seen.wrong == []


def more(seen: Trickle, count: int = 20) -> None:
    """Waits for `count` further acknowledgements."""
    wanted = len(seen.acknowledged) + count
    eventually(lambda: len(seen.acknowledged) >= wanted or bool(seen.wrong), "acknowledgements")


def assert_exactly(cluster: LocalCluster, topic: str, seen: Trickle) -> None:
    """Asserts that the log is 0, 1, 2, ...: all acknowledged batches and at most the one in
    flight.
    """
    cluster.wait_level(topic)
    for node in cluster.running:
        stored = [int(one.payload) for one in cluster.api(node).stored(topic, 0)]
        assert stored == list(range(len(stored)))
        assert len(seen.acknowledged) <= len(stored) <= len(seen.acknowledged) + 1
    apis = {node: cluster.api(node) for node in cluster.running}
    assert compare(apis, topic, [0]) == []


def test_sigterm_hands_leadership_over(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(settings={**STEADY, **LONG_ELECTION}, start=False)
    cluster.start()
    cluster.api(1).create_topic(topic, 1, 3)
    with trickle(cluster, topic) as seen:
        more(seen)
        leader = cluster.leader(topic, 0)
        assert cluster.nodes[leader].terminate() == 0
        more(seen)
    assert seen.longest_gap < LONG_ELECTION["election_timeout_ms"] / 1000
    text = cluster.nodes[leader].log_text()
    assert "node stopped" in text
    assert "not handed over" not in text
    cluster.start_nodes([leader])
    assert_exactly(cluster, topic, seen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_an_idle_node_stops_cleanly(make_cluster: MakeCluster, number: signal.Signals) -> None:
    cluster = make_cluster()
    for node in cluster.nodes.values():
        node.signal(number)
    for node in cluster.nodes.values():
        assert node.wait() == 0, node.log_tail()
        assert "Traceback" not in node.log_text()


def test_a_killed_leader_is_replaced_and_gets_its_partitions_back(
    make_cluster: MakeCluster, topic: str
) -> None:
    cluster = make_cluster()
    info = cluster.api(1).create_topic(topic, 1, 3)
    preferred = info.partitions[0].replicas[0]
    eventually(lambda: cluster.leader(topic, 0) == preferred, "the preferred node leads")
    with trickle(cluster, topic) as seen:
        more(seen)
        cluster.kill([preferred])
        more(seen)
        assert cluster.leader(topic, 0) != preferred
        cluster.start_nodes([preferred])
        eventually(lambda: cluster.leader(topic, 0) == preferred, "the preferred leader is back")
        more(seen)
    assert_exactly(cluster, topic, seen)


def test_a_paused_leader_is_replaced_and_steps_down(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(settings=STEADY)
    cluster.api(1).create_topic(topic, 1, 3)
    paused = cluster.leader(topic, 0)
    pid = cluster.api(paused).lease().producer_id
    cluster.store(batch(topic, 0, pid, 0, b"0"))
    cluster.pause(paused)
    others = [node for node in cluster.nodes if node != paused]
    leader = cluster.leader(topic, 0, not_in=[paused])
    (result,) = cluster.api(leader).produce(batch(topic, 0, pid, 1, b"1"))
    assert verdict(result) in ("APPENDED", "NOT_READY")
    cluster.resume(paused)
    eventually(
        lambda: cluster.api(paused).topic(topic).partitions[0].leader_id in others,
        "the paused leader knows that it was replaced",
    )
    # Batches sent to the deposed leader must not be answered as stored twice.
    assert verdict(cluster.produce(batch(topic, 0, pid, 1, b"1"))) in ("DUPLICATE", "APPENDED")
    cluster.wait_level(topic)
    assert [one.payload for one in cluster.api(paused).stored(topic, 0)] == [b"0", b"1"]


def test_a_leader_cut_off_from_its_peers_is_replaced(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster(proxied=True, settings=STEADY)
    cluster.api(1).create_topic(topic, 1, 3)
    alone = cluster.leader(topic, 0)
    pid = cluster.api(alone).lease().producer_id
    cluster.store(batch(topic, 0, pid, 0, b"0"))
    cluster.isolate(alone)
    unknown = cluster.api(alone).produce(batch(topic, 0, pid, 1, b"1"), timeout_ms=3000)
    assert verdict(unknown[0]) in ("NOT_LEADER", "TIMEOUT", "NOT_READY"), "it has no majority"
    leader = cluster.leader(topic, 0, not_in=[alone])
    eventually(
        lambda: (
            verdict(cluster.api(leader).produce(batch(topic, 0, pid, 1, b"1"))[0])
            in ("APPENDED", "DUPLICATE")
        ),
        "the majority takes the batch",
    )
    term = cluster.api(leader).topic(topic).partitions[0].term
    cluster.isolate(alone, "heal")
    cluster.wait_level(topic)
    info = cluster.api(leader).topic(topic).partitions[0]
    assert (info.leader_id, info.term) == (leader, term), "the returning node disturbed nobody"
    for node in cluster.nodes:
        assert [one.payload for one in cluster.api(node).stored(topic, 0)] == [b"0", b"1"]
    apis = {node: cluster.api(node) for node in cluster.nodes}
    assert compare(apis, topic, [0]) == []


def test_a_frozen_connection_hides_an_acknowledgement(
    make_cluster: MakeCluster, topic: str
) -> None:
    cluster = make_cluster(proxied=True, settings=STEADY)
    cluster.api(1).create_topic(topic, 1, 3)
    leader = cluster.leader(topic, 0)
    pid = cluster.api(leader).lease().producer_id
    assert cluster.proxy is not None
    cluster.proxy.ask("freeze", f"client-{leader}", direction="down")
    one = batch(topic, 0, pid, 0, b"once")
    with Api(cluster.addresses[leader]) as api, pytest.raises(grpc.RpcError):
        api.produce(one, timeout=1.0)
    cluster.proxy.ask("reset", f"client-{leader}")
    cluster.proxy.ask("heal", f"client-{leader}")
    result = cluster.produce(one)
    assert result.base_offset == 0
    cluster.wait_level(topic)
    for node in cluster.nodes:
        assert [s.payload for s in cluster.api(node).stored(topic, 0)] == [b"once"]


def test_producer_ids_are_never_issued_twice(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(settings={**STEADY, "pid_block_size": 5})
    issued: list[int] = []

    def take(nodes: list[int], count: int = 12) -> None:
        for node in nodes:
            issued.extend(cluster.api(node).lease().producer_id for _ in range(count))

    take([1, 2, 3])
    cluster.kill(cluster.nodes)
    cluster.start_nodes(cluster.nodes)
    take([3, 1, 2])
    controller = cluster.api(1).describe().controller_id
    cluster.kill([controller])
    rest = [node for node in cluster.nodes if node != controller]
    eventually(lambda: cluster.api(rest[0]).describe().controller_id in rest, "another controller")
    take(rest)
    cluster.start_nodes([controller])
    take([controller, *rest])
    cluster.kill(cluster.nodes)
    cluster.start_nodes(cluster.nodes)
    take([1, 2, 3])
    assert len(set(issued)) == len(issued)
    assert min(issued) > 0


def test_a_name_keeps_its_producer_id_and_raises_its_epoch(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    leases = [cluster.api(node).lease("orders") for node in (1, 2, 3)]
    cluster.kill(cluster.nodes)
    cluster.start_nodes(cluster.nodes)
    leases += [cluster.api(node).lease("orders") for node in (3, 2, 1)]
    assert len({lease.producer_id for lease in leases}) == 1
    epochs = [lease.epoch for lease in leases]
    assert epochs == list(range(epochs[0], epochs[0] + 6))


def test_the_harness_notices_a_node_that_dies(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    cluster.kill([1])
    with pytest.raises(HarnessError, match="not running"):
        cluster.wait_serving([1])
