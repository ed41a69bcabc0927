"""Kafka's producers while leaders are killed; without idempotence the fault shows itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.local_cluster import QUICK, LocalCluster
from tests.chaos import kafka_transactions
from tests.chaos.kafka_producers import run
from tests.chaos.kafka_transactions import ABORTED, COMMITTED, IN_DOUBT, Told, check

KILLS = 2
MOST_TRIES = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        Path(tmp_path_factory.mktemp("kafka")) / "cluster", settings=QUICK, kafka=True
    ) as made:
        yield made


def test_an_idempotent_producer_stores_each_record_once_and_in_order(
    cluster: LocalCluster,
) -> None:
    found = run(cluster, "once", KILLS, once=True)
    assert found.sent > 10_000
    assert (found.lost, found.twice, found.disordered) == (0, 0, 0)


def test_transactions_are_whole_or_not_there(cluster: LocalCluster) -> None:
    found = kafka_transactions.run(cluster, KILLS)
    assert found.committed > 20 and found.aborted > 5
    assert not found.faults


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


def test_without_idempotence_a_killed_leader_makes_duplicates(cluster: LocalCluster) -> None:
    """So the test above would see them. Nothing acknowledged is lost either way."""
    for attempt in range(MOST_TRIES):
        found = run(cluster, f"many-{attempt}", KILLS, once=False)
        assert not found.lost
        if found.twice:
            return
    pytest.fail(f"no duplicate in {MOST_TRIES * KILLS} kills")
