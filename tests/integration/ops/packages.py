"""Programs of Debian's packages that the tests of this room run."""

from __future__ import annotations

import shutil
import subprocess

import pytest

INSTALL_S = 400
WAIT = ("-o", "DPkg::Lock::Timeout=120")  # another test may install its own package


def installed(program: str, package: str) -> str:
    """Return the path of a program; installs its package where that is possible."""
    path = shutil.which(program)
    if path is None and shutil.which("apt-get"):
        for command in (["update", "-q"], ["install", "-y", "-q", *WAIT, package]):
            subprocess.run(
                ["apt-get", *command], capture_output=True, check=False, timeout=INSTALL_S
            )
        path = shutil.which(program)
    if path is None:
        pytest.fail(f"{program} is missing for this test: apt-get install -y {package}")
    return path
