"""Clients in other languages, by their drivers, against clusters of real nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.driver import Driver
from tests.integration.conftest import cluster, make_cluster, topic

__all__ = ["cluster", "make_cluster", "topic"]

StartDriver = Callable[[], Driver]


@pytest.fixture(scope="session")
def go_driver(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go client's driver, built. Needs a Go toolchain; scripts/test --clients says so."""
    program = tmp_path_factory.mktemp("go") / "driver"
    subprocess.run(
        ["go", "build", "-o", str(program), "./driver"], cwd=root / "clients/go", check=True
    )
    return program


@pytest.fixture
def driver(go_driver: Path) -> Iterator[Driver]:
    with Driver([str(go_driver)]) as one:
        yield one
