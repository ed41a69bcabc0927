"""Kafka's producers while leaders are killed; without idempotence the fault shows itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.local_cluster import QUICK, LocalCluster
from tests.chaos.kafka_producers import run

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


def test_without_idempotence_a_killed_leader_makes_duplicates(cluster: LocalCluster) -> None:
    """So the test above would see them. Nothing acknowledged is lost either way."""
    for attempt in range(MOST_TRIES):
        found = run(cluster, f"many-{attempt}", KILLS, once=False)
        assert not found.lost
        if found.twice:
            return
    pytest.fail(f"no duplicate in {MOST_TRIES * KILLS} kills")
