"""One node for the tests of a module, and archivers of its topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog.table.run import Archiver, Commit, TableSettings
from tests.integration.conftest import STEADY, _running

# Only the end of a run commits, unless a test says otherwise.
SETTINGS = TableSettings(merge_below=0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("table")
    with LocalCluster(root, 1, settings={**STEADY, "retention_check_ms": 100}) as made:
        _running.append(made)
        yield made
        _running.remove(made)


class Tables:
    """Tables of a test, in one folder."""

    def __init__(self, bootstrap: str, to: str) -> None:
        self.bootstrap = bootstrap
        self.to = to
        self.commits: list[Commit] = []

    def archiver(self, *topics: str, name: str | None = None, **options: Any) -> Archiver:
        group = options.pop("group_id", None)
        step = options.pop("step", lambda name: None)
        return Archiver(
            topics,
            self.to,
            bootstrap_servers=self.bootstrap,
            name=name,
            group_id=group,
            settings=replace(SETTINGS, **options),
            on_commit=self.commits.append,
            step=step,
        )

    def run(self, *topics: str, **options: Any) -> None:
        """Archive the present records."""
        self.archiver(*topics, **options).run(exit_at_end=True)


@pytest.fixture
def tables(cluster: LocalCluster, tmp_path: Path) -> Tables:
    return Tables(cluster.bootstrap, str(tmp_path / "tables"))
