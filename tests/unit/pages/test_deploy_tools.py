"""Cache of the programs for the chart's tests: their sources decide on their folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.deploy import tools


def test_all_that_a_build_depends_on_gives_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a changed checksum or flag would be tried with the programs of before."""
    module = tmp_path / "go"
    shutil.copytree(tools.MODULE, module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = tools._folder()
    monkeypatch.setattr(tools, "MODULE", module)
    assert tools._folder() == first
    folders = {first}
    for source in ("go.mod", "go.sum", "controller/main.go"):
        with (module / source).open("a") as file:
            file.write("\n")
        folders.add(tools._folder())
    monkeypatch.setattr(tools, "CHEAP", "-gcflags=")
    folders.add(tools._folder())
    monkeypatch.setattr(tools, "ENVIRONMENT", {})
    folders.add(tools._folder())
    assert len(folders) == 6
