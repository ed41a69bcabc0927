"""kafka-python's integration tests, from its source distribution, against one node."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.suites.outcome import Case
from tests.suites.places import FOLDER, cluster_of, step

VERSION = "3.0.12"
HOME = FOLDER / f"kafka-python-{VERSION}"
TREE = HOME / f"kafka_python-{VERSION}"
PYTHON = HOME / "venv" / "bin" / "python"
PACKAGES = ("pytest==9.0.2", "pytest-timeout==2.4.0", "crc32c==2.9.post0", "lz4==4.4.5",
            "python-snappy==0.7.3", "zstandard==0.25.0")  # fmt: skip
KAFKA_VERSION = "2.7"  # the newest release with no call that is missing here
TIMEOUT = 120  # seconds for a test
# The distribution lacks the module that starts Kafka; a broker that runs needs this much of it.
SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self): pass

    def stop(self): pass


class SpawnedService:
    pass
"""
OWN_BROKER = "starts a Kafka of its own, with keys of its own"
NO_MOVES = "moves replicas by hand"
CANNOT = {
    "test_create_describe_delete_acls": "Kafka's ACLs: there is oncelog acl",
    "test_describe_configs_broker_resource_returns_configs": "a node's settings are in its file",
    "test_describe_configs_mixed_resources_returns_configs": "a node's settings are in its file",
    "test_delete_records": "records go by whole batches",
    "test_create_partitions": "places partitions on a node 0",
    "test_elect_leaders": "nodes hand leadership over by themselves",
    "test_alter_replica_log_dirs": NO_MOVES,
    "test_alter_partition_reassignments": NO_MOVES,
    "test_list_partition_reassignments": NO_MOVES,
    "test_kafka_version_infer": "takes the node for 2.8, of which it offers not all",
    "test_transactional_producer_offsets": "wants the leader epoch of a committed offset",
    "test_ssl_handshake": OWN_BROKER,
    "test_legacy_kafka_client_ssl": OWN_BROKER,
}


def build() -> None:
    """Fetch the distribution and the packages that its tests need, once."""
    done = HOME / "done"
    if done.exists():
        return
    HOME.mkdir(parents=True, exist_ok=True)
    step(sys.executable, "-m", "venv", HOME / "venv", cwd=HOME)
    step(PYTHON, "-m", "pip", "install", "-q", *PACKAGES, cwd=HOME)
    step(PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "kafka-python",
         f"kafka-python=={VERSION}", cwd=HOME)  # fmt: skip
    with tarfile.open(HOME / f"kafka_python-{VERSION}.tar.gz") as archive:
        archive.extractall(HOME, filter="data")
    (TREE / "test" / "__init__.py").touch()
    (TREE / "test" / "service.py").write_text(SERVICE)
    done.touch()


def run(only: Sequence[str], *, quick: bool) -> Iterator[Case]:
    build()
    report = HOME / "report.xml"
    report.unlink(missing_ok=True)
    with cluster_of(1) as (_, servers):
        environment = {
            **os.environ,
            "KAFKA_URI": f"kafka://{servers}",
            "KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_ROOT": str(HOME),
        }
        words = [str(PYTHON), "-m", "pytest", "test/integration", "-q", "--tb=short",
                 "--show-capture=no", f"--timeout={TIMEOUT}", f"--junitxml={report}"]  # fmt: skip
        chosen = ["-k", " or ".join(only)] if only else []
        subprocess.run(
            [*words, *chosen], cwd=TREE, env=environment, stdin=subprocess.DEVNULL, check=False
        )
    yield from cases(report)


def cases(report: Path) -> Iterator[Case]:
    """Read a report in JUnit's form."""
    for case in ElementTree.parse(report).iter("testcase"):
        faults = [part for part in case if part.tag in ("failure", "error")]
        is_skipped = case.find("skipped") is not None
        text = "\n".join(part.text or "" for part in faults)
        yield Case(case.get("name", ""), not faults and not is_skipped, is_skipped, text)
