"""Who makes the call that is being answered: set once for each, read where an owner matters.

A context variable and no argument: gRPC gives each call a task of its own, whose tasks inherit
it, and only few of the many functions in between have anything to do with it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

NOBODY = ""  # where nodes know nobody


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal, and until when (seconds since the Unix epoch) it was shown to be it."""

    principal: str
    expires: float = float("inf")


PRINCIPAL: ContextVar[str] = ContextVar("principal", default=NOBODY)
# Of the rules by which a call with one request was let in; 0: of no rules, or a stream.
RULES_VERSION: ContextVar[int] = ContextVar("rules_version", default=0)
