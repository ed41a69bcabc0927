"""Bytes from disk or wire raise typed errors; `assert` is for our own mistakes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.source import PACKAGES, Function, Rule, Snippets, Source, functions

# Functions that take bytes from outside, and calls that return values of them.
READS = re.compile(r"_*(unpack|decode|parse)(_\w+)?|_*from_bytes|_*load(_\w+)?")
TAKES_APART = frozenset(
    {"unpack", "unpack_from", "iter_unpack", "from_bytes", "FromString", "ParseFromString"}
)


def no_assert_of_bytes(source: Source) -> Iterator[str]:
    """An assertion may not depend on bytes from disk or wire, as far as one function shows.

    Where the bytes are a table of our own in memory the line says so: `# in memory: WHY`.
    """
    if source.area not in PACKAGES:
        return
    lines = source.text.splitlines()
    for function in functions(source.nodes):
        foreign = _foreign_names(function)
        for node in ast.walk(function):
            if not isinstance(node, ast.Assert) or not _names(node.test) & foreign:
                continue
            if not re.search(r"# in memory: \S", lines[node.lineno - 1]):
                yield f"line {node.lineno}: assert of bytes in {function.name}"


def no_except_assertion(source: Source) -> Iterator[str]:
    """Our own mistakes are not handled."""
    if source.area not in PACKAGES:
        return
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            if "AssertionError" in _names(node.type):
                yield f"line {node.lineno}: except AssertionError"


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _foreign_names(function: Function) -> set[str]:
    found: set[str] = set()
    if READS.fullmatch(function.name):
        arguments = function.args
        names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        found = {argument.arg for argument in names} - {"self", "cls"}
    grown = True
    while grown:
        before = len(found)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _is_foreign(node.value, found):
                found |= {name for target in node.targets for name in _stored(target)}
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.For | ast.comprehension):
                value = node.iter if isinstance(node, ast.For | ast.comprehension) else node.value
                if value is not None and _is_foreign(value, found):
                    found |= _stored(node.target)
        grown = len(found) > before
    return found


def _stored(target: ast.expr) -> set[str]:
    """Names that an assignment binds; `self.x = ...` binds none."""
    return {
        child.id
        for child in ast.walk(target)
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
    }


def _is_foreign(value: ast.expr, found: set[str]) -> bool:
    if _names(value) & found:
        return True
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in TAKES_APART
        for node in ast.walk(value)
    )


RULES: list[Rule] = [no_assert_of_bytes, no_except_assertion]

BAD: Snippets = [
    (no_assert_of_bytes, "cluster/a.py", "def unpack_x(data):\n    assert data[0] == 1"),
    (no_assert_of_bytes, "cluster/a.py", "def load(data):\n    a = data[0]\n    assert a == 1"),
    (no_assert_of_bytes, "oncelog/a.py", "def _decode_y(raw): assert len(raw) > 3"),
    (no_assert_of_bytes, "cluster/a.py", "def f(d):\n    kind, v = S.unpack_from(d)\n    assert v"),
    (no_assert_of_bytes, "cluster/a.py", "def f(d):\n    m = M.FromString(d)\n    assert m.x"),
    (no_assert_of_bytes, "storage/a.py", "def f(d):\n    for a in S.iter_unpack(d): assert a"),
    (no_assert_of_bytes, "cluster/a.py", "def load(d):\n    assert d  # in memory:"),
    (no_assert_of_bytes, "storage/a.py", "class A:\n    def parse(self, b):\n        assert b"),
    (no_except_assertion, "cluster/a.py", "try: f()\nexcept AssertionError: pass"),
    (no_except_assertion, "cluster/a.py", "try: f()\nexcept (ValueError, AssertionError): pass"),
]

GOOD: Snippets = [
    (no_assert_of_bytes, "cluster/a.py", "def load(data):\n    if data[0] != 1: raise E()"),
    (
        no_assert_of_bytes,
        "cluster/a.py",
        "def apply(i, d):\n    assert i > 0\n    m = M.FromString(d)",
    ),
    (
        no_assert_of_bytes,
        "cluster/a.py",
        "class A:\n    def load(self, d):\n        assert not self.x",
    ),
    (no_assert_of_bytes, "cluster/a.py", "def load(d):\n    assert d  # in memory: our table"),
    (no_assert_of_bytes, "tests/a.py", "def load(data):\n    assert data"),
    (no_except_assertion, "cluster/a.py", "try: f()\nexcept ValueError: raise AssertionError"),
    (no_except_assertion, "tests/a.py", "try: f()\nexcept AssertionError: pass"),
]
