"""Caller of the current call: set once for each, read wherever an owner matters.

A context variable instead of an argument: each call is a task of its own, whose tasks inherit
it, and most functions in between do not need it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from cluster.security.quotas import Usage

NOBODY = ""  # where nodes identify no callers


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal, and the connection that it calls over.

    expires: the principal's proof holds until then (seconds since the Unix epoch).
    address: of the connection, as its protocol names it.
    usage:   of the principal's quotas; None without identities.
    line:    of a static token in its file; None for another proof.
    """

    principal: str = NOBODY
    expires: float = float("inf")
    address: str = ""
    usage: Usage | None = None
    line: object | None = None

    @property
    def client(self) -> str:
        """Return the name that shares a node fairly: a principal has one, for all connections."""
        return self.principal or self.address


UNIDENTIFIED = Caller()  # of a call before anything is known
CALLER: ContextVar[Caller] = ContextVar("caller", default=UNIDENTIFIED)
# Of the rules by which a call with one request was let in; 0: of no rules, or a stream.
RULES_VERSION: ContextVar[int] = ContextVar("rules_version", default=0)
