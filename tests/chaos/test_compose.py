"""Docker for real: scripts/docker-test, where there is an engine and it is asked for.

It takes a minute or two, the ports 7001 to 7003 and, the first time, a base image; so it runs
only if ONCELOG_DOCKER_TEST is 1, as .ci/run sets it once it has an engine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from harness.node_process import ROOT

ASKED = "ONCELOG_DOCKER_TEST"
TIMEOUT = 240.0  # seconds, below pytest's own for one test
COULD_NOT_RUN = 77


def engine_answers() -> bool:
    if not shutil.which("docker"):
        return False
    try:
        done = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def test_three_containers_and_a_workload_in_a_fourth() -> None:
    asked = os.environ.get(ASKED) == "1"
    answers = engine_answers()
    if not asked:
        here = "an engine answers" if answers else "no Docker engine answers"
        pytest.skip(f"the containers DID NOT RUN: {here}; {ASKED}=1 or scripts/docker-test")
    # Asked for and not there is a failure: nobody would look for the missing test.
    assert answers, f"{ASKED}=1, but no Docker engine answers: scripts/docker-engine start"
    code, output = docker_test()
    assert code != COULD_NOT_RUN, f"{ASKED}=1, but the containers did not run:\n{output}"
    assert code == 0, output
    assert "docker-test: passed" in output


def docker_test() -> tuple[int, str]:
    """Runs the script; returns exit code and output. It cleans up, also if it takes too long."""
    script = str(ROOT / "scripts" / "docker-test")
    with subprocess.Popen(
        [script],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            output, _ = process.communicate()
            output += f"\nno end after {TIMEOUT} s"
    return process.returncode, output
