"""`oncelog table run` and `verify`: a real node, tables in local files. Each fault is shown on an
unprotected archiver first.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer, TopicConfig, TopicPartition
from oncelog.settings import CompressionType
from oncelog.table import delta
from oncelog.table.delta import DeltaTopic
from oncelog.table.files import (
    CommitUnknownError,
    TableError,
    TableFile,
    TablePartition,
    TopicTable,
    owner_of,
)
from oncelog.table.merge import merge
from oncelog.table.verify import verify
from tests.integration.table.conftest import Tables, repeat_commits
from tests.integration.table.rows import in_table, in_topic, places, send
from tests.integration.waiting import eventually


def test_each_record_is_a_row_once(
    cluster: LocalCluster, admin: Admin, tables: Tables, topic: str
) -> None:
    """All codecs, nulls, headers, transactions: a second run adds the new records, a third none."""
    name = f"dots.{topic}"
    admin.create_topic(name, 2, 1)
    url = f"{tables.to}/dots_{topic}"
    codecs: tuple[CompressionType, ...] = ("none", "zstd", "lz4")
    for number, codec in enumerate(codecs):
        with Producer(
            bootstrap_servers=cluster.bootstrap, compression_type=codec, producer_name=codec + topic
        ) as producer:
            for aborted in (True, False):
                with producer.transaction() as transaction:
                    for n in range(20):
                        value = None if n % 5 == 0 else b"%d of %d" % (n, number) * (n + 1)
                        headers = {"n": str(n), "none": None} if n % 3 == 0 else None
                        key = None if n % 4 == 0 else b"key"
                        producer.send(name, value, key, headers=headers, partition=n % 2)
                    if aborted:
                        transaction.abort()
        tables.run(name)
        assert in_table(url) == in_topic(cluster, name)
    assert len(in_table(url)) == 60
    assert [commit.records for commit in tables.commits] == [20, 20, 20]
    tables.run(name)
    assert len(tables.commits) == 3
    findings = verify(name, tables.to, bootstrap_servers=cluster.bootstrap)
    assert [(one.records, one.compared, one.faults) for one in findings] == [(30, 30, [])] * 2
    rows = DeltaTable(url).to_pyarrow_table()
    assert set(rows["sequence"].to_pylist()) != {None}
    assert None not in rows["append_time"].to_pylist()


def test_small_files_become_one(
    cluster: LocalCluster, admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    admin.create_topic(topic, 1, 1)
    url = f"{tables.to}/{topic}"
    for number in range(5):
        send(producer, topic, range(number * 50, number * 50 + 50), 1)
        tables.run(topic)
    assert len(DeltaTable(url).file_uris()) == 5
    sizes = [commit.file_bytes for commit in tables.commits]
    send(producer, topic, range(250, 260), 1)
    tables.run(topic, merge_below=sum(sizes))
    assert len(DeltaTable(url).file_uris()) == 1
    assert tables.commits[-1].merged == 6
    assert in_table(url) == in_topic(cluster, topic)
    (finding,) = verify(topic, tables.to, bootstrap_servers=cluster.bootstrap)
    assert (finding.records, finding.faults) == (260, [])


def merged_twice(tables: Tables, url: str, cluster: LocalCluster, topic: str) -> int:
    """Two instances merge the same files, both from the same version; the number of rows then."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        owner = owner_of(admin.describe_cluster())
        topic_id = admin.describe_topic(topic).topic_id
    place = TablePartition(topic_id, 0)
    both = [DeltaTopic.open(url, owner, topic) for _ in range(2)]
    for table in both:
        try:
            merge(table, place, table.files(place), {"topic": topic})
        except CommitUnknownError:
            assert table is both[1]
    return len(in_table(url))


