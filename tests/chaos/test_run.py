"""Short chaos runs with every fault; and the single faults of scripts/chaos."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import disk, network
from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from harness.node_process import ROOT, HarnessError
from tests.chaos.__main__ import possible
from tests.chaos.faults import FAULTS
from tests.integration.waiting import eventually

TIMEOUT = 240.0
# Faults that need disks and networks of the nodes' own, and why they are unavailable here.
LONG = ("add-node", "remove-node")  # 20 seconds each
CROWD = ("kill-some",)  # of five nodes
ROOTED = ("partition", "power-cut", "disk-full")
SICK = ("clock", "slow-disk", "eio")  # of a cluster that the run has started itself
SEVERAL = ("kill-machine",)  # of machines with several processes
ANYWHERE = ("kill-leader", "kill-all", "pause", "rolling-restart")
MISSING = disk.missing() or network.missing()
rooted = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def python(module: str, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def chaos(*words: str, code: int = 0) -> str:
    return python("tests.chaos", *words, code=code)


def started(folder: Path, *options: str) -> Iterator[Path]:
    """Starts a cluster by scripts/cluster, with a topic and a record; yields its directory."""
    try:
        out = python("harness.developer", "start", "--dir", str(folder), *options)
        cluster = LocalCluster.load(folder)
        assert cluster.bootstrap in out.replace("\n", "")
        cluster.api(1).create_topic("orders", 1, 3)
        assert verdict(cluster.produce(batch("orders", 0, 0, 0, b"kept"))) == "APPENDED"
        yield folder
    finally:
        LocalCluster.remove(folder)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("chaos") / "cluster"
    yield from started(folder, "--first-port", "0", "--proxied")


@pytest.fixture(scope="module")
def rooted_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Does the same, each node with a disk and a network namespace of its own."""
    yield from started(tmp_path_factory.mktemp("rooted") / "cluster", "--disks", "--namespaces")


def still_good(root: Path) -> None:
    cluster = LocalCluster.load(root)
    assert cluster.running == list(cluster.nodes)
    cluster.wait_joined()
    cluster.wait_level("orders")
    for node in cluster.nodes:
        assert [one.payload for one in cluster.api(node).stored("orders", 0)] == [b"kept"]


def run(root: Path, out: Path, *words: str) -> dict[str, Any]:
    """Makes a short run; returns its report."""
    said = chaos("run", "--dir", str(root), "--minutes", "0.2", "--seed", "11",
                 "--out", str(out), *words)  # fmt: skip
    assert "seed 11" in said
    assert "holds    every acknowledged record is in every replica\n" in said
    assert "all checks hold: " in said
    assert "BROKEN" not in said
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert found["good"] is True
    assert {one["holds"] for one in found["checks"].values()} == {"yes"}
    for kind in ("plain", "conditional", "named"):
        assert found["writes"][kind]["yes"] > 0, kind
    assert found["writes"]["plain"]["unknown"] == 0
    assert found["takeovers"] > 0
    page = (out / "report.html").read_text()
    assert "<svg" in page and "all checks hold" in page
    still_good(root)
    return found


def test_all_is_what_can_be_had(root: Path) -> None:
    names, left_out = possible(["all"], LocalCluster.load(root))
    assert set(left_out) == {*ROOTED, *SICK, *CROWD, *SEVERAL}
    assert {*names, *left_out} == FAULTS.keys()
    _, left_out = possible(["all"], None)
    assert "add-node" in left_out or MISSING, "it has no namespace"
    assert "5" in left_out["kill-some"]
    assert "kill-some" in possible(["all"], None, 5)[0]
    assert set(possible(["all"], None, processes=2)[0]) == {*SEVERAL, *ANYWHERE}


def test_a_run_with_every_fault_that_is_short(root: Path, tmp_path: Path) -> None:
    names = FAULTS.keys() - {*ROOTED, *SICK, *LONG, *CROWD, *SEVERAL}
    said = run(root, tmp_path, "--faults", ",".join(sorted(names)))
    assert {event["fault"] for event in said["events"]} == names


