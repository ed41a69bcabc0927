"""Prometheus' own programs: Debian's package `prometheus` has both."""

from __future__ import annotations

import shutil
import subprocess

import pytest

HINT = "apt-get install -y prometheus"


def installed(program: str) -> str:
    """Path of `promtool` or `prometheus`; installs the package where that is possible."""
    path = shutil.which(program)
    if path is None and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "-y", "-q", "prometheus"],
            capture_output=True,
            check=False,
            timeout=300,
        )
        path = shutil.which(program)
    if path is None:
        pytest.fail(f"{program} is missing, and alerts are not tested: {HINT}")
    return path
