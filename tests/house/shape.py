"""Shape of code: length of functions, place of attributes, shared parts of a folder's names."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.house.source import Function, Rule, Snippets, Source, dotted, functions

MAX_FUNCTION_LINES = 70
MAX_SHARED_PREFIX = 2
CONSTRUCTORS = frozenset({"__init__", "__post_init__", "__new__"})
# Bases of classes that list their fields as annotations.
VALUES = frozenset({"NamedTuple", "Protocol", "TypedDict", "Enum", "IntEnum"})


def short_functions(source: Source) -> Iterator[str]:
    for function in functions(source.nodes):
        count = (function.end_lineno or function.lineno) - function.lineno + 1
        if count > MAX_FUNCTION_LINES:
            yield f"line {function.lineno}: {function.name} has {count} lines"


def attributes_begin_in_constructors(source: Source) -> Iterator[str]:
    """An object's attributes are seen in one place, and exist from the start."""
    if source.area == "tests":
        return
    classes = {node.name: node for node in source.nodes if isinstance(node, ast.ClassDef)}
    for node in classes.values():
        known = _begun(node, classes)
        for method in _methods(node):
            if method.name in CONSTRUCTORS:
                continue
            for name, line in _assigned(method, node.name):
                # `_Other__name` belongs to a base class of a library.
                if name not in known and not re.match(r"_[A-Za-z]+__\w", name):
                    yield f"line {line}: {node.name}.{name} begins in {method.name}"


def _methods(node: ast.ClassDef) -> list[Function]:
    return [child for child in node.body if isinstance(child, Function)]


