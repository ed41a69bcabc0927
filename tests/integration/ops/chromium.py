"""A real browser: Debian's package `chromium`, driven by Playwright."""

from __future__ import annotations

import shutil
import subprocess

import pytest

PACKAGE = "chromium"
HINT = f"apt-get install -y {PACKAGE}"


def installed() -> str:
    """Path of the browser; installs the package where that is possible."""
    path = shutil.which("chromium")
    if path is None and shutil.which("apt-get"):
        wait = ("-o", "DPkg::Lock::Timeout=120")  # another test may install its own package
        for command in (["update", "-q"], ["install", "-y", "-q", *wait, PACKAGE]):
            subprocess.run(["apt-get", *command], capture_output=True, check=False, timeout=400)
        path = shutil.which("chromium")
    if path is None:
        pytest.fail(f"chromium is missing, and the console is not tested in a browser: {HINT}")
    return path