@rooted
def test_a_run_with_partitions_power_cuts_and_full_disks(rooted_root: Path, tmp_path: Path) -> None:
    said = run(rooted_root, tmp_path, "--faults", ",".join(ROOTED))
    assert said["left_out"] == {}
    assert {event["fault"] for event in said["events"]} == set(ROOTED)


@rooted
@pytest.mark.parametrize(
    "words",
    [
        ["partition", "1/2,3", "--seconds", "0.5"],
        ["partition", "2/1,3", "--seconds", "0.5", "--one-way"],
        ["partition", "1/3", "--seconds", "0.5"],
        ["power-cut", "1", "3", "--down", "0.1"],
        ["disk-full", "2", "--seconds", "0.5"],
    ],
    ids=lambda words: "-".join(words[:2]).replace("/", "|"),
)
def test_single_faults_that_need_root(rooted_root: Path, words: list[str]) -> None:
    chaos(*words, "--dir", str(rooted_root))
    still_good(rooted_root)


@pytest.mark.parametrize(
    "words",
    [
        ["kill-leader", "orders", "0", "--down", "0.2"],
        ["kill-all", "--down", "0.1"],
        ["kill-machine", "2", "--down", "0.1"],
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
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_a_fault_that_is_ended_early_is_healed(root: Path, number: int, code: int) -> None:
    node = LocalCluster.load(root).nodes[2]
    words = ("pause", "2", "--seconds", "3600", "--dir", str(root))
    process = subprocess.Popen([sys.executable, "-m", "tests.chaos", *words], cwd=ROOT)
    try:
        eventually(lambda: is_stopped(node.pid), "the node stands still")
        process.send_signal(number)
        assert process.wait(TIMEOUT) == code
    finally:
        process.kill()
        process.wait()
    assert not is_stopped(node.pid)
    still_good(root)


def is_stopped(pid: int) -> bool:
    """Tells whether SIGSTOP holds the process: its state, behind its name in brackets, is T."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["kill-leader", "orders", "7"], "0..0"),
        (["pause", "9"], "1, 2, 3"),
        (["kill-machine", "9"], "1, 2, 3"),
        (["partition", "1/2,3"], "start --namespaces"),
        (["power-cut", "1"], "start --disks"),
        (["disk-full", "1"], "start --disks"),
        (["run", "--faults", "power-cut,partition"], "start --namespaces"),
        (["run", "--faults", "kill-some"], "needs 5 nodes"),
        (["run", "--faults", "kill-machine"], "needs --processes 2"),
        (["run", "--faults", "pause", "--kills", "1"], "--kills"),
    ],
)
def test_bad_arguments(root: Path, words: list[str], text: str) -> None:
    assert text in chaos(*words, "--dir", str(root), code=1)


def test_no_cluster(tmp_path: Path) -> None:
    assert "there is no cluster" in chaos("kill-all", "--dir", str(tmp_path), code=1)


@pytest.mark.parametrize(("kind", "option"), [(disk, "disks"), (network, "namespaces")])
def test_without_root_it_is_said_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, option: str
) -> None:
    wanted: dict[str, Any] = {option: True}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    kind.missing.cache_clear()
    try:
        with pytest.raises(HarnessError, match="need root"):
            LocalCluster(tmp_path / "cluster", **wanted)
    finally:
        kind.missing.cache_clear()
    assert not (tmp_path / "cluster").exists()


def test_starting_a_running_cluster_is_refused(root: Path) -> None:
    words = ["--dir", str(root)]
    assert "runs already" in python("harness.developer", "start", *words, code=1)
    assert "not running" not in python("harness.developer", "status", *words)


def test_stop_ends_the_nodes_and_keeps_their_data(root: Path) -> None:
    words = ["--dir", str(root)]
    python("harness.developer", "stop", *words)
    assert LocalCluster.load(root).running == []
    assert "not running" in python("harness.developer", "status", *words, code=1)
    python("harness.developer", "start", *words)
    still_good(root)