def _begun(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """An instance's attributes after construction; bases count if they are in the same file."""
    known = {method.name for method in _methods(node)}  # properties with a setter
    decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    bases = [dotted(base) for base in node.bases]
    fields = any(dotted(d).endswith("dataclass") for d in decorators) or bool(VALUES & set(bases))
    fields = fields or _has_no_constructor(node)
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            if fields or child.value is not None:
                known.add(child.target.id)
        elif isinstance(child, ast.Assign):
            known |= {target.id for target in child.targets if isinstance(target, ast.Name)}
    for method in _methods(node):
        if method.name in CONSTRUCTORS:
            known |= {name for name, _ in _assigned(method, node.name)}
    for base in bases:
        if base in classes and base != node.name:
            known |= _begun(classes[base], classes)
    return known


def _has_no_constructor(node: ast.ClassDef) -> bool:
    """`__init__ = object.__init__`: where even an empty one would cost too much."""
    return any(
        isinstance(child, ast.Assign) and dotted(child.targets[0]) == "__init__"
        for child in ast.walk(node)
    )


def _assigned(method: Function, owner: str) -> Iterator[tuple[str, int]]:
    """Attributes that a method assigns: of itself, or of an object that it has just made."""
    plain = [dotted(decorator) for decorator in method.decorator_list]
    arguments = [*method.args.posonlyargs, *method.args.args]
    if "staticmethod" in plain:
        objects = set()
    elif "classmethod" in plain or method.name == "__new__":
        objects = {
            target.id
            for node in ast.walk(method)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if isinstance(target, ast.Name) and _makes(node.value, arguments[0].arg, owner)
        }
    else:
        objects = {arguments[0].arg} if arguments else set()
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in objects:
                yield node.attr, node.lineno


def _makes(call: ast.Call, cls: str, owner: str) -> bool:
    """cls(...), Owner(...), cls.__new__(cls), super().__new__(cls)."""
    made_by = {cls, owner, f"{cls}.__new__", f"{owner}.__new__", "object.__new__"}
    inner = isinstance(call.func, ast.Attribute) and call.func.attr == "__new__"
    return inner or dotted(call.func) in made_by


def shared_prefixes(paths: Iterable[str]) -> Iterator[str]:
    """A prefix that three files of a folder share is a folder. (pytest wants its `test_`.)"""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in map(PurePosixPath, paths):
        prefix, mark, _ = path.stem.partition("_")
        if mark and prefix and prefix != "test":
            found[str(path.parent), prefix].append(path.name)
    for (folder, prefix), names in found.items():
        if len(names) > MAX_SHARED_PREFIX:
            yield f"{folder}: {prefix}_ is a folder: {', '.join(sorted(names))}"


def repeated_classes(sources: Iterable[Source]) -> Iterator[str]:
    """One class name has one place, so that a search for it finds its meaning.

    Twins for asyncio bear the name of their class, and a node's fault that of its public error.
    """
    found: dict[str, list[PurePosixPath]] = defaultdict(list)
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(source.path)
    errors = PurePosixPath("oncelog/errors.py")
    for name, paths in sorted(found.items()):
        places = {PurePosixPath(str(path).replace("/aio/", "/")) for path in paths} - {errors}
        if len(places) > 1:
            yield f"{name}: {', '.join(sorted(map(str, paths)))}"


def packed_attributes(source: Source) -> Iterator[str]:
    """Each attribute has a line of its own, unless the values depend on all of them at once."""
    if source.area == "tests":
        return
    for node in source.nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and all(map(_is_own, target.elts)):
            names = {dotted(one) for one in target.elts}
            read = {dotted(one) for one in ast.walk(node.value) if isinstance(one, ast.Attribute)}
            if not names & read:
                yield f"line {node.lineno}: {', '.join(sorted(names))} are assigned in one line"


def _is_own(target: ast.expr) -> bool:
    return dotted(target).startswith("self.")


RULES: list[Rule] = [short_functions, attributes_begin_in_constructors, packed_attributes]

_LONG = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
BAD: Snippets = [
    (short_functions, "tests/a.py", _LONG),
    (short_functions, "cluster/a.py", "async " + _LONG),
    (packed_attributes, "cluster/a.py", "class A:\n    def f(self): self.x, self.y = 1, 2"),
    (attributes_begin_in_constructors, "cluster/a.py", "class A:\n    def f(self): self.x = 1"),
    (attributes_begin_in_constructors, "bench/a.py", "class A:\n    x: int\n    def f(s): s.x = 1"),
    (attributes_begin_in_constructors, "cluster/a.py", "class A(B):\n    def f(self): self.x += 1"),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class A:\n    async def f(self):\n        self.x, y = 1, 2",
    ),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class A:\n    @classmethod\n    def load(cls):\n        a = cls()\n        a.x = 1",
    ),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class A:\n    @classmethod\n    def of(cls):\n        a = A.__new__(A)\n        a.x = 1",
    ),
]

GOOD: Snippets = [
    (short_functions, "cluster/a.py", _LONG.removesuffix("    x = 1\n")),
    (packed_attributes, "cluster/a.py", "self.x, self.y = self.y, self.x"),
    (packed_attributes, "cluster/a.py", "self.x, y = 1, 2\nself.x, self.y = f()"),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class A:\n    def __init__(self): self.x = 0\n    def f(self): self.x = 1",
    ),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class B:\n    def __init__(self): self.x = 0\nclass A(B):\n    def f(self): self.x = 1",
    ),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "@dataclass(slots=True)\nclass A:\n    x: int\n    def f(self): self.x = 1",
    ),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class A:\n    x = 0\n    def f(self, b):\n        self.x = 1\n        b.y = 1",
    ),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class A:\n    def __init__(self): self.x = 0\n"
        "    @classmethod\n    def load(cls):\n        a = cls()\n        a.x = 1",
    ),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class A:\n    def __new__(cls):\n        a = super().__new__(cls)\n        a.x = 1\n"
        "    def f(self): self.x = 2",
    ),
    (
        attributes_begin_in_constructors,
        "cluster/a.py",
        "class A:\n    @property\n    def x(self): ...\n    def f(self): self.x = 1",
    ),
    (
        attributes_begin_in_constructors,
        "oncelog/a.py",
        "class A:\n    x: int\n    __init__ = object.__init__\n    def f(self): self.x = 1",
    ),
    (attributes_begin_in_constructors, "tests/a.py", "class A:\n    def f(self): self.x = 1"),
]
