"""Iceberg tables: a real node, a catalog in SQLite. pyiceberg reads them as any client does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog.errors import ConfigError
from oncelog.table.files import TableError
from oncelog.table.iceberg import IcebergTopic, catalog_of, import_pyiceberg
from oncelog.table.verify import verify
from tests.integration.table.conftest import Tables, repeat_commits
from tests.integration.table.killed import run_until
from tests.integration.table.rows import in_iceberg, in_topic, send
from tests.integration.table.s3 import BUCKET, S3Server


@pytest.fixture
def tables(cluster: LocalCluster, tmp_path: Path) -> Tables:
    return Tables(cluster.bootstrap, str(tmp_path / "tables"), "iceberg")


def compared(tables: Tables, topic: str) -> list[tuple[int, list[str]]]:
    findings = verify(topic, tables.to, bootstrap_servers=tables.bootstrap, table_format="iceberg")
    return [(one.compared, one.faults) for one in findings]


def test_each_record_is_a_row_once(
    cluster: LocalCluster, admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    """A second run adds the new records, a third none; also of a topic that was made again."""
    name = f"dots.{topic}"
    for generation in range(2):
        if generation:
            admin.delete_topic(name)
        admin.create_topic(name, 2, 1)
        for number in range(2):
            headers = {"n": str(number), "none": None}
            producer.send(name, None, headers=headers, partition=number)
            send(producer, name, range(number * 50, number * 50 + 50), 2)
            tables.run(name)
            tables.run(name)
    assert [commit.records for commit in tables.commits] == [51] * 4
    rows = in_iceberg(catalog_of(tables.to, None), f"dots_{topic}")
    assert len(rows) == 204
    newest = in_topic(cluster, name)
    assert [row for row in rows if row in newest] == newest
    assert compared(tables, name) == [(0, []), (0, []), (51, []), (51, [])]


def commit_by_pyiceberg(self: IcebergTopic, transaction: Any) -> None:
    """Commits with pyiceberg's own repetition."""
    transaction.commit_transaction()


@pytest.mark.parametrize("fault", ["library", "repetition"])
def test_two_owners_at_once_do_no_harm(
    fault: str,
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    tables: Tables,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin.create_topic(topic, 3, 1)
    send(producer, topic, range(300))
    catalog = catalog_of(tables.to, None)
    with monkeypatch.context() as patched:
        if fault == "library":
            patched.setattr(IcebergTopic, "_commit", commit_by_pyiceberg)
        else:
            repeat_commits(patched)
        tables.run_both(topic, "unprotected")
    assert len(in_iceberg(catalog, "unprotected")) == 600
    tables.run_both(topic, topic)
    assert in_iceberg(catalog, topic) == in_topic(cluster, topic)


def test_a_commit_without_an_answer_adds_nothing_twice(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    tables: Tables,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitStateUnknownException

    admin.create_topic(topic, 2, 1)
    send(producer, topic, range(50), 2)
    commit, lost = SqlCatalog.commit_table, [True]

    def loses(*arguments: Any) -> Any:
        answer = commit(*arguments)
        if lost:
            lost.pop()
            raise CommitStateUnknownException("the answer is lost")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", loses)
    catalog = catalog_of(tables.to, None)
    with monkeypatch.context() as patched:
        repeat_commits(patched)
        tables.run(topic, name="unprotected")
    assert len(in_iceberg(catalog, "unprotected")) == 100
    lost.append(True)
    tables.run(topic)
    assert not lost
    assert in_iceberg(catalog, topic) == in_topic(cluster, topic)


def test_an_archiver_may_be_killed_before_and_behind_a_commit(
    cluster: LocalCluster, admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    """`test_kills` shows the fault first, and has all steps."""
    admin.create_topic(topic, 2, 1)
    for number, step in enumerate(("commit", "committed")):
        send(producer, topic, range(number * 40, number * 40 + 40), 2)
        assert run_until(step, tables, topic) == -signal.SIGKILL
    tables.run(topic)
    assert in_iceberg(catalog_of(tables.to, None), topic) == in_topic(cluster, topic)
    assert compared(tables, topic) == [(40, []), (40, [])]


def test_a_damaged_file_is_found(
    admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    admin.create_topic(topic, 1, 1)
    send(producer, topic, range(20), 1)
    tables.run(topic)
    (file,) = Path(tables.to, topic).rglob("*.parquet")
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    ((_, faults),) = compared(tables, topic)
    assert file.name in faults[0]


def test_a_table_belongs_to_one_topic_and_one_place(
    admin: Admin, producer: Producer, tables: Tables, topic: str
) -> None:
    for name in (f"a.{topic}", f"a_{topic}"):
        admin.create_topic(name, 1, 1)
        send(producer, name, range(5), 1)
    tables.run(f"a.{topic}")
    with pytest.raises(TableError, match=r"oncelog.topic is 'a\..*choose another --name"):
        tables.run(f"a_{topic}")
    delta = Tables(tables.bootstrap, tables.to)
    with pytest.raises(TableError, match=r"a table of another format is there; choose another"):
        delta.run(f"a.{topic}")
    delta.run(f"a.{topic}", name="delta")
    with pytest.raises(TableError, match=r"a table of another format is there; choose another"):
        tables.run(f"a.{topic}", name="delta")
    admin.create_topic(f"never.{topic}", 1, 1)
    with pytest.raises(TableError, match=r"no table; start `oncelog table run"):
        compared(tables, f"never.{topic}")
    with pytest.raises(ConfigError, match=r"catalog: Iceberg tables in s3://b need a catalog"):
        Tables(tables.bootstrap, "s3://b", "iceberg").run(f"a.{topic}")


def test_a_topic_becomes_a_table_in_a_store(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    server: S3Server,
    topic: str,
    tmp_path: Path,
) -> None:
    """By the command, with a catalog of pyiceberg's configuration."""
    admin.create_topic(topic, 2, 1)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}",
    }
    variables = {f"PYICEBERG_CATALOG__PROD__{key.upper()}": v for key, v in properties.items()}
    to = f"s3://{BUCKET}/{topic}"
    place = ["--to", to, "--table-format", "iceberg", "--catalog", "prod", "-b", cluster.bootstrap]
    for number, words in enumerate((["run", "-e"], ["run", "-e"], ["verify"])):
        send(producer, topic, range(number * 50, number * 50 + 50), 2)
        done = subprocess.run(
            [sys.executable, "-m", "oncelog.cli", "table", *words, topic, *place],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    properties["s3.endpoint"] = server.environment["AWS_ENDPOINT_URL"]
    pyiceberg = import_pyiceberg()
    rows = in_iceberg(pyiceberg.catalog.load_catalog("prod", **properties), topic)
    assert len(rows) == 100
    assert rows == [row for row in in_topic(cluster, topic) if row in rows]
