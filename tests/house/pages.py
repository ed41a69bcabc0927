"""Comments and docs cite only paths that are in the tree."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.house.source import ROOT, Rule, Snippets, Source

PAGE = re.compile(r"(?<![\w/*.-])(?:\.{0,2}/)?[\w./-]*\w\.md\b")
# A file of ours in a page: by its path from the root, or from one of these folders.
FILE = re.compile(r"`([a-z_]+(?:/[\w.-]+)+\.py)\b")
FROM = ("", "cluster", "oncelog", "tests", "tests/unit")
RECORD = re.compile(r"\badr/(\d{4})\b(?!-)")
OUTSIDE = re.compile(r"\bDESIGN\b")
ADDRESS = re.compile(r"\w+://\S+")


def strange_pages(text: str, folder: PurePosixPath) -> Iterator[str]:
    """Cited paths of a comment or page that are missing in the root, docs/ and its own folder."""
    text = ADDRESS.sub("", text)
    for found in PAGE.finditer(text):
        page = found.group()
        if not any((ROOT / base / page).is_file() for base in ("", "docs", "docs/adr", folder)):
            yield page
    for found in RECORD.finditer(text):
        if not any((ROOT / "docs/adr").glob(f"{found.group(1)}-*.md")):
            yield found.group()
    yield from OUTSIDE.findall(text)


def lost_files(text: str) -> list[str]:
    """Files that a page names and that are not there, as after a move."""
    named = FILE.findall(text)
    return [name for name in named if not any((ROOT / base / name).is_file() for base in FROM)]


def pages_are_in_the_tree(source: Source) -> Iterator[str]:
    for line, text in prose(source):
        for page in strange_pages(text, source.path.parent):
            yield f"line {line}: {page} is not in the tree"


def prose(source: Source) -> Iterator[tuple[int, str]]:
    """Comments and docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield node.body[0].lineno, text


RULES: list[Rule] = [pages_are_in_the_tree]

BAD: Snippets = [
    (pages_are_in_the_tree, "cluster/a.py", '"""Consensus (DESIGN section 5)."""'),
    (pages_are_in_the_tree, "tests/a.py", "x = 1  # see docs/gone.md"),
    (pages_are_in_the_tree, "cluster/a.py", "def f():\n    '''As HOUSE.md says.'''"),
    (pages_are_in_the_tree, "cluster/a.py", "# docs/adr/9999 says why"),
]

GOOD: Snippets = [
    (pages_are_in_the_tree, "cluster/a.py", '"""See docs/protocol.md, and docs/adr/0001."""'),
    (pages_are_in_the_tree, "cluster/a.py", "# testing.md; DESIGNED; https://x.y/z.md"),
    (pages_are_in_the_tree, "cluster/a.py", 'path = "made/up.md"'),
    (pages_are_in_the_tree, "tests/vectors/a.py", "# README.md"),
]
