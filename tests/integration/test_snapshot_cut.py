"""A snapshot that is cut off in the middle changes nothing, and the next one is whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

from cluster.partition.group_offsets import OFFSETS_PARTITIONS, partition_of
from cluster.v1 import peer_pb2, peer_pb2_grpc
from harness.api import CALL_PATIENCE, batch
from harness.local_cluster import LocalCluster
from harness.replicas import compare
from oncelog.v1 import cluster_pb2
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.test_producer_contract_groups import OFFSETS, commit, fetch
from tests.integration.waiting import eventually

VICTIM = 3
CHUNK = 1024 * 1024


def test_a_transfer_that_breaks_is_begun_again(make_cluster: MakeCluster, topic: str) -> None:
    """The links to a replica that needs a large snapshot break in the middle of it, each time."""
    cluster = make_cluster(settings={**STEADY, "retention_check_ms": 100}, proxied=True)
    assert cluster.proxy is not None
    cluster.api(1).create_topic(topic, 20, 3)
    number = partition_of("group 0", OFFSETS_PARTITIONS)
    names = (f"group {n}" for n in range(1000))
    groups = [one for one in names if partition_of(one, OFFSETS_PARTITIONS) == number][:15]
    commit(cluster, groups[0], topic, 1)  # makes the topic of the offsets
    cluster.wait_level(OFFSETS)
    cluster.kill([VICTIM])
    cluster.leader(OFFSETS, number)
    for place, group in enumerate(groups):
        # 15 groups x 20 offsets x 4 KiB: more than a chunk, and more than passes below.
        results = commit(cluster, group, topic, *range(place, place + 20), metadata="m" * 4096)
        assert not any(one.error for one in results)
    for node in (1, 2):
        cluster.proxy.ask("limit", f"{node}-{VICTIM}", bytes=CHUNK // 2)
    leader = cluster.leader(OFFSETS, number)
    cluster.start_nodes([VICTIM], wait=False)
    cut = f"snapshot not sent partition={OFFSETS}-{number} peer={VICTIM}"
    taken = f"snapshot installed partition={OFFSETS}-{number}"
    eventually(lambda: cluster.nodes[leader].log_text().count(cut) >= 2, "it breaks, again")
    assert taken not in cluster.nodes[VICTIM].log_text()
    for node in (1, 2):
        cluster.proxy.ask("heal", f"{node}-{VICTIM}")
    eventually(lambda: taken in cluster.nodes[VICTIM].log_text(), "the whole one is installed")
    request = cluster_pb2.TransferLeadershipRequest(
        topic=OFFSETS, partition=number, target_node_id=VICTIM
    )
    eventually(
        lambda: (
            cluster.api(cluster.leader(OFFSETS, number))
            .cluster.TransferLeadership(request, timeout=CALL_PATIENCE)
            .leader_id
            == VICTIM
        ),
        "the replica leads",
    )
    for place, group in enumerate(groups):
        assert fetch(cluster, group) == list(range(place, place + 20))


def chunks(size: int, sent: int, group: int, term: int) -> Iterator[peer_pb2.SnapshotChunk]:
    """A snapshot that says to have `size` bytes, and of which `sent` come."""
    yield peer_pb2.SnapshotChunk(
        group=group, term=term, index=10_000, index_term=term, size=size, crc32c=1, sender=1
    )
    for start in range(0, sent, CHUNK):
        yield peer_pb2.SnapshotChunk(data=bytes(min(CHUNK, sent - start)))


@pytest.mark.parametrize("how", ["ends early", "is cancelled", "is too long", "is damaged"])
def test_half_a_snapshot_is_refused(cluster: LocalCluster, topic: str, how: str) -> None:
    api = cluster.api(1)
    created = api.create_topic(topic, 1, 3)
    pid = api.lease().producer_id
    for sequence in range(10):
        cluster.produce(batch(topic, 0, pid, sequence, b"%d" % sequence))
    cluster.wait_level(topic)
    victim = next(node for node in cluster.nodes if node != cluster.leader(topic, 0))
    group, term = created.partitions[0].group_id, api.topic(topic).partitions[0].term
    stub = peer_pb2_grpc.PeerServiceStub(cluster.api(victim).channel)
    size = 3 * CHUNK
    sent = {"ends early": size // 2, "is too long": size + 1}.get(how, size)
    if how == "is cancelled":
        begun, never = threading.Event(), threading.Event()

        def stuck() -> Iterator[peer_pb2.SnapshotChunk]:
            yield from chunks(size, size // 2, group, term)
            begun.set()
            never.wait(CALL_PATIENCE)

        call = stub.InstallSnapshot.future(stuck(), timeout=CALL_PATIENCE)
        assert begun.wait(CALL_PATIENCE)
        call.cancel()
        never.set()
        with pytest.raises(grpc.FutureCancelledError):
            call.result()
    else:
        answer = stub.InstallSnapshot(chunks(size, sent, group, term), timeout=CALL_PATIENCE)
        assert answer.refused and not answer.installed
    for sequence in range(10, 15):
        cluster.produce(batch(topic, 0, pid, sequence, b"%d" % sequence))
    cluster.wait_level(topic)
    assert len(list(cluster.api(victim).stored(topic, 0))) == 15
    assert compare({n: cluster.api(n) for n in cluster.nodes}, topic, [0]) == []
