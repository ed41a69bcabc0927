"""One Python file of the tree, with the parts that rules ask for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("oncelog", "storage", "cluster", "pyspark_oncelog")
# Other folders with our Python; these may import the client, never the node.
AROUND = ("scripts", "bench", "conformance", "examples", "harness", "tests")
OURS = frozenset(PACKAGES + AROUND)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path from the root, its text, its tree, all nodes of the tree.

    A walk takes longer than most rules.
    """

    path: PurePosixPath
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @classmethod
    def of(cls, path: str, text: str) -> Source:
        tree = ast.parse(text, path)
        return cls(PurePosixPath(path), text, tree, tuple(ast.walk(tree)))

    @property
    def area(self) -> str:
        """The top folder: the package the file belongs to."""
        return self.path.parts[0]


# Yields "line N: fault" for each place where a file breaks it.
Rule = Callable[[Source], Iterator[str]]
# A rule, the path and the text of a made-up file.
Snippets = list[tuple[Rule, str, str]]


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, absolute, with the names taken from it (none for `import x`)."""

    line: int
    module: str
    names: tuple[str, ...]

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


def imports(source: Source) -> Iterator[Import]:
    """All imports of a file: plain, from, relative, and by a literal name at run time."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = source.path.parts[:-1]
                base = base[: len(base) - (node.level - 1)]
                module = ".".join((*base, *([module] if module else [])))
            yield Import(node.lineno, module, tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.Call) and dotted(node.func) in {
            "importlib.import_module",
            "import_module",
            "__import__",
        }:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Import(node.lineno, first.value, ())


def dotted(node: ast.expr) -> str:
    """`a.b.c` for a chain of names and attributes; empty for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


def functions(nodes: Iterable[ast.AST]) -> Iterator[Function]:
    for node in nodes:
        if isinstance(node, Function):
            yield node
