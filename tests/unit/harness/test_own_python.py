"""Python scripts set the project up themselves, under any interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SETS_UP = """#!/bin/sh
echo "setup $*"
mkdir -p "$SETUP_VENV/bin"
printf '#!/bin/sh\\necho "started again: $*"\\n' >"$SETUP_VENV/bin/python"
chmod +x "$SETUP_VENV/bin/python"
"""
FAILS = "#!/bin/sh\necho no network >&2\nexit 7\n"


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """A tree with the scripts alone, whose scripts/setup only prints its arguments."""
    for folder in ("scripts", "harness"):
        shutil.copytree(root / folder, tmp_path / folder)
    return tmp_path


def start(tree: Path, script: str, setup: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with an interpreter that has nothing but the standard library."""
    (tree / "scripts" / "setup").write_text(setup)
    return subprocess.run(
        [sys.executable, "-I", "-S", str(tree / "scripts" / script), "--help"],
        env={**os.environ, "SETUP_VENV": str(tree / "venv")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("script", ["sim", "fuzz"])
def test_without_packages_it_sets_up_and_starts_again(tree: Path, script: str) -> None:
    done = start(tree, script, SETS_UP)
    assert (done.returncode, done.stderr) == (0, "")
    asked, again = done.stdout.splitlines()
    assert asked == "setup --quiet node"
    assert again == f"started again: {tree}/scripts/{script} --help"


@pytest.mark.parametrize("script", ["sim", "fuzz"])
def test_a_setup_that_fails_is_the_end(tree: Path, script: str) -> None:
    done = start(tree, script, FAILS)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "no network\n")
