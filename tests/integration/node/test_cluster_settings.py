"""Settings that decide replicated facts are the cluster's: a node with others harms nobody."""

from __future__ import annotations

import json

import pytest

from harness.api import batch, verdict
from harness.local_cluster import QUICK, LocalCluster
from harness.node_process import NodeProcess
from oncelog import Admin, TopicConfig
from oncelog.cli.app import run
from oncelog.errors import InvalidRequestError
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

HOUR = 3_600_000
OWN = {**QUICK, "lease_lifetime_ms": HOUR, "producer_name_expiry_ms": 2 * HOUR}
END_TIMEOUT = 60.0


def given(cluster: LocalCluster, node: int, **settings: int | str) -> NodeProcess:
    """The node with these of its own instead; 0: left out."""
    wanted = {**cluster.nodes[node].spec.settings, **settings}
    own = {name: value for name, value in wanted.items() if value != 0}
    return cluster.change_spec(node, settings=own)


def shown(cluster: LocalCluster, node: int) -> dict[str, int]:
    with Admin(bootstrap_servers=cluster.addresses[node]) as admin:
        return dict(admin.describe_cluster().settings)


def test_a_node_with_another_lease_does_not_start(make_cluster: MakeCluster, topic: str) -> None:
    """Before, its second as a leader would have ended all leases, irrevocably."""
    cluster = make_cluster(settings=OWN)
    assert shown(cluster, 1)["lease_lifetime_ms"] == HOUR
    api = cluster.api(1)
    api.create_topic(topic, 1, 3)
    pid = api.lease().producer_id
    cluster.store(batch(topic, 0, pid, 0, b"before"))
    assert cluster.nodes[2].terminate() == 0
    other = given(cluster, 2, lease_lifetime_ms=1000, producer_name_expiry_ms=1000)
    other.start()
    assert other.wait(END_TIMEOUT) == 2, "as for any wrong setting"
    text = other.log_text()
    assert "lease_lifetime_ms: this node's setting is 1000, the cluster's is 3600000" in text
    assert "oncelog cluster config set" in text
    given(cluster, 2, lease_lifetime_ms=0, producer_name_expiry_ms=0)
    cluster.start_nodes([2])
    cluster.store(batch(topic, 0, pid, 1, b"after"))
    assert {shown(cluster, node)["lease_lifetime_ms"] for node in cluster.nodes} == {HOUR}


def test_a_new_node_with_other_settings_is_told_at_once(make_cluster: MakeCluster) -> None:
    """The new node cannot know the cluster's settings before it has heard of the metadata."""
    cluster = make_cluster(settings=OWN, start=False)
    first = cluster.nodes[1]
    cluster.start_nodes([1, 2], wait=False)
    eventually(lambda: "--found" in first.log_text(), "node 3 does not answer")
    identity = json.loads((first.spec.data_dir / "identity.json").read_text())
    cluster.kill([1])
    given(cluster, 1, found=f"{identity['directory_id']:016x}").start()
    cluster.wait_serving([1, 2])
    other = given(cluster, 3, max_batch_bytes=2048)
    other.start()
    assert other.wait(END_TIMEOUT) == 1
    wanted = "max_batch_bytes: this node's setting is 2048, the cluster's is 67108864"
    assert wanted in other.log_text()
    assert cluster.running == [1, 2]


def test_a_setting_is_changed_on_all_nodes(
    make_cluster: MakeCluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster()
    cluster.api(1).create_topic(topic, 1, 3)

    def cli(*words: str) -> tuple[object, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            run(["cluster", "config", *words, "--bootstrap", cluster.addresses[2]])
        out, err = capsys.readouterr()
        return exited.value.code, out + err

    code, text = cli("set", "max_batch_bytes", "4096")
    assert code == 0 and "max_batch_bytes          4096" in text
    assert cli("get", "max_batch_bytes") == (0, "max_batch_bytes  4096\n")
    code, text = cli("get", "no_such")
    assert (
        code == 1
        and "the cluster has learner_bytes_per_s, lease_lifetime_ms, max_batch_bytes" in text
    )
    code, text = cli("set", "lease_lifetime_ms", str(30 * 24 * HOUR))
    assert code == 1 and "must be at most 86400000, the value in force" in text
    pid = cluster.api(1).lease().producer_id
    eventually(lambda: all(shown(cluster, n)["max_batch_bytes"] == 4096 for n in cluster.nodes),
               "all nodes know it")  # fmt: skip
    assert verdict(cluster.produce(batch(topic, 0, pid, 0, b"x" * 5000))) == "BATCH_TOO_LARGE"
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        with pytest.raises(InvalidRequestError, match="max_batch_bytes: 5000 must be at most"):
            admin.alter_topic(topic, TopicConfig(max_batch_bytes=5000))
        admin.set_cluster_setting("max_batch_bytes", 8192)
        eventually(lambda: all(shown(cluster, n)["max_batch_bytes"] == 8192 for n in cluster.nodes),
                   "all nodes know it")  # fmt: skip
        cluster.store(batch(topic, 0, pid, 0, b"x" * 5000))
        admin.alter_topic(topic, TopicConfig(max_batch_bytes=5000))
    for node in cluster.nodes:
        assert cluster.nodes[node].terminate() == 0
    cluster.start()
    assert shown(cluster, 3)["max_batch_bytes"] == 8192
