"""The Go client's Admin against three real nodes: its requests. The assertions are in Go."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.integration.conftest import MakeCluster


def test_admin(make_cluster: MakeCluster, root: Path) -> None:
    cluster = make_cluster()
    command = ["go", "test", "-count=1", "-tags", "nodes", "-run", "AtRealNodes", "-v", "."]
    done = subprocess.run(
        command,
        cwd=root / "clients/go",
        env={**os.environ, "ONCELOG_TEST_SERVERS": cluster.bootstrap},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--- PASS: TestAdminAtRealNodes" in done.stdout, done.stdout
