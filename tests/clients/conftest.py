"""Clients in other languages, by their drivers, against clusters of real nodes."""

from __future__ import annotations

import functools
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.matrix import tree_clients
from tests.clients.driver import Driver
from tests.clients.languages import CHOSEN
from tests.integration.conftest import cluster, make_cluster, topic

__all__ = ["cluster", "make_cluster", "topic"]

collect_ignore_glob = [] if "go" in CHOSEN else ["test_go_*"]


@functools.cache
def driver_command(language: str, root: Path) -> tuple[str, ...]:
    """The command that starts the client's driver; builds it first as the kit does."""
    (client,) = (client for client in tree_clients() if client.name == language)
    subprocess.run(client.build, cwd=root, check=True)
    return tuple(shlex.split(client.driver.replace("{python}", sys.executable)))


@pytest.fixture
def driver(language: str, root: Path) -> Iterator[Driver]:
    """Needs the language's toolchain; `scripts/test --clients` says so."""
    with Driver(driver_command(language, root), root) as one:
        yield one
