"""Profiles of docker-compose.yml: the console over a real node, and names that belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from harness.local_cluster import LocalCluster
from harness.node_process import ROOT
from tests.integration.ops.consoles import Person, console

COMPOSE: Any = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
MONITORING = ROOT / "deploy/monitoring"


def mounted(service: str) -> dict[str, Path]:
    """Path in the container -> our file."""
    found = {}
    for volume in COMPOSE[service]["volumes"]:
        ours, theirs, mode = volume.split(":")
        assert mode == "ro", volume
        found[theirs] = ROOT / ours
    return found


@pytest.mark.parametrize("service", ["console", "prometheus", "grafana"])
def test_a_profile_publishes_on_loopback_only(service: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in COMPOSE[service]["ports"])
    assert COMPOSE[service]["profiles"] == ["console" if service == "console" else "monitoring"]


def test_the_console_of_the_profile_serves(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = COMPOSE["console"]
    name, *flags = service["command"]
    address = "0.0.0.0:8470"
    assert (name, flags[flags.index("--listen") + 1]) == ("console", address)
    assert service["ports"] == [f"127.0.0.1:8470:{address.rpartition(':')[2]}"]
    monkeypatch.setenv(next(iter(service["environment"])), cluster.bootstrap)
    free = [flag if flag != address else "0.0.0.0:0" for flag in flags]
    with console(*free) as link:
        assert link.startswith("http://127.0.0.1:")
        person = Person(link)
        person.until("The cluster is healthy.", link)
        assert person.get("/topics", {"Host": "evil.example"}).status == 421


def test_prometheus_scrapes_the_nodes_and_grafana_asks_prometheus() -> None:
    files = mounted("prometheus")
    config = yaml.safe_load(files["/etc/prometheus/prometheus.yml"].read_text())
    assert all((Path("/etc/prometheus") / one).as_posix() in files for one in config["rule_files"])
    (job,) = config["scrape_configs"]
    port = COMPOSE["node1"]["environment"]["ONCELOG_METRICS_LISTEN"].rpartition(":")[2]
    nodes = [f"{name}:{port}" for name in COMPOSE if name in ("node1", "node2", "node3")]
    assert job["static_configs"] == [{"targets": nodes}]
    files = mounted("grafana")
    sources = files["/etc/grafana/provisioning/datasources/oncelog.yml"]
    (source,) = yaml.safe_load(sources.read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    boards = files["/etc/grafana/provisioning/dashboards/oncelog.yml"]
    (provider,) = yaml.safe_load(boards.read_text())["providers"]
    assert files[provider["options"]["path"]] == MONITORING / "dashboards"
    for board in files[provider["options"]["path"]].iterdir():
        assert json.loads(board.read_text())["title"]
