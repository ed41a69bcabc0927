"""The metrics page of real nodes: the documented names, true lags, promtool's opinion."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer, TopicPartition
from tests.integration.conftest import MakeCluster
from tests.integration.ops.packages import installed
from tests.integration.ops.pages import families_of, figures_of, page_of
from tests.integration.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| `((?:oncelog|process)_\w+)` \| (\w+) \| (.*) \|$", re.M)


def test_the_docs_name_all_metrics_and_no_others(cluster: LocalCluster) -> None:
    documented = {
        name: (kind, text)
        for name, kind, text in ROW.findall((ROOT / "docs/monitoring.md").read_text())
    }
    assert families_of(page_of(cluster, 1)) == documented


def test_promtool_finds_nothing_to_say(cluster: LocalCluster) -> None:
    done = subprocess.run(
        [installed("promtool", "prometheus"), "check", "metrics"],
        input=page_of(cluster, 1),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def total(cluster: LocalCluster, name: str, group: str) -> float:
    """The sum over all nodes: a group is on one of them."""
    pages = (
        figures_of(page_of(cluster, node)) for node, one in cluster.nodes.items() if one.running
    )
    row = f'oncelog_group_{name}{{group="{group}",topic="t"}}'
    return sum(page.get(row, 0.0) for page in pages)


def test_a_lag_counts_partitions_of_all_nodes(make_cluster: MakeCluster) -> None:
    """Each partition has one replica, so no node has them all."""
    cluster = make_cluster(metrics=True)
    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
    ):
        admin.create_topic("t", partitions=4, replicas=1)
        for number in range(40):
            producer.send("t", b"x", partition=number % 4).result()
        with Consumer(
            bootstrap_servers=cluster.bootstrap, group_id="g", membership="manual"
        ) as consumer:
            consumer.commit({TopicPartition("t", index): 7 + index for index in range(3)})
    eventually(lambda: total(cluster, "lag_records", "g") == 3 + 2 + 1, "the lag is shown")
    assert total(cluster, "uncommitted_partitions", "g") == 1
    assert total(cluster, "unknown_partitions", "g") == 0
    assert total(cluster, "lag_seconds", "g") > 0
