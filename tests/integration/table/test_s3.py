"""Tables in an object store: conditional puts, raced; lost answers; requests that are refused."""

from __future__ import annotations

import threading

import obstore
import pytest
from obstore.store import from_url

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog.table.files import TableError
from oncelog.table.verify import verify
from tests.integration.table.conftest import Tables, repeat_commits
from tests.integration.table.rows import in_table, in_topic, send
from tests.integration.table.s3 import BUCKET, S3Server


@pytest.fixture
def stored(cluster: LocalCluster, server: S3Server, topic: str) -> Tables:
    return Tables(cluster.bootstrap, f"s3://{BUCKET}/{topic}")


def test_one_of_many_puts_of_a_name_wins(server: S3Server) -> None:
    """The premise of a commit: else two writers add the same version."""
    store = from_url(f"s3://{BUCKET}/races")
    won: list[tuple[int, int]] = []

    def put(race: int, number: int, barrier: threading.Barrier) -> None:
        barrier.wait(30)
        try:
            obstore.put(store, f"{race}", b"%d" % number, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return
        won.append((race, number))

    for race in range(10):
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=put, args=(race, n, barrier)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [race for race, _ in won] == list(range(10))
    assert all(bytes(obstore.get(store, f"{race}").bytes()) == b"%d" % n for race, n in won)


def test_a_topic_becomes_a_table_in_a_store(
    cluster: LocalCluster, admin: Admin, producer: Producer, stored: Tables, topic: str
) -> None:
    admin.create_topic(topic, 2, 1)
    for number in range(2):
        send(producer, topic, range(number * 50, number * 50 + 50), 2)
        stored.run(topic)
    send(producer, topic, range(100, 900), 2)
    stored.run(topic, merge_below=4096)
    assert stored.commits[-1].merged
    assert in_table(f"{stored.to}/{topic}") == in_topic(cluster, topic)
    findings = verify(topic, stored.to, bootstrap_servers=cluster.bootstrap)
    assert [(one.compared, one.faults) for one in findings] == [(450, [])] * 2


def test_two_owners_race_for_one_version(
    cluster: LocalCluster, admin: Admin, producer: Producer, stored: Tables, topic: str
) -> None:
    admin.create_topic(topic, 3, 1)
    send(producer, topic, range(300))
    stored.run_both(topic, topic)
    assert [commit.records for commit in stored.commits] == [300]
    assert in_table(f"{stored.to}/{topic}") == in_topic(cluster, topic)


COMMIT = "PUT .*/_delta_log/0*1.json$"


def test_a_commit_without_an_answer_adds_nothing_twice(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    server: S3Server,
    stored: Tables,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store's client sends the request again, and hears that the version is there."""
    admin.create_topic(topic, 2, 1)
    send(producer, topic, range(50), 2)
    server.lose(COMMIT)
    with monkeypatch.context() as patched:
        repeat_commits(patched)
        stored.run(topic, name="unprotected")
    assert server.has_failed
    assert len(in_table(f"{stored.to}/unprotected")) == 100
    server.lose(COMMIT)
    stored.run(topic)
    assert server.has_failed
    assert in_table(f"{stored.to}/{topic}") == in_topic(cluster, topic)


def test_a_file_without_an_answer_is_stored_once(
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    server: S3Server,
    stored: Tables,
    topic: str,
) -> None:
    admin.create_topic(topic, 1, 1)
    send(producer, topic, range(50), 1)
    server.lose("PUT .*parquet$")
    stored.run(topic)
    assert server.has_failed
    assert in_table(f"{stored.to}/{topic}") == in_topic(cluster, topic)


@pytest.mark.parametrize("request_", ["PUT .*parquet$", COMMIT], ids=["file", "commit"])
def test_a_store_that_refuses_a_request_ends_the_run(
    request_: str,
    cluster: LocalCluster,
    admin: Admin,
    producer: Producer,
    server: S3Server,
    stored: Tables,
    topic: str,
) -> None:
    """Producers go on, and the next run begins where the table ends."""
    admin.create_topic(topic, 1, 1)
    send(producer, topic, range(50), 1)
    server.refuse(request_)
    with pytest.raises(TableError, match=stored.to):
        stored.run(topic)
    assert server.has_failed
    assert in_table(f"{stored.to}/{topic}") == []
    send(producer, topic, range(50, 80), 1)
    stored.run(topic)
    assert in_table(f"{stored.to}/{topic}") == in_topic(cluster, topic)
