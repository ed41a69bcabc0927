"""What the tests that run the simulation share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Simulated nodes say a great deal, and a test fails by what it checks."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
