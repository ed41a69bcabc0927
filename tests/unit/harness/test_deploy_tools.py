"""Programs of the Helm chart's tests, which runs of several trees build into one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy import tools


@pytest.mark.parametrize("is_alone", [True, False])
def test_two_runs_at_once_make_the_same_definitions(
    is_alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*command: str | Path) -> None:
        """Generate; another run does the same in the meantime."""
        (mine,) = (Path(str(word).partition("dir=")[2]) for word in command if "dir=" in str(word))
        for folder in (mine,) if is_alone else (mine, tmp_path / "crds"):
            folder.mkdir()
            (folder / "a.yaml").write_text("a")

    monkeypatch.setattr(tools, "run", run)
    monkeypatch.setattr(tools, "tool", Path)
    monkeypatch.setattr(tools, "_folder", lambda: tmp_path)
    assert tools.operators_resources() == [tmp_path / "crds" / "a.yaml"]
    assert [path.name for path in tmp_path.iterdir()] == ["crds"]
