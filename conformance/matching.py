"""Matching of answers with a case's expectations: fields it does not name may have any value."""

from __future__ import annotations

from typing import Any

ANY = "<any>"
CONTAINS = "contains"


def mismatch(wanted: Any, found: Any, where: str = "") -> str:
    """Describes the first difference; empty if there is none.

    Objects may have more fields than `wanted`. Lists have equal length and match item by item. An
    object with `contains` asks for a part of a text.
    """
    if wanted == ANY:
        return ""
    at = f"{where}: " if where else ""
    if isinstance(wanted, dict) and wanted.keys() == {CONTAINS} and isinstance(found, str):
        part = wanted[CONTAINS]
        return "" if part in found else f"{at}{found!r} does not contain {part!r}"
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return f"{at}{found!r} instead of {wanted!r}"
        for name, inner in wanted.items():
            if name not in found:
                return f"{at}{name} is missing in {found!r}"
            fault = mismatch(inner, found[name], f"{where}.{name}" if where else name)
            if fault:
                return fault
        return ""
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(wanted) != len(found):
            return f"{at}{found!r} instead of {wanted!r}"
        faults = (
            mismatch(inner, other, f"{where}[{number}]")
            for number, (inner, other) in enumerate(zip(wanted, found, strict=True))
        )
        return next((fault for fault in faults if fault), "")
    same = wanted == found and isinstance(wanted, bool) == isinstance(found, bool)
    return "" if same else f"{at}{found!r} instead of {wanted!r}"
