"""deploy/systemd: systemd takes the unit, and a node its example of settings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cluster.config.node_config import NodeConfig
from cluster.errors import BAD_SETTINGS, REMOVED
from harness.node_process import ROOT

FOLDER = ROOT / "deploy/systemd"
UNIT = FOLDER / "oncelog.service"
EXAMPLE = (FOLDER / "node.toml").read_text()
EXPOSURE = 20  # tenths; 1.4 of 10 is that of a service with two ports


def loaded(path: Path, text: str) -> NodeConfig:
    path.write_text(text)
    return NodeConfig.load(["--config", str(path)], {})


def test_the_example_is_a_cluster_of_three(tmp_path: Path) -> None:
    for node in (1, 2, 3):
        text = EXAMPLE.replace("node_id = 1", f"node_id = {node}")
        for setting in ("listen", "metrics_listen"):
            text = text.replace(f'\n{setting} = "10.0.0.1:', f'\n{setting} = "10.0.0.{node}:')
        config = loaded(tmp_path / "node.toml", text)
        assert config.node_id == node
        assert config.advertised == config.nodes[node] == f"10.0.0.{node}:7001"
        assert not config.insecure


def test_a_later_host_joins(tmp_path: Path) -> None:
    line = next(line for line in EXAMPLE.splitlines() if line.startswith("# join = "))
    settings = EXAMPLE.partition("\n# The nodes")[0].replace("10.0.0.1:", "10.0.0.4:")
    text = settings.replace("node_id = 1", "node_id = 4") + line[2:].removesuffix(" instead.")
    assert loaded(tmp_path / "node.toml", text).join.count(",") == 2


def test_the_unit_knows_the_exit_codes_and_waits_for_the_handover() -> None:
    lines = UNIT.read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    assert values["RestartPreventExitStatus"] == f"{BAD_SETTINGS} {REMOVED}"
    assert int(values["TimeoutStopSec"]) * 1000 > 2 * NodeConfig().handover_timeout_ms
    folders = [values["StateDirectory"], values["LogsDirectory"], values["ConfigurationDirectory"]]
    assert folders == ["oncelog"] * 3
    for place in ("/var/lib/oncelog/", "/var/log/oncelog/", "/etc/oncelog/"):
        assert f'"{place}' in EXAMPLE
        assert place[:-1] in (FOLDER / "oncelog.tmpfiles").read_text()


def analyzed(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/oncelog/bin/oncelog", "/bin/true"))
    assert UNIT.name not in analyzed("verify", "--man=no", str(unit)).stderr
    if "--offline" in analyzed("--help").stdout:  # since systemd 250
        done = analyzed("security", "--offline=yes", f"--threshold={EXPOSURE}", str(unit))
        assert done.returncode == 0, done.stdout
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystm=strict"))
    assert "ProtectSystm" in analyzed("verify", "--man=no", str(unit)).stderr, "a planted mistake"
