"""The site of the docs: links of its sources, the reference, the check of what is built."""

from __future__ import annotations

from pathlib import Path

import pytest

import oncelog
import oncelog.aio
from harness.node_process import ROOT
from harness.site.__main__ import publish
from harness.site.links import faults
from harness.site.reference import write_reference
from harness.site.sources import REPOSITORY, LinkError, menu_of, pages_of, write_sources


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with each page of the site, empty, and one page with links."""
    for name in pages_of(ROOT):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "tree"


def written(tree: Path, text: str) -> str:
    (tree / "docs" / "adr" / "0001-x.md").write_text(text)
    write_sources(tree, tree / "site", "v1")
    return (tree / "site" / "adr" / "0001-x.md").read_text()


def test_links_lead_to_pages_or_to_the_repository(tree: Path) -> None:
    (tree / "scripts").mkdir()
    (tree / "scripts" / "sim").touch()
    text = (
        "[a](../../README.md#b) [c](README.md) [d](../../clients/go) [e](../../scripts/sim) "
        "[f](../../scripts) [g](https://example.org/x) [h](#part) ![i](../console.png)"
    )
    assert written(tree, text) == (
        f"[a](../index.md#b) [c](index.md) [d](../clients/go.md) "
        f"[e]({REPOSITORY}/blob/v1/scripts/sim) [f]({REPOSITORY}/tree/v1/scripts) "
        "[g](https://example.org/x) [h](#part) ![i](../console.png)"
    )


def test_a_link_to_nothing_is_named(tree: Path) -> None:
    with pytest.raises(LinkError, match=r"docs/adr/0001-x.md: ../gone.md"):
        written(tree, "[a](../gone.md)")


def test_the_menu_has_every_page_once(tmp_path: Path) -> None:
    write_sources(ROOT, tmp_path, "main")
    reference = write_reference(tmp_path)

    def places(menu: object) -> list[str]:
        if isinstance(menu, str):
            return [menu]
        assert isinstance(menu, list)
        return [place for one in menu for value in one.values() for place in places(value)]

    found = places(menu_of(tmp_path, reference))
    assert sorted(found) == sorted({*found}), "twice"
    pages = {page.relative_to(tmp_path).as_posix() for page in tmp_path.rglob("*.md")}
    assert pages == {*found}


def test_the_reference_has_each_public_name(tmp_path: Path) -> None:
    pages = write_reference(tmp_path)
    assert {*pages.values()} == {"oncelog", "oncelog.aio"}
    for module in (oncelog, oncelog.aio):
        page = (tmp_path / "reference" / f"{module.__name__}.md").read_text()
        values = [n for n in module.__all__ if isinstance(getattr(module, n), type)]
        assert len(values) > 4
        assert [name for name in values if f"\n### {name}\n" not in page] == []
    assert (
        "    key: Bytes | None = None,\n    *,\n"
        in (tmp_path / "reference" / "oncelog.md").read_text()
    ), "arguments that are only named stay so"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<h1 id="x"><a href="#x">a</a><a href="b.html">b</a><a href="https://e.org">', ""),
        ('<a href="gone.html">', "there is no such page"),
        ('<a href="b.html#gone">', "there is no such part"),
        ('<img src="gone.png">', "there is no such file"),
        ('<script src="https://e.org/a.js">', "is on another host"),
        ('<link rel="stylesheet" href="//e.org/a.css">', "is on another host"),
        ('<link rel="canonical" href="https://e.org/a.html">', ""),
    ],
)
def test_the_check_of_a_built_page(tmp_path: Path, body: str, fault: str) -> None:
    (tmp_path / "b.html").write_text("<p>")
    (tmp_path / "a.html").write_text(body)
    found = list(faults(tmp_path))
    assert [one.rpartition(": ")[2] for one in found] == ([fault] if fault else [])


def test_versions_are_listed_newest_first(tmp_path: Path) -> None:
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "index.html").write_text("<p>")
    site = tmp_path / "site"
    for version in ("dev", "0.2.0", "0.10.0", "0.9.1"):
        publish(tmp_path / "built", site, version)
    order = (site / "versions.json").read_text().split('"version": "')[1:]
    assert [one.partition('"')[0] for one in order] == ["0.10.0", "0.9.1", "0.2.0", "dev"]
    assert "url=0.10.0/index.html" in (site / "index.html").read_text()
