"""Clusters of real processes. Their logs are part of the report of a failed test.

A test that injects no fault takes `cluster`, which its module shares; one that does takes
`make_cluster`. Every test has topics of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.local_cluster import QUICK, LocalCluster
from oncelog import Admin, Producer

pytest.register_assert_rewrite("tests.integration.client.cancelled_calls")

# Leaders stay where their first election put them: a test may look once and rely on it. The
# product's own election timeout: a machine that runs all tests stands still for QUICK's.
STEADY = {**QUICK, "election_timeout_ms": 1000, "preferred_leader_delay_ms": 3_600_000}
_running: list[LocalCluster] = []
MakeCluster = Callable[..., LocalCluster]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Adds the ends of the nodes' logs to a failure, before the cluster is taken down."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for cluster in _running:
            report.sections.append((f"nodes in {cluster.root}", cluster.logs(60)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that nobody harms, shared by the module."""
    with LocalCluster(tmp_path_factory.mktemp("shared"), settings=STEADY, metrics=True) as made:
        _running.append(made)
        yield made
        _running.remove(made)


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as one:
        yield one


@pytest.fixture
def producer(cluster: LocalCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as one:
        yield one


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Makes and starts clusters with LocalCluster's arguments; all are killed at the end."""
    made: list[LocalCluster] = []

    def make(nodes: int = 3, *, start: bool = True, **options: Any) -> LocalCluster:
        one = LocalCluster(tmp_path / f"cluster{len(made) + 1}", nodes, **options)
        made.append(one)
        _running.append(one)
        if start:
            one.start()
        return one

    yield make
    for one in made:
        one.close()
        _running.remove(one)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that is the test's own."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name)[:200]
