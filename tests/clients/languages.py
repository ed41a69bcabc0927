"""The languages whose clients run against real nodes.

scripts/test --clients names the checked languages in ONCELOG_TEST_CLIENTS; without it: all.
"""

from __future__ import annotations

import os

import pytest

CHOSEN = os.environ.get("ONCELOG_TEST_CLIENTS", "go java node rust").split()


def _among(language: str, *, slow: bool) -> object:
    marks = [pytest.mark.slow] if slow else []
    return pytest.param(language, marks=marks)


def every() -> pytest.MarkDecorator:
    """The test runs for each language."""
    return pytest.mark.parametrize("language", CHOSEN)


def first() -> pytest.MarkDecorator:
    """Runs for the first of the clients; for the others only with --all, since the kit has the
    same.
    """
    languages = [_among(language, slow=index > 0) for index, language in enumerate(CHOSEN)]
    return pytest.mark.parametrize("language", languages)


def offering(*languages: str) -> pytest.MarkDecorator:
    """Parameters for the checked clients among these languages: the others lack the feature."""
    return pytest.mark.parametrize("language", [one for one in CHOSEN if one in languages])


__all__ = ["every", "first", "offering"]
