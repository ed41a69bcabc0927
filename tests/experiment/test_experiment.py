"""The experiment, small: acknowledgements are lost for sure, a broker is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.local_cluster import LocalCluster
from tests.experiment.plan import BROKER, CLIENTS, CONNECTIONS, ONCELOG, Outcome, Plan
from tests.experiment.report import write
from tests.experiment.run import run

pytestmark = pytest.mark.chaos
RECORDS = 60_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("experiment")
    with LocalCluster(root, proxied=True, kafka=True) as running:
        yield running


def plan(*, idempotent: bool, client: str) -> Plan:
    return Plan(
        0,
        idempotent,
        client=client,
        records=RECORDS,
        seconds=5,
        connections_every=0.7,
        brokers_every=3,
        lose_acknowledgements=True,
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_off_shows_duplicates_and_on_shows_none(
    cluster: LocalCluster, tmp_path: Path, client: str
) -> None:
    counts: list[int] = []
    off = run(cluster, plan(idempotent=False, client=client), counts.append)
    on = run(cluster, plan(idempotent=True, client=client), counts.append)
    assert max(counts) == RECORDS
    for outcome in (off, on):
        assert outcome.faults() == []
        assert outcome.acknowledged == RECORDS
        assert outcome.found.stored == RECORDS + outcome.found.duplicates
        assert outcome.count(BROKER) >= 1
        assert outcome.count(CONNECTIONS) >= 1
    assert off.found.duplicates > 0
    # The same faults hit it, and the nodes recognised the repeats; librdkafka does not tell.
    assert on.refused > 0 or client != ONCELOG
    _reported(off, on, tmp_path)


def _reported(off: Outcome, on: Outcome, folder: Path) -> None:
    table, data, picture = write([off, on], folder)
    assert f"{off.found.duplicates:,}" in table.read_text()
    said = json.loads(data.read_text())
    assert said["good"] is True
    assert [one["found"]["duplicates"] for one in said["runs"]] == [off.found.duplicates, 0]
    assert picture.read_bytes().startswith(b"\x89PNG")
