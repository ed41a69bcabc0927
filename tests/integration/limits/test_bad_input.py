"""Bad input at a node's start: the error names the field or file, and nothing is changed."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.api import batch
from harness.local_cluster import LocalCluster
from harness.node_process import ROOT, NodeSpec, command_line
from harness.ports import LOOPBACK, free_ports
from tests.integration.conftest import MakeCluster

START_TIMEOUT = 120.0  # a start that is refused by other nodes takes a busy machine half a minute


def spec_of(tmp_path: Path, **changes: Any) -> NodeSpec:
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    spec = NodeSpec(
        node_id=1,
        listen=address,
        advertise=address,
        nodes={1: address},
        data_dir=tmp_path / "data",
        log_file=tmp_path / "node.log",
    )
    return dataclasses.replace(spec, **changes)


def refused(
    spec: NodeSpec, *words: str, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Starts the node, which must end by itself with an error."""
    done = subprocess.run(
        [*command_line(), *words],
        cwd=ROOT,
        env=spec.environment() | (environ or {}),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT,
        check=False,
    )
    assert done.returncode != 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def fingerprint(directory: Path) -> dict[str, str]:
    """Every file of a data directory, RocksDB's own diary and the lock's pid left out."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock" and not path.name.startswith("LOG")
    }


def keep(cluster: LocalCluster, replicas: int) -> None:
    cluster.api(1).create_topic("kept", 1, replicas)
    cluster.store(batch("kept", 0, 0, 0, b"kept"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A single node with a record in it, stopped. Each test leaves it so."""
    with LocalCluster(tmp_path_factory.mktemp("stopped"), 1) as cluster:
        keep(cluster, 1)
        assert cluster.nodes[1].terminate() == 0
        yield cluster


def assert_starts(stopped: LocalCluster) -> None:
    stopped.start_nodes([1])
    assert_still_good(stopped)
    assert stopped.nodes[1].terminate() == 0


def assert_still_good(cluster: LocalCluster) -> None:
    cluster.wait_level("kept")
    assert [one.payload for one in cluster.api(1).stored("kept", 0)] == [b"kept"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node_idd = 1\n", ["node_idd"]),
        ("election_timeout_ms = 5\n", ["election_timeout_ms", "50"]),
        ('election_timeout_ms = "soon"\n', ["election_timeout_ms", "soon"]),
        ('listen = "nowhere"\n', ["listen", "nowhere", "host:port"]),
        ("[nodes]\n1 = 5\n", ["nodes"]),
        ("node_id = \n", ["TOML"]),
        ("heartbeat_ms = 900\n", ["heartbeat_ms", "election_timeout_ms"]),
    ],
)
def test_a_bad_config_file(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ONCELOG_")}
    done = subprocess.run(
        [*command_line(), "--config", str(file), "--data-dir", str(tmp_path / "data")],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT,
        check=False,
    )
    assert done.returncode == 2
    for word in (*words, str(file)) if "heartbeat" not in text else words:
        assert word in done.stderr
    assert not (tmp_path / "data").exists()


def test_unknown_flag_and_variable(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert "--no-such-flag" in refused(spec, "--no-such-flag").stderr
    misspelt = refused(spec, environ={"ONCELOG_ELECTION_TIMEOUT": "1"})
    assert "did you mean ONCELOG_ELECTION_TIMEOUT_MS?" in misspelt.stderr
    missing = refused(spec, "--config", str(tmp_path / "missing.toml"))
    assert "missing.toml" in missing.stderr
    assert not spec.data_dir.exists()


@pytest.mark.parametrize("setting", ["listen", "metrics_listen"])
def test_a_port_in_use(stopped: LocalCluster, setting: str) -> None:
    spec = stopped.nodes[1].spec
    before = fingerprint(spec.data_dir)
    with socket.create_server((LOOPBACK, 0)) as taken:
        address = f"{LOOPBACK}:{taken.getsockname()[1]}"
        changes: dict[str, Any] = {setting: address}
        done = refused(dataclasses.replace(spec, **changes))
    assert address in done.stderr
    assert setting in done.stderr
    assert fingerprint(spec.data_dir).keys() >= before.keys()
    assert_starts(stopped)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster_id": "other"}, ["other", "oncelog"]),
        ({"node_id": 2, "nodes": {2: "127.0.0.1:7"}}, ["node 1", "node 2"]),
    ],
    ids=["another-cluster", "another-node"],
)
def test_somebody_elses_directory(
    stopped: LocalCluster, changes: dict[str, Any], words: list[str]
) -> None:
    spec = stopped.nodes[1].spec
    before = fingerprint(spec.data_dir)
    done = refused(dataclasses.replace(spec, **changes))
    for word in (*words, str(spec.data_dir)):
        assert word in done.stderr
    assert fingerprint(spec.data_dir) == before


def test_a_directory_that_is_not_ours(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    spec.data_dir.mkdir()
    (spec.data_dir / "thesis.txt").write_text("years of work")
    assert "thesis.txt" in refused(spec).stderr
    assert fingerprint(spec.data_dir).keys() == {"thesis.txt"}


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spec = spec_of(tmp_path, data_dir=tmp_path / "file" / "data")
    assert str(spec.data_dir) in refused(spec).stderr


def test_a_directory_held_by_a_running_node(stopped: LocalCluster) -> None:
    stopped.start_nodes([1])
    pid = stopped.nodes[1].pid
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    spec = stopped.nodes[1].spec
    done = refused(dataclasses.replace(spec, listen=address))
    assert str(pid) in done.stderr
    assert str(spec.data_dir) in done.stderr
    assert_still_good(stopped)
    assert stopped.nodes[1].terminate() == 0


def test_a_second_node_with_the_same_id(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """A copy of a node's directory is started while the node itself runs.

    The node may vote or promise between the copy and its start: the copy is then an older one.
    """
    cluster = make_cluster()
    keep(cluster, 3)
    spec = cluster.nodes[2].spec
    copy = dataclasses.replace(
        spec, listen=f"{LOOPBACK}:{free_ports(1)[0]}", data_dir=tmp_path / "copy"
    )
    shutil.copytree(spec.data_dir, copy.data_dir)
    done = refused(copy)
    assert re.search("node_id 2|directory of node 2 is an older copy", done.stderr), done.stderr
    assert cluster.running == [1, 2, 3]
    assert_still_good(cluster)
