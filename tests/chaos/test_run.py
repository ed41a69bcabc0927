"""A short chaos run with every fault; and the single faults of scripts/chaos."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.api import batch, verdict
from tests.harness.local_cluster import LocalCluster
from tests.harness.node_process import ROOT

PATIENCE = 240.0


def python(module: str, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def chaos(*words: str, code: int = 0) -> str:
    return python("tests.chaos", *words, code=code)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster that scripts/cluster started, with a topic and a record."""
    folder = tmp_path_factory.mktemp("chaos") / "cluster"
    words = ["start", "--dir", str(folder), "--first-port", "0", "--proxied"]
    try:
        out = python("tests.harness.developer", *words)
        cluster = LocalCluster.load(folder)
        assert cluster.bootstrap in out.replace("\n", "")
        cluster.api(1).create_topic("orders", 1, 3)
        assert verdict(cluster.produce(batch("orders", 0, 0, 0, b"kept"))) == "APPENDED"
        yield folder
    finally:
        LocalCluster.load(folder).close()


def still_good(root: Path) -> None:
    cluster = LocalCluster.load(root)
    assert cluster.running == list(cluster.nodes)
    cluster.wait_joined()
    cluster.wait_level("orders")
    for node in cluster.nodes:
        assert [one.payload for one in cluster.api(node).stored("orders", 0)] == [b"kept"]


def test_a_run_with_every_fault(root: Path, tmp_path: Path) -> None:
    out = chaos(
        "run", "--dir", str(root), "--minutes", "0.3", "--seed", "11",
        "--out", str(tmp_path),
    )  # fmt: skip
    assert "seed 11" in out
    said = json.loads((tmp_path / "report.json").read_text())
    assert said["good"] is True
    assert {one["holds"] for one in said["checks"].values()} == {"yes"}
    assert said["writes"]["yes"] > 0
    assert said["writes"]["unknown"] == 0
    assert said["events"]
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "all checks hold" in page
    still_good(root)


@pytest.mark.parametrize(
    "words",
    [
        ["kill-leader", "orders", "0", "--down", "0.2"],
        ["kill-all", "--down", "0.1"],
        ["pause", "2", "--seconds", "0.5"],
        ["cut", "1", "--seconds", "0.5"],
        ["cut", "1", "--seconds", "0.2", "--clients"],
        ["rolling-restart"],
    ],
    ids=lambda words: "-".join(words[:1]),
)
def test_single_faults(root: Path, words: list[str]) -> None:
    chaos(*words, "--dir", str(root))
    still_good(root)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["kill-leader", "orders", "7"], "0..0"),
        (["pause", "9"], "1, 2, 3"),
    ],
)
def test_bad_arguments(root: Path, words: list[str], text: str) -> None:
    assert text in chaos(*words, "--dir", str(root), code=1)


def test_no_cluster(tmp_path: Path) -> None:
    assert "there is no cluster" in chaos("kill-all", "--dir", str(tmp_path), code=1)


def test_starting_a_running_cluster_is_refused(root: Path) -> None:
    words = ["--dir", str(root)]
    assert "runs already" in python("tests.harness.developer", "start", *words, code=1)
    assert "not running" not in python("tests.harness.developer", "status", *words)


def test_stop_ends_the_nodes_and_keeps_their_data(root: Path) -> None:
    words = ["--dir", str(root)]
    python("tests.harness.developer", "stop", *words)
    assert LocalCluster.load(root).running == []
    assert "not running" in python("tests.harness.developer", "status", *words, code=1)
    python("tests.harness.developer", "start", *words)
    still_good(root)
