"""Places and steps of all suites: where they are built, and the cluster that they run against."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.local_cluster import LocalCluster
from harness.node_process import ROOT
from tests.integration.kafka.kafka_rig import admin, servers

FOLDER = ROOT / "data" / "kafka-suites"
# Leadership stays on a loaded machine: franz-go's tests fail if a coordinator moves.
SETTINGS = {
    "kafka_auto_create": "true",
    "kafka_initial_rebalance_delay_ms": "0",
    "election_timeout_ms": "5000",
    "preferred_leader_delay_ms": "3600000",
}


MISSING = 77  # exit code if a program of the machine is missing


def require(*programs: str) -> None:
    """End the program with MISSING if one of these is not there."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        print(f"kafka-suites: missing: {', '.join(missing)}", file=sys.stderr)
        sys.exit(MISSING)


def step(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run one step of a build; returns its output. Ends the program if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def jars(folder: Path, *artifacts: tuple[str, ...]) -> Path:
    """Fetch artifacts and what they need into a folder, once; returns it.

    An artifact: group, name, version and, if it has one, classifier.
    """
    done = folder / "done"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        tags = ("groupId", "artifactId", "version", "classifier")
        wanted = ""
        for one in artifacts:
            named = (f"<{tag}>{text}</{tag}>" for tag, text in zip(tags, one, strict=False))
            wanted += f"<dependency>{''.join(named)}</dependency>"
        (folder / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>suites</groupId>"
            "<artifactId>kafka</artifactId><version>1</version>"
            f"<dependencies>{wanted}</dependencies></project>\n"
        )
        step("mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}",
             cwd=folder)  # fmt: skip
        done.touch()
    return folder


@contextmanager
def cluster_of(nodes: int, **settings: str) -> Iterator[tuple[LocalCluster, str]]:
    """Run nodes with Kafka ports, for the body; gives them with their Kafka addresses.

    Ends the program if a node has ended meanwhile.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            Path(folder) / "cluster", nodes, settings={**SETTINGS, **settings}, kafka=True
        ) as cluster,
    ):
        admin(cluster)  # each node names all others
        yield cluster, servers(cluster)
        if len(cluster.running) < nodes:
            sys.exit("a node has ended:\n" + cluster.logs(60))
