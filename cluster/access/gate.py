"""Gate of a node: identifies callers, checks their permissions, notes refusals and changes.

    a protocol --address, token, certificate--> Gate.caller --Identities, Quotas--> Caller
               --Caller, needs of a request---> Gate.admit  --Authorizer---> nothing, or an error
                                                    '--> Audit

Each protocol has its own table of actions and their needs, and its own way to answer an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cluster.events.recorder import AUDIT, Recorder
from cluster.security.audit import MAX_CHARS, MAX_RESOURCES, Audit
from cluster.security.caller import Caller
from cluster.security.identities import Identities, UnknownCallerError
from cluster.security.permissions import Authorizer, Need
from cluster.security.quotas import Quotas
from cluster.security.tokens import TokensBusyError
from oncelog.errors import (
    NotAuthorizedError,
    NotReadyError,
    OncelogError,
    ThrottledError,
    UnauthenticatedError,
)

_OVER = "the token, or the certificate, is over"
# A call that needs one of these changes something that others rely on.
_NOTED = frozenset({"create", "alter", "delete", "fence", "abort"})
# Needs of an action that is in no table.
NOBODY_MAY = None
Needs = Sequence[Need] | None


class Gate:
    """identities, quotas: None without caller identities. permissions: None if all may do all.

    An action is the name of a call, for errors and the audit log.
    """

    def __init__(
        self,
        identities: Identities | None,
        permissions: Authorizer | None,
        audit: Audit | None,
        quotas: Quotas | None = None,
        wall_clock: Callable[[], float] = time.time,
        rules_version: Callable[[], int] = lambda: 0,
        events: Recorder | None = None,
    ) -> None:
        assert permissions is None or identities is not None, "nobody would be let in"
        self._identities = identities
        self.permissions = permissions
        self._audit = audit
        self._quotas = quotas
        self._wall_clock = wall_clock
        self.rules_version = rules_version
        self._events = events

    @property
    def reads_needs(self) -> bool:
        """Return whether anything looks at a request's needs; else they may be left empty."""
        return self.permissions is not None or self._audit is not None

    @property
    def identifies(self) -> bool:
        """Return whether callers prove who they are; else nobody is refused for that."""
        return self._identities is not None

    @property
    def takes_tokens(self) -> bool:
        """Return whether a token can be a caller's proof."""
        return self._identities is not None and self._identities.takes_tokens

    async def caller(
        self, action: str, address: str, authorization: str, certificate: bytes
    ) -> Caller:
        """Return the caller of a connection or call. Raises ThrottledError, UnauthenticatedError.

        authorization: as in HTTP's header; certificate: PEM. Either may be empty.
        """
        if self._identities is None:
            return Caller(address=address)
        try:
            known = await self._identities.caller(authorization, certificate)
        except TokensBusyError as error:
            raise ThrottledError(f"authorization: {error}") from None
        except UnknownCallerError as error:
            raise self.unknown(action, address, str(error)) from None
        usage = None if self._quotas is None else self._quotas.usage(known.principal)
        return Caller(known.principal, known.expires, address, usage, known.line)

    def look(self) -> None:
        """Read the static tokens again if they have changed; `stands` then tells."""
        if self._identities is not None:
            self._identities.look()

    def stands(self, caller: Caller) -> bool:
        """Return whether the caller's static token is still one."""
        return self._identities is None or self._identities.stands(caller)

    def unknown(self, action: str, address: str, text: str) -> UnauthenticatedError:
        """Note a caller that nobody can be identified by, and return the error to raise."""
        self._note(action, Caller(address=address), (), UnauthenticatedError.reason)
        return UnauthenticatedError(text)

    def left(self, caller: Caller) -> float:
        """Return the seconds until the caller's proof is over; not above 0: it is."""
        return caller.expires - self._wall_clock()

    def admit(self, action: str, caller: Caller, needs: Needs) -> None:
        """Let a request in. Raises NotAuthorizedError, UnauthenticatedError."""
        self._raise(action, caller, needs, self.refusal(action, caller, needs))

    def go_on(self, action: str, caller: Caller, needs: Needs, noted: Sequence[Need] = ()) -> None:
        """Let an admitted stream go on. Raises NotReadyError, NotAuthorizedError.

        needs: of all that it does; noted: of its last message, for the audit log.
        """
        if self.left(caller) <= 0:
            refused: OncelogError | None = NotReadyError(
                f"{_OVER}: open the stream anew, with a new one"
            )
        else:
            refused = self.refusal(action, caller, needs)
        self._raise(action, caller, noted, refused)

    def refusal(self, action: str, caller: Caller, needs: Needs) -> OncelogError | None:
        """Return the reason to reject a request of the caller; None: there is none."""
        if self.left(caller) <= 0:
            return UnauthenticatedError(_OVER)
        if needs is NOBODY_MAY:
            return NotAuthorizedError(f"{action} is for nobody")
        if self.permissions is None:
            return None
        missing = self.permissions.missing(caller.principal, needs)
        if missing is None:
            return None
        text = f"{caller.principal} lacks: {missing}"
        return NotAuthorizedError(
            text, principal=caller.principal, operation=missing.operation,
            kind=missing.kind, name=missing.name,
        )  # fmt: skip

    def ended(self, action: str, caller: Caller, needs: Sequence[Need], result: str) -> None:
        """Note an admitted call if it was a change. result: "ok", or the error's name."""
        if any(need.operation in _NOTED for need in needs):
            self._note(action, caller, needs, result)

    def _raise(
        self, action: str, caller: Caller, needs: Needs, refused: OncelogError | None
    ) -> None:
        if refused is not None:
            self._note(action, caller, needs or (), refused.reason)
            raise refused

    def _note(self, action: str, caller: Caller, needs: Sequence[Need], result: str) -> None:
        if self._audit is not None:
            self._audit.note(action, caller.principal, caller.address, needs, result)
        if self._events is not None:
            named = ", ".join(str(need)[:MAX_CHARS] for need in needs[:MAX_RESOURCES])
            text = f"{action} {named}".strip()
            # Refusals fold; of two changes none hides the other's names.
            shown = text if result == "ok" else ""
            self._events.note(
                AUDIT,
                "cluster",
                "",
                text,
                same=(action, caller.principal, result, shown),
                verdict=result,
                principal=caller.principal,
                address=caller.address,
            )
