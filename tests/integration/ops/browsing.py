"""A real browser whose pages may break no rule: no CSP violation, no error, no other host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import axe_playwright_python
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.integration.ops.packages import installed

PATIENCE_MS = 60_000
AXE = next(Path(axe_playwright_python.__file__).parent.glob("axe.min.js")).read_text("utf-8")
VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (e) => console.error("CSP", e.blockedURI));
"""
Open = Callable[..., AbstractContextManager[Page]]


@contextmanager
def launched() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    flags = ["--no-sandbox", "--disable-background-networking"]  # root has no sandbox
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(
            executable_path=installed("chromium", "chromium"), args=flags, timeout=PATIENCE_MS
        )
        yield one
        one.close()


@contextmanager
def watched(
    browser: Browser,
    link: str,
    refused: bool = False,
    besides: Collection[str] = (),
    **options: Any,
) -> Iterator[Page]:
    """Open a page; at its end nothing of it may have broken a rule.

    refused: answers with an error status are expected, which a browser reports as well.
    besides: other hosts that may be asked; the rules are not for their pages.
    """
    origin = urlsplit(link)
    context = browser.new_context(base_url=f"{origin.scheme}://{origin.netloc}", **options)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(VIOLATIONS)
    page, said, hosts = context.new_page(), list[str](), set[str]()

    def note(message: ConsoleMessage) -> None:
        if urlsplit(message.location["url"]).netloc not in besides:
            said.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.goto(link)
    yield page
    told = [text for text in said if not (refused and "the server responded" in text)]
    context.close()  # ends a renewal that is on its way
    assert told == [], told  # pytest explains no assert of this module
    assert hosts.difference(besides) == {origin.netloc}, hosts


def faults(page: Page, scheme: Any, options: str) -> list[Any]:
    """Return the findings of axe; the page must have run AXE."""
    page.emulate_media(color_scheme=scheme)
    found = page.evaluate(f"axe.run(document, {options})")["violations"]
    return [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in found]


def flawless(page: Page) -> None:
    """Assert that axe finds nothing. Dark pages differ in colours only."""
    page.evaluate(AXE)
    options = {"light": "{resultTypes: ['violations']}", "dark": "{runOnly: ['color-contrast']}"}
    found = {scheme: faults(page, scheme, given) for scheme, given in options.items()}
    assert found == {"light": [], "dark": []}, f"{page.url}: {found}"
