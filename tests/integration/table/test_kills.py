"""Archivers that die at each step. The fault is shown first on one that begins at its group's
offsets.
"""

from __future__ import annotations

import signal

from deltalake import DeltaTable

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog.table.verify import verify
from tests.integration.table.conftest import Tables
from tests.integration.table.killed import run_until
from tests.integration.table.rows import in_table, in_topic, send

STEPS = ("put", "stored", "commit", "committed", "merge", "merged")


def test_an_archiver_may_be_killed_anywhere(
    cluster: LocalCluster, admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    for name in (topic, f"{topic}-unprotected"):
        admin.create_topic(name, 2, 1)
        send(producer, name, range(40), 2)
    unprotected = f"{topic}-unprotected"
    assert run_until("committed", tables, unprotected, unprotected=True) == -signal.SIGKILL
    assert run_until("nowhere", tables, unprotected, unprotected=True) == 0
    assert len(in_table(f"{tables.to}/{unprotected}")) == 80

    sent, url = 40, f"{tables.to}/{topic}"
    for step in STEPS:
        # Each run has new records; the last two make a file larger than all before it.
        count = 4 * sent if step.startswith("merge") else 40
        send(producer, topic, range(sent, sent + count), 2)
        sent += count
        merge_below = 4096 if step.startswith("merge") else 0
        died = run_until(step, tables, topic, merge_below=merge_below)
        assert died == -signal.SIGKILL, step
        rows = in_table(url)
        assert rows == [row for row in in_topic(cluster, topic) if row in rows], step
    tables.run(topic, merge_below=4096)
    assert in_table(url) == in_topic(cluster, topic)
    assert len(in_table(url)) == sent
    findings = verify(topic, tables.to, bootstrap_servers=cluster.bootstrap)
    assert [(one.compared, one.faults) for one in findings] == [(sent // 2, [])] * 2
    # Files without a commit stay; the table's own clean-up finds them.
    orphans = DeltaTable(url).vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    assert len(orphans) >= 4
