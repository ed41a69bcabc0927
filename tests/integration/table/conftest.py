"""One node for the tests of a module, and archivers of its topics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest

from harness.local_cluster import LocalCluster
from oncelog.table.files import CommitUnknownError, TableFile, TablePartition, TopicTable
from oncelog.table.run import Archiver, Commit, TableSettings
from tests.integration.conftest import STEADY, _running
from tests.integration.table.s3 import S3Server

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

    def __init__(self, bootstrap: str, to: str, table_format: str = "delta") -> None:
        self.bootstrap = bootstrap
        self.to = to
        self.table_format = table_format
        self.commits: list[Commit] = []

    def archiver(self, *topics: str, name: str | None = None, **options: Any) -> Archiver:
        group = options.pop("group_id", None)
        step = options.pop("step", lambda name: None)
        return Archiver(
            topics,
            self.to,
            bootstrap_servers=self.bootstrap,
            name=name,
            table_format=self.table_format,
            group_id=group,
            settings=replace(SETTINGS, **options),
            on_commit=self.commits.append,
            step=step,
        )

    def run(self, *topics: str, **options: Any) -> None:
        """Archive the present records."""
        self.archiver(*topics, **options).run(exit_at_end=True)

    @contextmanager
    def following(self, topic: str, **options: Any) -> Iterator[None]:
        """Archive beside the body, in small files that are committed at once."""
        archiver = self.archiver(topic, commit_ms=20, roll_ms=10, **options)
        with ThreadPoolExecutor(1) as thread:
            run = thread.submit(archiver.run)
            try:
                yield
            finally:
                archiver.stop()
        run.result()

    def run_both(self, topic: str, name: str) -> None:
        """Archive twice at once, each as the owner of all partitions; both try one version."""
        barrier = threading.Barrier(2)
        met = threading.Event()

        def step(name: str) -> None:
            if name == "commit" and not met.is_set():
                barrier.wait(60)
                met.set()

        with ThreadPoolExecutor(2) as threads:
            runs = [
                threads.submit(
                    self.run, topic, name=name, group_id=f"{topic}-{name}-{n}", step=step
                )
                for n in range(2)
            ]
        for one in runs:
            one.result()


def repeat_commits(patched: pytest.MonkeyPatch) -> None:
    """Repeat a refused commit, as libraries do: with new files, and without the positions."""
    commit = TopicTable.commit

    def repeated(table: TopicTable, files: list[tuple[TablePartition, TableFile]]) -> None:
        try:
            commit(table, files)
        except CommitUnknownError:
            table.refresh()
            again = []
            for place, file in files:
                other = file._replace(path=place.new_path(file.first))
                obstore.copy(table._store, file.path, other.path)
                again.append((place, other))
            table._add(again, {})

    patched.setattr(TopicTable, "commit", repeated)


@pytest.fixture
def tables(cluster: LocalCluster, tmp_path: Path) -> Tables:
    return Tables(cluster.bootstrap, str(tmp_path / "tables"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    started = S3Server(tmp_path_factory.mktemp("s3"))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in started.environment.items():
            patched.setenv(name, value)
        yield started
    started.close()