def test_a_second_merge_of_the_same_files_is_refused(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    tables: Tables,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin.create_topic(topic, 1, 1)
    for number in range(2):
        send(producer, topic, range(number * 50, number * 50 + 50), 1)
        tables.run(topic)
        tables.run(topic, name="unprotected")
    with monkeypatch.context() as patched:
        patched.setattr(delta, "RETRIES", 15)
        assert merged_twice(tables, f"{tables.to}/unprotected", cluster, topic) == 200
    assert merged_twice(tables, f"{tables.to}/{topic}", cluster, topic) == 100


def test_two_owners_at_once_do_no_harm(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    tables: Tables,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin.create_topic(topic, 3, 1)
    send(producer, topic, range(300))
    with monkeypatch.context() as patched:
        repeat_commits(patched)
        tables.run_both(topic, "unprotected")
    assert len(in_table(f"{tables.to}/unprotected")) == 600
    tables.run_both(topic, topic)
    assert in_table(f"{tables.to}/{topic}") == in_topic(cluster, topic)


def test_two_members_share_the_partitions(
    cluster: LocalCluster, admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    """Records come while one instance joins and one leaves."""
    admin.create_topic(topic, 4, 1)
    with tables.following(topic, group_id=topic):
        send(producer, topic, range(200), 4)
        with tables.following(topic, group_id=topic):
            members = admin.describe_group
            eventually(lambda: len(members(topic).members) == 2, "both are members", 60)
            send(producer, topic, range(200, 400), 4)
        send(producer, topic, range(400, 600), 4)
    tables.run(topic, group_id=topic)
    assert in_table(f"{tables.to}/{topic}") == in_topic(cluster, topic)


def test_a_topic_that_was_made_again_goes_on_in_the_table(
    cluster: LocalCluster, admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    """Once between two runs, and once while an archiver reads."""

    def make_again(count: int) -> None:
        admin.delete_topic(topic)
        admin.create_topic(topic, 1, 1)
        send(producer, topic, range(count), 1)

    def archived() -> int:
        return sum(commit.records for commit in tables.commits)

    admin.create_topic(topic, 1, 1)
    send(producer, topic, range(20), 1)
    tables.run(topic)
    # Each is longer than the one before: a position of the old topic would be taken.
    make_again(40)
    with tables.following(topic):
        eventually(lambda: archived() >= 60, "the second is there", 60)
        make_again(60)
        eventually(lambda: archived() >= 120, "the third is there", 60)
        make_again(80)
        eventually(lambda: archived() >= 200, "the fourth is there", 60)
    whole = DeltaTable(f"{tables.to}/{topic}").to_pyarrow_table()
    rows = whole.select(["topic_id", "offset"]).to_pylist()
    assert len(rows) == len({tuple(row.values()) for row in rows}) == 200
    assert len({row["topic_id"] for row in rows}) == 4
    findings = verify(topic, tables.to, bootstrap_servers=cluster.bootstrap)
    assert [(one.records, one.compared, one.faults) for one in findings] == [
        (20, 0, []),
        (40, 0, []),
        (60, 0, []),
        (80, 80, []),
    ]


def test_records_that_were_deleted_before_they_were_read_are_an_error(
    cluster: LocalCluster, admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    admin.create_topic(topic, 1, 1)
    send(producer, topic, range(10), 1)
    tables.run(topic)
    send(producer, topic, range(10, 30), 1)
    admin.alter_topic(topic, TopicConfig(retention_bytes=1))
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        starts = consumer.beginning_offsets
        eventually(lambda: starts([(topic, 0)])[TopicPartition(topic, 0)] > 10, "some are deleted")
    admin.alter_topic(topic, TopicConfig(retention_bytes=-1))
    send(producer, topic, range(30, 40), 1)
    with pytest.raises(TableError, match=r"records from 10 to \d+ are deleted.*--name"):
        tables.run(topic)
    assert len(in_table(f"{tables.to}/{topic}")) == 10
    tables.run(topic, name="new")
    assert places(in_table(f"{tables.to}/new")) == places(in_topic(cluster, topic))


def test_a_table_belongs_to_one_topic_of_one_cluster(
    admin: Admin, producer: Producer, tables: Tables, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (f"a.{topic}", f"a_{topic}"):
        admin.create_topic(name, 1, 1)
        send(producer, name, range(5), 1)
    tables.run(f"a.{topic}")
    with pytest.raises(TableError, match=r"oncelog.topic is 'a\..*choose another --name"):
        tables.run(f"a_{topic}")
    tables.run(f"a_{topic}", name="other")
    founded_again = replace(admin.describe_cluster(), founding="0")
    monkeypatch.setattr(Admin, "describe_cluster", lambda self: founded_again)
    with pytest.raises(TableError, match=r"oncelog.cluster is '.*choose another --name"):
        tables.run(f"a.{topic}")


# --- the command, and its comparison -----------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oncelog.cli", "table", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def archived(admin: Admin, producer: Producer, tables: Tables, topic: str) -> str:
    """The URL of a table with two files of one partition."""
    admin.create_topic(topic, 1, 1)
    for numbers in (range(10), range(10, 20)):
        send(producer, topic, numbers, 1)
        tables.run(topic)
    return f"{tables.to}/{topic}"


def test_the_command_writes_and_compares(
    cluster: LocalCluster, archived: str, tables: Tables, topic: str
) -> None:
    place = ("--to", tables.to, "-b", cluster.bootstrap)
    done = command("run", topic, *place, "--name", "by.command", "--exit-at-end")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith(f"{topic}: version 1: 20 records in 1 file, ")
    done = command("verify", topic, *place, "--name", "by.command")
    assert done.returncode == 0
    assert done.stdout.split()[-6:] == ["0", "0", "20", "20", "20", "-"]


def fault(cluster: LocalCluster, tables: Tables, topic: str) -> str:
    (finding,) = verify(topic, tables.to, bootstrap_servers=cluster.bootstrap)
    (text,) = finding.faults
    return text


def test_a_comparison_finds_a_damaged_file(
    cluster: LocalCluster, archived: str, tables: Tables, topic: str
) -> None:
    path = Path(sorted(DeltaTable(archived).file_uris())[1].removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert str(path.name) in fault(cluster, tables, topic)


def test_a_comparison_finds_a_row_that_is_there_twice_or_missing(
    cluster: LocalCluster, archived: str, tables: Tables, topic: str
) -> None:
    table = DeltaTable(archived)
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.delete("offset = 3")
    assert "no file of `oncelog table`" in fault(cluster, tables, topic)
    table.restore(2)
    assert DeltaTable(archived).to_pyarrow_table().num_rows == 20
    owner, place = table.metadata().configuration["oncelog.cluster"], _place(table)
    opened = DeltaTopic.open(archived, owner, topic)
    opened._add([(place, _copied(archived, place, opened))], {})
    assert "offset 10 should follow" in fault(cluster, tables, topic)


def _place(table: DeltaTable) -> TablePartition:
    (topic_id,) = set(table.to_pyarrow_table()["topic_id"].to_pylist())
    return TablePartition(topic_id, 0)


def _copied(url: str, place: TablePartition, table: TopicTable) -> TableFile:
    file, path = table.files(place)[0], place.new_path(0)
    shutil.copy(Path(url) / file.path, Path(url) / path)
    return file._replace(path=path)
