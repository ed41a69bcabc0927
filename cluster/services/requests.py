"""Checks that several services share. A refusal names the field and its limit."""

from __future__ import annotations

from typing import Any

from cluster.services.context import NodeContext
from oncelog.errors import InvalidRequestError

MAX_TIMEOUT_MS = 600_000


def invalid(field: str, text: str, limit: str = "") -> InvalidRequestError:
    """Return the refusal of a request because of one of its fields."""
    return InvalidRequestError(f"{field}: {text}", field=field, limit=limit)


def in_range(field: str, value: int, low: int, high: int) -> int:
    """Return `value` if it is from `low` to `high`. Raises InvalidRequestError."""
    if not low <= value <= high:
        limit = f"{low}..{high}"
        raise invalid(field, f"{value} must be {limit}", limit)
    return value


def count_in_range(field: str, count: int, low: int, high: int) -> None:
    """Raises InvalidRequestError for a field that is repeated too often, or not often enough."""
    if not low <= count <= high:
        limit = f"{low}..{high}"
        raise invalid(field, f"{count} given, {limit} are allowed", limit)


def timeout_s(timeout_ms: int, node: NodeContext) -> float:
    """Return how long a call may wait, in seconds; 0 stands for the node's default."""
    in_range("timeout_ms", timeout_ms, 0, MAX_TIMEOUT_MS)
    return (timeout_ms or node.config.request_timeout_ms) / 1000


def page_size(limit: int, default: int, most: int) -> int:
    """Return how many rows an answer may have; 0 stands for `default`."""
    return in_range("limit", limit, 0, most) or default


def not_negative(request: Any, *fields: str) -> None:
    """Raises InvalidRequestError for the first of these fields that is negative."""
    for field in fields:
        if getattr(request, field) < 0:
            raise invalid(field, f"{getattr(request, field)} must not be negative", "0..")
