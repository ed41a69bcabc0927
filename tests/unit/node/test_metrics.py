"""The metrics page: the output for plain figures, and the server's life."""

from __future__ import annotations

import re
import socket
import urllib.request
from contextlib import ExitStack
from types import SimpleNamespace
from unittest import mock

import pytest

from cluster.config.addresses import ListenError
from cluster.features import Finalized, Release, Versions
from cluster.metadata.upgrade import plan
from cluster.metrics.groups import GroupSample, TopicLag
from cluster.metrics.http import MOST
from cluster.metrics.page import Metrics
from cluster.metrics.partitions import MANY, PartitionSample
from cluster.metrics.process import resident_bytes
from cluster.metrics.text import Histogram
from cluster.node.health.sync_watch import SyncWatch
from cluster.node.metrics.sample import transactions
from cluster.transactions.coordinator import Coordinator
from cluster.transactions.types import Holder
from storage.engine import Engine
from storage.kv import Family

ROW = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def samples(metrics: Metrics, query: str = "") -> dict[tuple[str, tuple], float]:
    """(name, sorted labels) -> value, as Prometheus reads the page."""
    found = {}
    for line in metrics.page(query).splitlines():
        if line.startswith("#"):
            continue
        row = ROW.fullmatch(line)
        assert row is not None, line
        pairs = LABEL.findall(row[2] or "")
        assert ",".join(f'{name}="{value}"' for name, value in pairs) == (row[2] or ""), line
        plain = [(n, re.sub(r"\\.", lambda one: ESCAPED[one[0]], value)) for n, value in pairs]
        key = row[1], tuple(sorted(plain))
        assert key not in found, "each row stands once"
        found[key] = float(row[3])
    return found


def test_a_node_without_partitions():
    metrics = Metrics()
    metrics.elections += 2
    metrics.leases += 1
    found = samples(metrics)
    assert found["oncelog_elections_total", ()] == 2
    assert found["oncelog_producer_leases_total", ()] == 1
    assert found["process_resident_memory_bytes", ()] > 1_000_000


def test_groups_are_shown_with_their_lag():
    metrics = Metrics()
    metrics.groups = lambda: [
        GroupSample(
            "g",
            members=2,
            rebalances=3,
            idle=0.5,
            since_commit=4.0,
            lag={"t": TopicLag(7, 1.5, 1, 2)},
        ),
        GroupSample("new"),
    ]
    found = samples(metrics)
    group = (("group", "g"),)
    assert found["oncelog_group_members", group] == 2
    assert found["oncelog_group_rebalances_total", group] == 3
    assert found["oncelog_group_idle_seconds", group] == 0.5
    assert found["oncelog_group_commit_age_seconds", group] == 4.0
    topic = (*group, ("topic", "t"))
    assert found["oncelog_group_lag_records", topic] == 7
    assert found["oncelog_group_lag_seconds", topic] == 1.5
    assert found["oncelog_group_uncommitted_partitions", topic] == 1
    assert found["oncelog_group_unknown_partitions", topic] == 2
    assert found["oncelog_groups_not_shown", ()] == 0
    assert ("oncelog_group_commit_age_seconds", (("group", "new"),)) not in found


class Clocks:
    agreed = False

    def offsets(self) -> dict[int, float]:
        return {2: -0.5}


def test_a_pending_upgrade_is_shown():
    metrics = Metrics()
    old, new = Release(), Release("2.0", Versions(1, 2))
    nodes = {1: new, 2: old}
    metrics.upgrades = SimpleNamespace(plan=lambda: plan(Finalized(), nodes))
    found = samples(metrics)
    assert found["oncelog_cluster_version", ()] == 1
    assert found["oncelog_upgrade_pending", ()] == 1
    nodes[1] = old
    assert samples(metrics)["oncelog_upgrade_pending", ()] == 0


def test_clocks_are_shown():
    metrics = Metrics()
    metrics.clocks = Clocks()
    found = samples(metrics)
    assert found["oncelog_clock_agreed", ()] == 0
    assert found["oncelog_clock_ahead_seconds", (("node", "2"),)] == -0.5


