"""Check of a built site: each link leads to a page and a part of it, and nothing to a stranger.

site/*.html --> Page: ids, addresses --> faults
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src"}
NOT_LOADED = {"canonical", "prev", "next", "alternate", "edit"}  # relations that fetch nothing


class Page(HTMLParser):
    """ids: parts that a link may name. loads: addresses that a browser fetches by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        address = given.get(LOADS.get(tag, ""), "")
        if address and not (tag == "link" and given.get("rel") in NOT_LOADED):
            self.loads.append(address)


def faults(site: Path) -> Iterator[str]:
    """Yield "page: link: fault" for each dead link, and for each file of another host."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        if name == "404.html":  # its links are those of any address
            continue
        for link in page.links:
            if fault := _fault(pages, path, link):
                yield f"{name}: {link}: {fault}"
        for address in page.loads:
            if urlsplit(address).netloc:
                yield f"{name}: {address}: is on another host"
            elif not (path.parent / unquote(urlsplit(address).path)).exists():
                yield f"{name}: {address}: there is no such file"


def _fault(pages: dict[Path, Page], path: Path, link: str) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = path
    if parts.path:
        target = Path(os.path.normpath(path.parent / unquote(parts.path)))
        if target.is_dir():
            target /= "index.html"
    if target not in pages:
        return "" if target.is_file() else "there is no such page"
    part = unquote(parts.fragment)
    return "" if not part or part in pages[target].ids else "there is no such part"
