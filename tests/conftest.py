"""Shared setup of all tests: markers by folder, Hypothesis profiles.

A test's marker is the folder it lies in (`tests/integration/...` is `integration`), so that
`scripts/test --fast` and `-m` select by folder without a decorator that somebody forgets. Tests
directly in `tests/` are `unit`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
KINDS = frozenset({"unit", "sim", "integration", "chaos", "durability", "fuzz", "spark", "clients"})

# A slow machine is no failure: deadlines are wall time. CI prints the blob that reproduces a
# failure; a developer's run also searches further on each run.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test with the kind its folder names."""
    for item in items:
        try:
            parts = item.path.relative_to(TESTS).parts
        except ValueError:
            continue
        kind = parts[0] if len(parts) > 1 else "unit"
        if kind in KINDS:
            item.add_marker(getattr(pytest.mark, kind))


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the source tree."""
    return ROOT
