"""Packages: one version, complete metadata, links that work on a registry's page, and notes."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.node_process import ROOT

VERSIONS = runpy.run_path(str(ROOT / "scripts/version"))
REPOSITORY = "https://github.com/oncelog/oncelog"
LINK = re.compile(r"\]\(([^)\s]+)\)")
CLIENTS = ("go", "java", "node", "rust")
RESOLVES = {"go", "rust"}  # their registries' pages know links to files of the package


def test_all_places_have_one_version() -> None:
    assert list(VERSIONS["differences"](ROOT)) == []


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A tree of the places of the version alone."""
    for name, _ in VERSIONS["PLACES"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def test_a_new_version_is_written_everywhere(places: Path) -> None:
    VERSIONS["write"](places, "7.8.9")
    assert VERSIONS["current"](places) == "7.8.9"
    assert list(VERSIONS["differences"](places)) == []


def test_each_place_that_differs_is_named(places: Path) -> None:
    for name, before in VERSIONS["PLACES"][1:]:
        path = places / name
        text = path.read_text()
        path.write_text(VERSIONS["pattern"](before).sub(r"\g<1>7.8.9", text, count=1))
        assert list(VERSIONS["differences"](places)) == [
            f"{name}: 7.8.9, not {VERSIONS['current'](ROOT)}"
        ]
        path.write_text(VERSIONS["pattern"](before).sub("", text))
        assert [line.partition(":")[0] for line in VERSIONS["differences"](places)] == [name]
        path.write_text(text)


def dead(text: str) -> Iterator[str]:
    """Links of a page that lead nowhere outside the tree."""
    for link in LINK.findall(text):
        inside = re.match(rf"{REPOSITORY}/(?:blob|tree)/[^/]+/([^#]+)", link)
        if (
            inside
            and not (ROOT / inside.group(1)).exists()
            or not inside
            and not re.match(r"https://|#", link)
        ):
            yield link


def test_pypis_page_has_no_dead_link() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    hook = runpy.run_path(str(ROOT / "packaging/readme.py"))["Readme"]
    hook(str(ROOT), {}).update(project)
    page = project["readme"]["text"]
    assert f"]({REPOSITORY}/blob/v{project['version']}/docs/clients.md)" in page
    assert list(dead(page)) == []
    assert list(dead((ROOT / "packaging/server/README.md").read_text())) == []
    assert len(list(dead((ROOT / "README.md").read_text()))) > 20, (
        "as it is for readers of the tree"
    )
    assert list(dead(f"[a]({REPOSITORY}/blob/v1/docs/gone.md)"))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clients_page_has_no_dead_link(client: str) -> None:
    folder = ROOT / "clients" / client
    left = list(dead((folder / "README.md").read_text()))
    assert [link for link in left if client not in RESOLVES or not (folder / link).exists()] == []


def test_metadata_is_complete() -> None:
    for page in ("pyproject.toml", "packaging/server/pyproject.toml"):
        project = tomllib.loads((ROOT / page).read_text())["project"]
        assert {"authors", "description", "keywords", "classifiers", "urls"} <= {*project}
        assert {"Repository", "Issues", "Changelog", "Documentation"} <= {*project["urls"]}
        assert project["license"] == "Apache-2.0"
        assert (ROOT / page).with_name(project["license-files"][0]).is_file()
        assert "readme" in project or "readme" in project["dynamic"]
    node = json.loads((ROOT / "clients/node/package.json").read_text())
    assert {"description", "keywords", "author", "license", "homepage", "bugs"} <= {*node}
    assert node["repository"]["directory"] == "clients/node"
    rust = tomllib.loads((ROOT / "clients/rust/Cargo.toml").read_text())["package"]
    assert {"description", "license", "repository", "documentation", "readme"} <= {*rust}
    assert len(rust["keywords"]) <= 5 and {"README.md", "LICENSE"} <= {*rust["include"]}
    java = ElementTree.parse(ROOT / "clients/java/pom.xml").getroot()
    space = {"": "http://maven.apache.org/POM/4.0.0"}
    for part in ("name", "description", "url", "licenses/license/url", "developers/developer/name"):
        assert java.findtext(part, "", space), part
    for part in ("scm/connection", "scm/developerConnection", "scm/url"):
        assert java.findtext(part, "", space), part
    go = (ROOT / "clients/go/go.mod").read_text()
    assert "module github.com/oncelog/oncelog/clients/go\n" in go
    assert "replace" not in go, "a proxy's module has none"


def test_the_notes_have_a_section_for_each_client() -> None:
    command = [str(ROOT / "scripts/release"), "notes"]
    notes = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert notes.startswith(f"# Oncelog {VERSIONS['current'](ROOT)}\n\n- **Log**")
    parts = notes.split("\n## ")
    titles = [part.partition("\n")[0] for part in parts[1:]][: len(CLIENTS)]
    assert titles == ["Client for Go", "Client for Java", "Client for Node.js", "Client for Rust"]
    assert all("\n- " in part for part in parts[1 : len(CLIENTS) + 1])
