"""Caller of the current call: set once for each, read wherever an owner matters.

A context variable instead of an argument: gRPC gives each call a task of its own, whose tasks
inherit it, and most functions in between do not need it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

NOBODY = ""  # where nodes identify no callers


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal, and the time (seconds since the Unix epoch) until which its proof holds."""

    principal: str
    expires: float = float("inf")


PRINCIPAL: ContextVar[str] = ContextVar("principal", default=NOBODY)
# Of the rules by which a call with one request was let in; 0: of no rules, or a stream.
RULES_VERSION: ContextVar[int] = ContextVar("rules_version", default=0)
