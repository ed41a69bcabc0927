"""Reference of the Python client, from its docstrings: a page for each public module.

oncelog.__all__, oncelog.aio.__all__ --inspect--> Markdown
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

MODULES = ("oncelog", "oncelog.aio")
WIDTH = 90  # of a signature in one line
_EMPTY = inspect.Signature.empty
_ONLY_NAMED, _ANY_NUMBER = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL


def write_reference(into: Path) -> dict[str, str]:
    """Write a page for each module; returns their places with their titles."""
    pages = {}
    for name in MODULES:
        page = into / "reference" / f"{name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("\n".join(_module(importlib.import_module(name))))
        pages[page.relative_to(into).as_posix()] = name
    return pages


def _module(module: ModuleType) -> Iterator[str]:
    yield f"# {module.__name__}\n"
    yield _text(module)
    found = [(name, getattr(module, name)) for name in sorted(module.__all__)]
    classes = [(name, value) for name, value in found if inspect.isclass(value)]
    groups = {
        "Clients and values": [one for one in classes if not issubclass(one[1], Exception)],
        "Errors": [one for one in classes if issubclass(one[1], Exception)],
    }
    for title, members in groups.items():
        if members:
            yield f"## {title}\n"
        for name, value in members:
            yield from _class(name, value)
    functions = [(name, value) for name, value in found if inspect.isfunction(value)]
    if functions:
        yield "## Functions\n"
    for name, function in functions:
        yield from _function("###", name, function)


def _class(name: str, value: type) -> Iterator[str]:
    yield f"### {name}\n"
    if issubclass(value, Exception):
        yield f"Extends `{value.__base__.__name__}`.\n" if value.__base__ else ""
    else:
        yield _code(f"class {name}", value)
    yield _text(value)
    for attribute in sorted(vars(value) | _inherited(value)):
        member = inspect.getattr_static(value, attribute)
        if attribute.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"#### {name}.{attribute}\n"
            yield "Property. " + _text(member)
        elif isinstance(member, classmethod | staticmethod):
            yield from _function("####", f"{name}.{attribute}", member.__func__)
        elif inspect.isfunction(member):
            yield from _function("####", f"{name}.{attribute}", member)


def _inherited(value: type) -> dict[str, object]:
    """Return the members that a class has of bases of ours."""
    ours = [base for base in value.__mro__[1:] if base.__module__.startswith("oncelog")]
    return (
        {}
        if issubclass(value, Exception)
        else {k: v for base in ours for k, v in vars(base).items()}
    )


def _function(level: str, name: str, value: object) -> Iterator[str]:
    yield f"{level} {name}\n"
    start = "async def" if inspect.iscoroutinefunction(value) else "def"
    yield _code(f"{start} {name.rpartition('.')[2]}", value)
    yield _text(value)


class _Bare(str):
    """An annotation that shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _code(start: str, value: object) -> str:
    """Return the signature, an argument a line where it is long."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except ValueError:  # an enumeration, say
        return f"```python\n{start}\n```\n"
    arguments = [
        one.replace(annotation=_bare(one.annotation))
        for one in signature.parameters.values()
        if one.name not in ("self", "cls")
    ]
    end = _bare(signature.return_annotation) if start.partition(" ")[0] != "class" else _EMPTY
    text = f"{start}{inspect.Signature(arguments, return_annotation=end)}"
    if len(text) > WIDTH:
        shown = [str(one) for one in arguments]
        kinds = [one.kind for one in arguments]
        if _ONLY_NAMED in kinds and _ANY_NUMBER not in kinds:
            shown.insert(kinds.index(_ONLY_NAMED), "*")
        lines = "".join(f"    {one},\n" for one in shown)
        text = f"{start}(\n{lines}){str(inspect.Signature(return_annotation=end))[2:]}"
    return f"```python\n{text}\n```\n"


def _bare(annotation: object) -> object:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _text(value: object) -> str:
    return f"{inspect.getdoc(value) or ''}\n"