def test_transactions_are_shown_by_this_nodes_copy():
    metrics, coordinator = Metrics(), Coordinator()
    metrics.transactions = lambda: transactions(coordinator, 5000)
    assert samples(metrics)["oncelog_transactions_oldest_open_seconds", ()] == 0
    for number in (1, 2):
        coordinator.begin(
            f"p{number}", Holder(number, 0), 1, now_ms=1000 * number, idle_ms=1000, total_ms=1000
        )
        coordinator.register(number, None, [16], lambda group: True)
    coordinator.abort(1, None, "operator")
    found = samples(metrics)
    assert found["oncelog_transactions_open", ()] == 1
    assert found["oncelog_transactions_ending", ()] == 1
    assert found["oncelog_transactions_oldest_open_seconds", ()] == 3
    assert found["oncelog_transactions_remembered", ()] == 2
    assert found["oncelog_transactions_aborted_total", (("reason", "operator"),)] == 1
    assert found["oncelog_transactions_orphaned_runs", ()] == 0


def test_a_histogram_counts_up_to_and_with_its_bounds():
    metrics = Metrics()
    metrics.fsync_latency = Histogram((0.001, 0.01))
    for seconds in (0.0005, 0.001, 0.002, 5.0):
        metrics.fsync_latency.observe(seconds)
    assert metrics.fsync_latency.count == 4
    found = samples(metrics)
    name = "oncelog_fsync_latency_seconds"
    assert found[f"{name}_bucket", (("le", "0.001"),)] == 2
    assert found[f"{name}_bucket", (("le", "0.01"),)] == 3
    assert found[f"{name}_bucket", (("le", "+Inf"),)] == 4
    assert found[f"{name}_count", ()] == 4
    assert found[f"{name}_sum", ()] == pytest.approx(5.0035)


def test_a_loop_and_an_fsync_that_are_held_up():
    metrics = Metrics()
    assert ("oncelog_fsyncs_hung_total", ()) not in samples(metrics), "no node, no disk"
    now = 10.0
    watch = SyncWatch(lambda: now, 0.1, 3.0)
    metrics.sync_watch = watch
    metrics.loop_delay.observe(0.3)
    watch.begin()
    now = 14.0
    watch.look(mock.Mock())
    found = samples(metrics)
    assert found["oncelog_fsync_under_way_seconds", ()] == 4.0
    assert found["oncelog_fsyncs_hung_total", ()] == 1
    assert found["oncelog_loop_delay_seconds_sum", ()] == 0.3
    watch.end()
    assert samples(metrics)["oncelog_fsync_under_way_seconds", ()] == 0.0


def test_partitions_are_labelled():
    metrics = Metrics()
    metrics.source = lambda: [
        PartitionSample(
            "a", 0, leads=True, under_replicated=True, term=3, commit_index=17, applied_index=15,
            entries_behind=2, duplicates=4,
            high_watermark=100, batches=9, records=90, bytes=900,
            verdicts={1: 9, 2: 4, 99: 1}, follower_lag={2: 0, 3: 7},
        ),
        PartitionSample("a", 1, failed=True, applied_index=5),
    ]  # fmt: skip
    found = samples(metrics)
    first, second = (("partition", "0"), ("topic", "a")), (("partition", "1"), ("topic", "a"))
    assert found["oncelog_appended_batches_total", first] == 9
    assert found["oncelog_appended_records_total", first] == 90
    assert found["oncelog_appended_bytes_total", first] == 900
    assert found["oncelog_duplicates_answered_total", first] == 4
    assert found["oncelog_duplicates_answered_total", second] == 0
    assert found["oncelog_verdicts_total", (*first, ("verdict", "APPENDED"))] == 9
    assert found["oncelog_verdicts_total", (*first, ("verdict", "99"))] == 1
    assert found["oncelog_partition_leader", first] == 1
    assert found["oncelog_partition_leader", second] == 0
    assert found["oncelog_partition_failed", second] == 1
    assert found["oncelog_partition_under_replicated", first] == 1
    assert found["oncelog_replica_lag_entries", first] == 2
    assert found["oncelog_replica_lag_entries", second] == 0
    assert found["oncelog_follower_lag_entries", (("node", "3"), *first)] == 7


