"""Grafana dashboards of Oncelog, as JSON.

    python deploy/monitoring/boards.py [--check]

Writes deploy/monitoring/dashboards/*.json; --check only compares. Each panel's expression is tried
on a real Prometheus by tests/integration/ops/test_boards.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "dashboards"
JOB = 'job=~"$job"'
COLUMNS, WIDTH, HEIGHT = 2, 12, 8


class Panel(NamedTuple):
    """A graph. query: JOB stands for the labels. legend: of its lines, with {{label}}."""

    title: str
    query: str
    legend: str
    unit: str = "short"

    @property
    def expression(self) -> str:
        return self.query.replace("JOB", JOB)


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{JOB}}[$__rate_interval]))"


def _p99(metric: str, by: str) -> str:
    return f"histogram_quantile(0.99, {_rate(metric + '_bucket', f'{by}, le')})"


BOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "overview": (
        "Oncelog: overview",
        (
            Panel("Nodes up", "sum(up{JOB})", "up"),
            Panel("Partitions without a leader", "min(oncelog_partitions_leaderless{JOB})", "none"),
            Panel("Records stored", _rate("oncelog_appended_records_total", "job"), "in", "cps"),
            Panel("Records read", _rate("oncelog_read_records_total", "job"), "out", "cps"),
            Panel(
                "Duplicates answered",
                _rate("oncelog_duplicates_answered_total", "job"),
                "duplicates",
                "cps",
            ),
            Panel("Batch to answer, p99", _p99("oncelog_commit_latency_seconds", "job"), "", "s"),
            Panel(
                "Partitions under-replicated",
                "sum(oncelog_partition_under_replicated{JOB})",
                "partitions",
            ),
            Panel("Elections", _rate("oncelog_elections_total", "instance"), "{{instance}}", "cps"),
            Panel("Moves", "max(oncelog_moves_pending{JOB})", "partitions"),
            Panel("Open transactions", "max(oncelog_transactions_open{JOB})", "open"),
        ),
    ),
    "topics": (
        "Oncelog: topics",
        (
            Panel(
                "Records stored",
                _rate("oncelog_appended_records_total", "topic"),
                "{{topic}}",
                "cps",
            ),
            Panel(
                "Bytes stored", _rate("oncelog_appended_bytes_total", "topic"), "{{topic}}", "Bps"
            ),
            Panel(
                "Size of all replicas",
                "sum by (topic) (oncelog_partition_stored_bytes{JOB})",
                "{{topic}}",
                "bytes",
            ),
            Panel("Verdicts", _rate("oncelog_verdicts_total", "verdict"), "{{verdict}}", "cps"),
            Panel(
                "Producers in the fullest map",
                "max by (topic) (oncelog_partition_producers{JOB})",
                "{{topic}}",
            ),
            Panel(
                "Largest lag of a replica",
                "max by (topic) (oncelog_follower_lag_entries{JOB})",
                "{{topic}}",
            ),
            Panel(
                "Staged by open transactions",
                "sum by (topic) (oncelog_transaction_staged_bytes{JOB})",
                "{{topic}}",
                "bytes",
            ),
            Panel(
                "Leaders by node",
                "sum by (instance) (oncelog_partition_leader{JOB})",
                "{{instance}}",
            ),
        ),
    ),
    "clients": (
        "Oncelog: groups and clients",
        (
            Panel(
                "Lag in records",
                "sum by (group, topic) (oncelog_group_lag_records{JOB})",
                "{{group}} {{topic}}",
            ),
            Panel(
                "Lag in seconds",
                "max by (group, topic) (oncelog_group_lag_seconds{JOB})",
                "{{group}} {{topic}}",
                "s",
            ),
            Panel(
                "Partitions not in the lag",
                "sum by (group) (oncelog_group_unknown_partitions{JOB} "
                "+ oncelog_group_uncommitted_partitions{JOB})",
                "{{group}}",
            ),
            Panel("Members", "sum by (group) (oncelog_group_members{JOB})", "{{group}}"),
            Panel("Calls", _rate("oncelog_requests_total", "method"), "{{method}}", "reqps"),
            Panel(
                "Calls with an error",
                'sum by (method, code) (rate(oncelog_requests_total{JOB, code!="OK"}'
                "[$__rate_interval]))",
                "{{method}} {{code}}",
                "reqps",
            ),
            Panel("Calls, p99", _p99("oncelog_requests_seconds", "method"), "{{method}}", "s"),
            Panel(
                "Connections",
                "sum by (instance, protocol) (oncelog_client_connections{JOB})",
                "{{instance}} {{protocol}}",
            ),
            Panel(
                "Memory for clients, of the limit",
                "oncelog_client_memory_bytes{JOB} / oncelog_client_memory_limit_bytes{JOB}",
                "{{instance}}",
                "percentunit",
            ),
            Panel(
                "Commits of transactions, p99",
                _p99("oncelog_transaction_commit_seconds", "job"),
                "",
                "s",
            ),
        ),
    ),
    "nodes": (
        "Oncelog: nodes",
        (
            Panel("Fsync, p99", _p99("oncelog_fsync_latency_seconds", "instance"), "", "s"),
            Panel("Loop's delay, p99", _p99("oncelog_loop_delay_seconds", "instance"), "", "s"),
            Panel(
                "Processor", _rate("process_cpu_seconds_total", "instance"), "{{instance}}", "short"
            ),
            Panel("Memory", "process_resident_memory_bytes{JOB}", "{{instance}}", "bytes"),
            Panel(
                "Disk free",
                "oncelog_storage_free_disk_bytes{JOB} / oncelog_storage_disk_size_bytes{JOB}",
                "{{instance}}",
                "percentunit",
            ),
            Panel("Size of the store", "oncelog_storage_disk_bytes{JOB}", "{{instance}}", "bytes"),
            Panel(
                "Round trip between nodes",
                "oncelog_link_round_trip_seconds{JOB}",
                "{{instance}} to {{node}}",
                "s",
            ),
            Panel("Links up", "sum by (node) (oncelog_link_up{JOB})", "to {{node}}"),
            Panel(
                "Clock ahead", "oncelog_clock_ahead_seconds{JOB}", "{{node}} of {{instance}}", "s"
            ),
            Panel(
                "Open files, of the limit",
                "process_open_fds{JOB} / process_max_fds{JOB}",
                "{{instance}}",
                "percentunit",
            ),
        ),
    ),
}


def board(name: str) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it."""
    title, panels = BOARDS[name]
    return {
        "uid": f"oncelog-{name}",
        "title": title,
        "tags": ["oncelog"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus"}
    yield {
        "name": "job",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": "label_values(oncelog_build_info, job)",
        "refresh": 2,
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "custom": {"showPoints": "never"}},
            "overrides": [],
        },
        "targets": [
            {
                "refId": "A",
                "datasource": source,
                "expr": panel.expression,
                "legendFormat": panel.legend or "{{instance}}",
            }
        ],
    }


def written(name: str) -> str:
    return json.dumps(board(name), indent=2) + "\n"


def main(check: bool) -> int:
    changed = 0
    for name in BOARDS:
        path = FOLDER / f"{name}.json"
        if not path.exists() or path.read_text() != written(name):
            changed += 1
            print(f"boards: {path.name} {'differs' if check else 'written'}")
            if not check:
                path.write_text(written(name))
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
