"""Kafka's producers while leaders are killed; without idempotence the fault shows itself.

librdkafka's and Java's are there side by side. Java's need a JDK and Maven.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.local_cluster import QUICK, LocalCluster
from tests.chaos import kafka_transactions
from tests.chaos.java_producers import HAS_JAVA, JavaLoad, JavaSession
from tests.chaos.kafka_producers import Found, LibrdkafkaLoad, run
from tests.chaos.kafka_transactions import (
    ABORTED,
    COMMITTED,
    IN_DOUBT,
    LibrdkafkaSession,
    Read,
    Told,
    check,
)

KILLS = 2
MOST_TRIES = 5
LOADS = [LibrdkafkaLoad, JavaLoad] if HAS_JAVA else [LibrdkafkaLoad]
SESSIONS = [LibrdkafkaSession, JavaSession] if HAS_JAVA else [LibrdkafkaSession]
JAVA = pytest.param("java", marks=pytest.mark.skipif(not HAS_JAVA, reason="needs a JDK and Maven"))
CLIENTS = ["librdkafka", JAVA]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        Path(tmp_path_factory.mktemp("kafka")) / "cluster", settings=QUICK, kafka=True
    ) as made:
        yield made


@pytest.fixture(scope="module")
def loads(cluster: LocalCluster) -> dict[str, Found]:
    return run(cluster, "once", KILLS, LOADS, once=True)


@pytest.fixture(scope="module")
def transactions(cluster: LocalCluster) -> Read:
    return kafka_transactions.run(cluster, SESSIONS, "transactions", KILLS)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_idempotent_producer_stores_each_record_once_and_in_order(
    loads: dict[str, Found], client: str
) -> None:
    found = loads[client]
    assert found.sent > 2_000
    assert (found.lost, found.twice, found.disordered) == (0, 0, 0)


def test_transactions_are_whole_or_not_there(transactions: Read) -> None:
    assert not transactions.faults
    assert transactions.aborted > 5 and transactions.in_doubt


@pytest.mark.parametrize("client", CLIENTS)
def test_transactions_of_each_client_were_committed(transactions: Read, client: str) -> None:
    assert transactions.clients[client] > 10


WHOLE = {0: [b"a/0/0", b"a/0/1"], 1: [b"a/0/2"]}
BREACHES = [
    ("lost", COMMITTED, {0: [b"a/0/0", b"a/0/1"], 1: []}),
    ("lost", COMMITTED, {0: [], 1: []}),
    ("torn", IN_DOUBT, {0: [b"a/0/0"], 1: [b"a/0/2"]}),
    ("aborted", ABORTED, {0: [b"a/0/0"], 1: []}),
    ("twice", COMMITTED, {0: [b"a/0/0", b"a/0/1", b"a/0/0"], 1: [b"a/0/2"]}),
    ("apart", COMMITTED, {0: [b"a/0/0", b"b", b"a/0/1"], 1: [b"a/0/2"]}),
    ("apart", COMMITTED, {0: [b"a/0/1", b"a/0/0"], 1: [b"a/0/2"]}),
    ("from nowhere", COMMITTED, {**WHOLE, 2: [b"b"]}),
]


@pytest.mark.parametrize(("fault", "outcome", "found"), BREACHES)
def test_the_check_of_transactions_sees(
    fault: str, outcome: str, found: dict[int, list[bytes]]
) -> None:
    faults = check([Told(WHOLE, outcome)], found).faults
    assert any(one.startswith(fault) for one in faults), faults
    sound = WHOLE if outcome == COMMITTED else {0: [], 1: []}
    assert not check([Told(WHOLE, outcome)], sound).faults


def test_without_transactions_they_are_torn(cluster: LocalCluster) -> None:
    """So the tests above would see it: a writer leaves in the middle of one, and half is there."""
    found = kafka_transactions.run(cluster, SESSIONS, "torn", 0, whole=False)
    torn = [fault for fault in found.faults if fault.startswith("torn")]
    for kind in SESSIONS:
        assert any(f"torn-{kind.client}/" in fault for fault in torn), torn


def test_without_idempotence_a_killed_leader_makes_duplicates(cluster: LocalCluster) -> None:
    """So the test above would see them. Nothing acknowledged is lost either way."""
    seen = set[str]()
    for attempt in range(MOST_TRIES):
        for client, found in run(cluster, f"many-{attempt}", KILLS, LOADS, once=False).items():
            assert not found.lost
            if found.twice:
                seen.add(client)
        if len(seen) == len(LOADS):
            return
    pytest.fail(f"no duplicate but of {seen} in {MOST_TRIES * KILLS} kills")
