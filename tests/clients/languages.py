"""Languages of the clients that run against real nodes: their toolchains are here.

conformance/clients.toml names the commands that each client needs.
"""

from __future__ import annotations

import shutil

import pytest

from conformance.matrix import tree_clients

CHOSEN = [
    client.name
    for client in tree_clients()
    if client.folder and all(shutil.which(command) for command in client.needs)
]


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
    """Parameters for the clients of these languages: the others lack the feature."""
    return pytest.mark.parametrize("language", [one for one in CHOSEN if one in languages])


__all__ = ["every", "first", "offering"]
