"""Counts and shares as words."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def copied(there: int, whole: int) -> str | None:
    """Format the copied share of the bytes; None: nothing is being copied."""
    return f"{there} of {whole} bytes" if whole else None
