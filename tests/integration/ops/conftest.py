"""Fixtures of the pages that people and programs look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from tests.integration.ops.browsing import launched  # only tests of browsers need it

    with launched() as one:
        yield one
