"""Clients in other languages, by their drivers, against clusters of real nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.driver import Driver
from tests.integration.conftest import cluster, make_cluster, topic

__all__ = ["cluster", "make_cluster", "topic"]


@pytest.fixture(scope="session")
def go_programs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Go client's driver and its example `copy`, built.

    Needs a Go toolchain; `scripts/test --clients` says so.
    """
    folder = tmp_path_factory.mktemp("go")
    command = ["go", "build", "-o", str(folder), "./driver", "./examples/copy"]
    subprocess.run(command, cwd=root / "clients/go", check=True)
    return folder


@pytest.fixture
def driver(go_programs: Path) -> Iterator[Driver]:
    with Driver([str(go_programs / "driver")]) as one:
        yield one
