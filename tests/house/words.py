"""Plain English in docstrings, comments, messages and docs, as far as a program can tell.

A sentence with one of RIDDLES often describes a thing that has a name.
Well-kept projects have 0.4 to 2.6 of these words in 1,000.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from tests.house.pages import prose
from tests.house.source import Rule, Snippets, Source

RIDDLES = frozenset({"what", "who", "whose", "whoever", "whatever", "whom"})
MOST = 3  # in 1,000 words
FEWEST = 300  # words of a folder or page that has a rate
WORD = re.compile(r"[A-Za-z']+")
COMMENT = re.compile(r"(?://)([^\n]*)|/\*(.*?)\*/", re.DOTALL)


def too_many(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Places with more than MOST of these words in 1,000. texts: place, and a part of its text."""
    words: Counter[str] = Counter()
    riddles: Counter[str] = Counter()
    for place, text in texts:
        found = [word.lower() for word in WORD.findall(text)]
        words[place] += len(found)
        riddles[place] += sum(word in RIDDLES for word in found)
    return [
        f"{place}: {1000 * riddles[place] / count:.1f} of what, who and the like in 1,000 words"
        for place, count in words.items()
        if count >= FEWEST and 1000 * riddles[place] > MOST * count
    ]


def of_folders(sources: Iterable[Source]) -> Iterator[tuple[str, str]]:
    """The docstrings and comments of each folder."""
    for source in sources:
        for _, text in prose(source):
            yield str(PurePosixPath(source.path).parent), text


def of_messages(sources: Iterable[Source]) -> Iterator[tuple[str, str]]:
    """The errors, log lines and help of each folder of the product."""
    for source in sources:
        if source.area in ("cluster", "storage", "oncelog"):
            for text in messages(source.tree):
                yield f"messages of {source.path.parent}", text


def of_comments(root: Path, patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The comments of each pattern's files in a language that begins them with // or /*."""
    for pattern in patterns:
        for path in root.glob(pattern):
            for line, block in COMMENT.findall(path.read_text(encoding="utf-8")):
                yield pattern, line or block


def messages(tree: ast.Module) -> Iterator[str]:
    """Strings of three words or more that are no docstrings; an f-string without its values."""
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {part for node in formatted for part in node.values}
    texts = [" ".join(one.value for one in node.values if is_text(one)) for node in formatted]
    texts += [node.value for node in ast.walk(tree) if is_text(node) and node not in docs | parts]
    yield from (text for text in texts if len(text.split()) >= 3)


class Text(ast.Constant):
    """A literal string."""

    value: str


def is_text(node: ast.AST) -> TypeGuard[Text]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def docstrings_open_plainly(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = WORD.match(ast.get_docstring(node) or "")
            if first and first.group().lower() in RIDDLES:
                yield f"line {node.body[0].lineno}: the docstring opens with {first.group()}"


RULES: list[Rule] = [docstrings_open_plainly]

BAD: Snippets = [
    (docstrings_open_plainly, "cluster/a.py", '"""What a node does."""'),
    (docstrings_open_plainly, "tests/a.py", 'def f():\n    """Whoever asks is told."""'),
]

GOOD: Snippets = [
    (docstrings_open_plainly, "cluster/a.py", '"""Duties of a node."""'),
    (docstrings_open_plainly, "cluster/a.py", 'def f():\n    """Return what was asked for."""'),
]
