"""Dashboards: their files, and each panel's value from a real Prometheus over a loaded cluster."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness.local_cluster import LocalCluster
from harness.ports import free_ports
from oncelog import Admin, Consumer, Producer, UnknownTopicOrPartitionError
from tests.integration.conftest import MakeCluster
from tests.integration.ops.packages import installed
from tests.integration.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy/monitoring"
TIMEOUT = 10.0
PATIENCE = 60.0  # seconds until each panel has a value
SCRAPE = "1s"


def _boards() -> Any:
    spec = importlib.util.spec_from_file_location("boards", FOLDER / "boards.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BOARDS = _boards()


def test_the_files_are_what_the_program_writes() -> None:
    files = {path.stem: path.read_text() for path in (FOLDER / "dashboards").glob("*.json")}
    assert files == {name: BOARDS.written(name) for name in BOARDS.BOARDS}
    assert len(files) == 4
    for text in files.values():
        panels = json.loads(text)["panels"]
        places = {(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels}
        assert len(places) == len(panels) >= 8


@contextmanager
def prometheus(folder: Path, cluster: LocalCluster) -> Iterator[str]:
    """A Prometheus with our rules that scrapes the cluster; gives its address."""
    (port,) = free_ports(1)
    targets = [{"targets": [*cluster.metrics_addresses.values()]}]
    text = {
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": [str(FOLDER / "alerts.yml")],
        "scrape_configs": [{"job_name": "oncelog", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(text))
    command = [
        installed("prometheus", "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def asked(address: str, path: str, **query: str) -> Any:
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    return found["data"]


def value_of(address: str, expression: str) -> float | None:
    """The expression's first value; None: there is none, or it is not a number."""
    expression = expression.replace("$__rate_interval", "10s").replace("$job", ".*")
    result = asked(address, "query", query=expression)["result"]
    values = [float(one["value"][1]) for one in result]
    return next((value for value in values if not math.isnan(value)), None)


def load(cluster: LocalCluster, stop: threading.Event) -> None:
    """Writes, in transactions too, reads in a group, and fails a call, until it is stopped."""
    plain: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "linger_ms": 0}
    with (
        Producer(**plain) as producer,
        Producer(**plain, producer_name="p") as named,
        Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g") as consumer,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        while not stop.is_set():
            with suppress(UnknownTopicOrPartitionError):
                admin.delete_topic("no-such-topic")
            producer.send("t", b"x" * 100).result()
            with named.transaction():
                named.send("t", b"y")
            consumer.getmany(timeout_ms=100)
            consumer.commit()
            stop.wait(0.05)


def test_each_panel_has_a_value(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster, stop = make_cluster(metrics=True), threading.Event()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("t", partitions=3, replicas=3)
    loading = threading.Thread(target=load, args=(cluster, stop))
    loading.start()
    panels = {
        f"{name}: {panel.title}": panel.expression
        for name, (_, listed) in BOARDS.BOARDS.items()
        for panel in listed
    }
    try:
        with prometheus(tmp_path, cluster) as address:
            eventually(lambda: _serves(address), "Prometheus serves", PATIENCE)
            assert value_of(address, "oncelog_no_such_metric") is None
            end = time.monotonic() + PATIENCE
            missing = dict(panels)
            while missing and time.monotonic() < end:
                missing = {
                    title: expression
                    for title, expression in missing.items()
                    if value_of(address, expression) is None
                }
                stop.wait(0.5)
            assert missing == {}
            rules = asked(address, "rules")["groups"][0]["rules"]
            assert len(rules) == 20
            assert {rule["health"] for rule in rules} == {"ok"}
            firing = {one["name"] for one in rules if one["state"] == "firing"}
            assert firing == set(), "a sound cluster raises no alert"
    finally:
        stop.set()
        loading.join()


def _serves(address: str) -> bool:
    try:
        return bool(asked(address, "targets"))
    except OSError:
        return False
