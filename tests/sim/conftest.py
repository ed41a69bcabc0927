"""Fixtures of the tests that run the simulation."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Silences simulated nodes, which log a lot; a test fails by its own checks."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
