"""The Go client's example `copy`: a copy of a partition, exactly once, over kills."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from oncelog import Admin, Producer, TopicConfig
from tests.integration.conftest import MakeCluster
from tests.integration.records import read_all
from tests.integration.waiting import eventually


@pytest.fixture
def go_programs(root: Path, tmp_path: Path) -> Path:
    """A folder with the example, built."""
    command = ["go", "build", "-o", str(tmp_path), "./examples/copy"]
    subprocess.run(command, cwd=root / "clients/go", check=True)
    return tmp_path


def test_a_copy_that_is_killed_goes_on_where_it_was(
    make_cluster: MakeCluster, go_programs: Path, topic: str
) -> None:
    """examples/copy keeps no file: the source's offsets are its sequences in the target."""
    cluster = make_cluster()
    count, size = 20_000, 1000
    copy = f"{topic}-copy"
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
        # Small batches, so that there is time to kill it.
        admin.create_topic(copy, 1, 3, TopicConfig(max_batch_bytes=32 * 1024))
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%*d" % (size, number))
    command = [str(go_programs / "copy"), cluster.bootstrap, topic, "0", copy]
    api = cluster.api(next(iter(cluster.running)))

    def copied() -> int:
        return api.offset(copy, 0, "latest", any_replica=True)

    def run_until(target: int) -> None:
        with subprocess.Popen(command) as process:
            try:
                eventually(lambda: copied() > target, "some records to be copied")
            finally:
                process.kill()
        assert copied() < count, "it was killed on its way"

    run_until(100)
    run_until(2000)
    subprocess.run(command, check=True, timeout=60)
    values = [record.value for record in read_all(cluster, copy)]
    assert values == [b"%*d" % (size, number) for number in range(count)]
