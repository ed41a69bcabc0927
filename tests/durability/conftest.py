"""Clusters for tests of durability: the integration tests' fixtures, and nodes with hooks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.local_cluster import LocalCluster
from tests.integration.conftest import make_cluster, pytest_runtest_makereport, topic

__all__ = ["hook", "make_cluster", "pytest_runtest_makereport", "topic", "unhook"]


def hook(cluster: LocalCluster, node: int, **variables: Any) -> None:
    """Makes the node run with hooks (`hooked.py`) from its next start, by lower-case names."""
    process = cluster.nodes[node]
    assert not process.running
    plain = {k: v for k, v in process.spec.settings.items() if not k.startswith("test_")}
    settings = {**plain, **{f"test_{name}": value for name, value in variables.items()}}
    process.spec = replace(process.spec, settings=settings, module="tests.durability.hooked")


def unhook(cluster: LocalCluster, node: int) -> None:
    """Makes the node the product again from its next start."""
    process = cluster.nodes[node]
    plain = {k: v for k, v in process.spec.settings.items() if not k.startswith("test_")}
    process.spec = replace(process.spec, settings=plain, module="cluster")
