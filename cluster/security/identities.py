"""Identity of a caller: by its token if it carries one, else by its connection's certificate.

    Gate --token, certificate--> Identities --> Caller, or the reason for none

An invalid token is refused, even with a valid certificate: a client that sends a token means it.
"""

from __future__ import annotations

import ssl

from cluster.security.caller import Caller
from cluster.security.jwts import Jwts
from cluster.security.names import NamelessError, expiry_of, principal_of
from cluster.security.tokens import PREFIX, StaticTokens, TokenError

MAX_TOKEN_CHARS = 8192
_SCHEME = "bearer "
_MAX_REMEMBERED = 10_000  # certificates


class UnknownCallerError(Exception):
    """The caller cannot be identified; the text gives the reason."""


class Identities:
    """Identities that a node's settings allow. None: that kind of token is not taken."""

    def __init__(self, static: StaticTokens | None, jwts: Jwts | None) -> None:
        self._static = static
        self._jwts = jwts
        self._callers: dict[bytes, Caller] = {}  # by certificate

    @property
    def takes_tokens(self) -> bool:
        return self._static is not None or self._jwts is not None

    def look(self) -> None:
        """Read the static tokens again if they have changed."""
        if self._static is not None:
            self._static.look()

    def stands(self, caller: Caller) -> bool:
        """Return whether the line of the caller's static token is still in the file."""
        if caller.line is None or self._static is None:
            return True
        return self._static.line(caller.principal) == caller.line

    async def caller(self, authorization: str, certificate: bytes) -> Caller:
        """Return the caller. authorization: the header's value; certificate: PEM. Either may be
        empty.

        Raises UnknownCallerError, TokensBusyError.
        """
        if authorization:
            return await self._of_token(authorization)
        if certificate:
            return self._of_certificate(certificate)
        raise UnknownCallerError("a certificate, or a token in `authorization`, is needed")

    async def _of_token(self, authorization: str) -> Caller:
        token = authorization[len(_SCHEME) :].strip()
        if not authorization.lower().startswith(_SCHEME) or not 1 <= len(token) <= MAX_TOKEN_CHARS:
            raise UnknownCallerError(
                f"authorization: must be Bearer and a token of 1..{MAX_TOKEN_CHARS} characters"
            )
        try:
            if token.startswith(PREFIX) and self._static is not None:
                principal = await self._static.principal(token)
                line = self._static.line(principal)
                if line is None:
                    raise TokenError("the token is not known")  # any more
                return Caller(principal, line=line)
            if self._jwts is not None:
                return await self._jwts.caller(token)
        except TokenError as error:
            raise UnknownCallerError(f"authorization: {error}") from None
        raise UnknownCallerError("authorization: this node accepts no token of this kind")

    def _of_certificate(self, pem: bytes) -> Caller:
        known = self._callers.get(pem)
        if known is None:
            try:
                der = ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))
                known = Caller(principal_of(der), expiry_of(der))
            except (NamelessError, ValueError) as error:
                raise UnknownCallerError(f"the certificate {error}") from None
            if len(self._callers) >= _MAX_REMEMBERED:
                self._callers.clear()
            self._callers[pem] = known
        return known