def test_many_replicas_are_shown_by_topic_unless_asked():
    metrics = Metrics()
    metrics.source = lambda: [
        PartitionSample(
            f"t{number % 2}", number, leads=True, term=number, records=10, high_watermark=7,
            verdicts={1: 2}, follower_lag={2: number},
        )
        for number in range(MANY + 1)
    ]  # fmt: skip
    found = samples(metrics)
    topic = (("topic", "t0"),)
    assert metrics.page().startswith("# 1001 replicas, by topic; with ?detail=partition by part")
    assert found["oncelog_partition_leader", topic] == 501
    assert found["oncelog_appended_records_total", topic] == 5010
    assert found["oncelog_partition_term", topic] == 1000
    assert found["oncelog_verdicts_total", (*topic, ("verdict", "APPENDED"))] == 1002
    assert found["oncelog_follower_lag_entries", (("node", "2"), *topic)] == 1000
    assert not any(name == "oncelog_partition_high_watermark" for name, _ in found)
    detailed = samples(metrics, "detail=partition")
    assert detailed["oncelog_partition_high_watermark", (("partition", "4"), *topic)] == 7
    metrics.source = lambda: [PartitionSample("t", number) for number in range(MANY)]
    assert ("oncelog_partition_leader", (("partition", "4"), ("topic", "t"))) in samples(metrics)


def test_labels_are_escaped():
    metrics = Metrics()
    name = 'a"b\\c\nd'
    metrics.groups = lambda: [GroupSample(name, members=2)]
    assert samples(metrics)["oncelog_group_members", (("group", name),)] == 2


def test_requests_count_by_code_and_last():
    metrics = Metrics()
    metrics.requests.done("grpc", "Fetch", "OK", 0.02)
    metrics.requests.done("grpc", "Fetch", "NOT_LEADER", 0.3)
    metrics.requests.count("grpc", "Subscribe", "CANCELLED")
    found = samples(metrics)
    fetch = (("method", "Fetch"), ("protocol", "grpc"))
    assert found["oncelog_requests_total", (("code", "NOT_LEADER"), *fetch)] == 1
    assert found["oncelog_requests_seconds_count", fetch] == 2
    assert found["oncelog_requests_seconds_bucket", (("le", "0.025"), *fetch)] == 1
    subscribe = (("method", "Subscribe"), ("protocol", "grpc"))
    assert found["oncelog_requests_total", (("code", "CANCELLED"), *subscribe)] == 1
    assert ("oncelog_requests_seconds_count", subscribe) not in found


def test_the_stores_figures(tmp_path):
    metrics = Metrics()
    with Engine.open(tmp_path) as engine:
        metrics.storage = engine.stats
        batch = engine.batch()
        batch.put(Family.ENTRIES, b"key", b"x" * 100_000)
        engine.write(batch)
        engine.sync()
        found = {name: value for (name, labels), value in samples(metrics).items() if not labels}
    assert found["oncelog_storage_replay_bytes"] >= 100_000
    assert found["oncelog_storage_memtable_bytes"] > 0
    assert found["oncelog_storage_disk_bytes"] >= found["oncelog_storage_replay_bytes"]
    assert found["oncelog_storage_free_disk_bytes"] > 0
    assert found["oncelog_storage_flushes_pending"] == 0
    assert found["oncelog_storage_writes_stopped"] == 0
    assert found["oncelog_storage_background_errors_total"] == 0
    # A page requested while the store closes lacks these figures, and is still given.
    late = samples(metrics)
    assert ("oncelog_storage_replay_bytes", ()) not in late
    assert ("oncelog_elections_total", ()) in late


def test_two_nodes_in_one_process_share_nothing():
    one, other = Metrics(), Metrics()
    one.elections += 1
    assert samples(other)["oncelog_elections_total", ()] == 0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_the_page_is_served_until_closed():
    port = free_port()
    close = Metrics().start_http(f"127.0.0.1:{port}")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        assert b"oncelog_elections_total" in page.read()
    close()
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", port)) != 0


def test_silent_connections_keep_nobody_from_the_page():
    port = free_port()
    close = Metrics().start_http(f"127.0.0.1:{port}")
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(MOST + 1)
        ]
        assert silent[0].recv(1) == b"", "the oldest had to go"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            assert b"oncelog_elections_total" in page.read()
    close()


def test_a_port_in_use_is_named():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(ListenError, match=f"metrics_listen: {address} cannot be used"):
            Metrics().start_http(address)


def test_resident_memory_is_read_from_the_system():
    assert resident_bytes() > 1_000_000
