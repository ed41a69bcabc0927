"""A snapshot that is cut off in the middle changes nothing, and the next one is whole."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import grpc
import pytest

from cluster.consensus.message import Snapshot, checksum_of
from cluster.features import THIS_RELEASE, Finalized
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.membership.registration import write_claim
from cluster.partition.group_offsets import OFFSETS_PARTITIONS, partition_of
from cluster.transport.hellos import NodeIdentity
from cluster.transport.link import PeerLink
from cluster.transport.membership import Membership
from cluster.transport.snapshots import send_snapshot
from cluster.transport.versions import PeerVersions
from harness.api import CALL_TIMEOUT, as_call, batch
from harness.local_cluster import LocalCluster
from harness.ports import above
from harness.replicas import compare
from oncelog.v1 import cluster_pb2
from storage.registrations import StoredRegistrations
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.log.test_producer_contract_groups import OFFSETS, commit, fetch
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
            .cluster.TransferLeadership(request, timeout=CALL_TIMEOUT)
            .leader_id
            == VICTIM
        ),
        "the replica leads",
    )
    for place, group in enumerate(groups):
        assert fetch(cluster, group) == list(range(place, place + 20))


def bad_states(group: int) -> dict[str, Snapshot]:
    """Snapshots that a member could send, and that are no state of the group."""
    index, term = 10_000, 5
    garbage = bytes(range(256)) * 2000
    snapshot = Snapshot(
        group, 10**6, index, term, garbage, checksum_of(group, index, term, garbage)
    )
    return {
        "cannot be loaded": snapshot,
        "checksum differs": replace(snapshot, checksum=1),
        "its index or terms": replace(snapshot, index_term=10**9),
    }


def test_a_snapshot_that_is_none_is_refused_and_the_node_goes_on(
    make_cluster: MakeCluster, topic: str
) -> None:
    """The sender is a member of the cluster, in the place of a node that is down."""
    cluster = make_cluster(settings=STEADY)
    api = cluster.api(1)
    group = api.create_topic(topic, 1, 3).partitions[0].group_id
    pid = api.lease().producer_id
    for sequence in range(10):
        cluster.produce(batch(topic, 0, pid, sequence, b"%d" % sequence))
    cluster.wait_level(topic)
    sender, victim = 3, 2
    cluster.kill([sender])
    spec = cluster.nodes[sender].spec
    stored = json.loads((spec.data_dir / "identity.json").read_text())
    membership = Membership((1, 2, 3), stored["founding"])
    # As the cluster is upgraded to the newest version, only this release may say so.
    versions = PeerVersions(THIS_RELEASE, Finalized)
    # The node may have registered its start by now, so the sender says what its directory knows.
    known = StoredRegistrations(spec.data_dir / "db" / "lives")
    identity = NodeIdentity(
        spec.cluster_id,
        sender,
        1,
        stored["directory_id"],
        membership,
        versions,
        write_registration=lambda hello: write_claim(hello, known.begun, known.known, known.number),
    )
    refused = asyncio.run(
        send_all(
            identity,
            above(cluster.nodes[victim].spec.listen),
            [bad for gid in (group, METADATA_GROUP) for bad in bad_states(gid).values()],
        )
    )
    assert all(words in text for words, text in zip([*bad_states(0)] * 2, refused, strict=True))
    assert cluster.nodes[victim].running
    cluster.kill([victim])
    cluster.start_nodes([sender, victim])
    for sequence in range(10, 15):
        cluster.produce(batch(topic, 0, pid, sequence, b"%d" % sequence))
    cluster.wait_level(topic)
    assert len(list(cluster.api(victim).stored(topic, 0))) == 15
    assert compare({n: cluster.api(n) for n in cluster.nodes}, topic, [0]) == []


async def send_all(identity: NodeIdentity, address: str, snapshots: list[Snapshot]) -> list[str]:
    """The reason why each was refused."""
    up = asyncio.Event()
    link = PeerLink(identity, 2, address, lambda *_: up.set(), lambda *_: None)
    async with asyncio.timeout(CALL_TIMEOUT):
        await up.wait()
        results = [await send_snapshot(link, snapshot) for snapshot in snapshots]
    await link.close()
    assert not any(result.installed for result in results)
    return [result.refused for result in results]


def test_clients_cannot_speak_as_nodes(cluster: LocalCluster) -> None:
    call: Any = cluster.api(1).channel.stream_unary("/cluster.v1.PeerService/InstallSnapshot")
    with pytest.raises(grpc.RpcError) as caught:
        call(iter([b""]), timeout=CALL_TIMEOUT)
    assert as_call(caught.value).code() is grpc.StatusCode.UNIMPLEMENTED
