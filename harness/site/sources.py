"""Markdown of the site: pages of the tree at their place in the site, with links that lead there.

    docs/, README.md, ... --> write_sources --> a folder for zensical, and its menu

A link to a file that is no page of the site leads to the repository.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

REPOSITORY = "https://github.com/oncelog/oncelog"
# Pages outside docs/, and their place.
OTHERS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "clients/MATRIX.md": "clients/matrix.md",
    "conformance/README.md": "conformance/index.md",
    "conformance/DRIVER.md": "conformance/driver.md",
    "deploy/systemd/README.md": "deploy/systemd.md",
    "deploy/monitoring/README.md": "deploy/monitoring.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
TABLE_ROW = re.compile(r"^\| (\w[\w ]*) \| (\[.*) \|$", re.MULTILINE)
NAMED = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")

Menu = list[dict[str, "str | Menu"]]


class LinkError(Exception):
    """Links of the pages that lead nowhere, a line each."""


def pages_of(root: Path) -> dict[str, str]:
    """Return each file of the site by its path in the tree, with its path in the site."""
    found = dict(OTHERS)
    for path in sorted((root / "docs").rglob("*")):
        if path.is_file():
            inside = path.relative_to(root / "docs")
            place = inside.with_name("index.md") if inside.name == "README.md" else inside
            found[path.relative_to(root).as_posix()] = place.as_posix()
    for path in sorted(root.glob("clients/*/README.md")):
        found[path.relative_to(root).as_posix()] = f"clients/{path.parent.name}.md"
    return found


def write_sources(root: Path, into: Path, ref: str) -> None:
    """Write all pages. ref: the commit or tag of links into the repository. Raises LinkError."""
    pages = pages_of(root)
    faults: list[str] = []
    for name, place in pages.items():
        target = into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith(".md"):
            shutil.copyfile(root / name, target)
            continue

        def led(link: re.Match[str], name: str = name) -> str:
            found = _address(root, pages, ref, name, link.group(2))
            if found is None:
                faults.append(f"{name}: {link.group(2)}")
            return f"{link.group(1)}{found}{link.group(3)}"

        target.write_text(LINK.sub(led, (root / name).read_text()))
    if faults:
        raise LinkError("\n".join(faults))


def _address(root: Path, pages: Mapping[str, str], ref: str, name: str, link: str) -> str | None:
    """Return where a page's link leads in the site; None: nowhere."""
    file, _, part = link.partition("#")
    if not file or "://" in link or link.startswith("mailto:"):
        return link
    path = os.path.normpath(PurePosixPath(name).parent / file)
    anchor = f"#{part}" if part else ""
    for page in (path, f"{path}/README.md"):
        if page in pages:
            there = os.path.relpath(pages[page], PurePosixPath(pages[name]).parent)
            return there + anchor
    kind = "tree" if (root / path).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/{ref}/{path}{anchor}" if (root / path).exists() else None


def menu_of(sources: Path, reference: Mapping[str, str]) -> Menu:
    """Return the site's menu: the rows of the first page's table, then all other pages.

    reference: the pages made from docstrings, with their titles.
    """
    named: Menu = [{"Oncelog": "index.md"}]
    known = {"index.md", *reference}
    for readers, links in TABLE_ROW.findall((sources / "index.md").read_text()):
        inside = [(title, link) for title, link in NAMED.findall(links) if "://" not in link]
        entries: Menu = [{title[:1].upper() + title[1:]: link} for title, link in inside]
        known |= {link for _, link in inside}
        if readers == "users":
            entries.append({"Python reference": [{name: page} for page, name in reference.items()]})
        named.append({readers.capitalize(): entries})
    decisions = sorted(page.relative_to(sources).as_posix() for page in sources.glob("adr/0*.md"))
    left = sorted(
        page.relative_to(sources).as_posix()
        for page in sources.rglob("*.md")
        if page.parent.name != "adr"
    )
    named.append({"More": [{_title(sources / page): page} for page in left if page not in known]})
    named.append({"Decisions": [{_title(sources / page): page} for page in decisions]})
    return named


def _title(page: Path) -> str:
    return next(line[2:] for line in page.read_text().splitlines() if line.startswith("# "))
