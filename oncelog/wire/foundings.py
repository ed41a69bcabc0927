"""Founding of a cluster, as calls and answers name it in gRPC metadata.

A founding is a random number of 64 bits, drawn when a cluster is founded; as text it has 16
hexadecimal digits. A client sends the first founding that it met with each call, and a node of
another founding rejects the call. An answer to a call that names no founding brings the node's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

KEY = "oncelog-founding"


def founding_text(founding: int) -> str:
    return f"{founding:016x}"


def named_founding(metadata: Iterable[Any] | None) -> str:
    """Return the founding that gRPC metadata names; "" if it names none."""
    for key, value in metadata or ():
        if key == KEY:
            return str(value)
    return ""
