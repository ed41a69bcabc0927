"""Previous release, from its commit, for clusters that run both releases."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.node_process import ROOT

# The last commit before cluster versions: its nodes speak protocol 3 and know no features.
# A release that raises `features.CLUSTER_VERSIONS` puts the commit before it here.
PREVIOUS = "fb3e01604279fd3562c21c0f6f7d27059c072b66"
NEEDED = ("cluster", "oncelog", "storage")


class NoHistoryError(Exception):
    """The clone lacks the commit."""


def extract(into: Path) -> Path:
    """Extracts the source files that a node needs. Raises NoHistoryError."""
    done = subprocess.run(
        ["git", "archive", "--format=tar", PREVIOUS, *NEEDED],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise NoHistoryError(
            f"the previous release is commit {PREVIOUS}, and this clone does not hold it: a "
            f"shallow clone needs `git fetch --unshallow` (git: {done.stderr.decode().strip()})"
        )
    subprocess.run(["tar", "-x", "-C", str(into)], input=done.stdout, check=True)
    return into
