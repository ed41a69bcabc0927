"""The entry point of a node: settings it refuses before it reads or opens anything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-m", "cluster", "--print-config"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "environment"), [(["-O"], {}), (["-OO"], {}), ([], {"PYTHONOPTIMIZE": "1"})]
)
def test_a_node_does_not_start_without_assertions(
    options: list[str], environment: dict[str, str]
) -> None:
    done = run(*options, **environment)
    assert done.returncode == 2
    assert done.stderr.startswith("oncelog: assertions are off")
    assert done.stdout == ""


def test_the_same_settings_are_taken_with_assertions() -> None:
    done = run()
    assert done.returncode == 0
    assert "node_id" in done.stdout
