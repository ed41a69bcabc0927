"""A real node's metrics page, parsed."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from itertools import pairwise

from harness.local_cluster import LocalCluster

TIMEOUT = 10.0


def page_of(cluster: LocalCluster, node: int, query: str = "") -> str:
    url = f"http://{cluster.metrics_addresses[node]}/metrics{query}"
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        text: str = answer.read().decode()
    return text


def figures_of(page: str) -> Mapping[str, float]:
    """Name with labels -> value."""
    rows = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def families_of(page: str) -> dict[str, tuple[str, str]]:
    """Name -> (type, help)."""
    lines = page.splitlines()
    found = {}
    for help_line, type_line in pairwise(lines):
        if help_line.startswith("# HELP "):
            name, _, text = help_line.removeprefix("# HELP ").partition(" ")
            assert type_line.startswith(f"# TYPE {name} "), help_line
            assert name not in found, f"{name} is there twice"
            found[name] = (type_line.rpartition(" ")[2], text)
    return found
