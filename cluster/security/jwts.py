"""Tokens of an identity provider (JWT, RFC 7519): signed, for this cluster, and not expired.

A valid token makes its sender the principal `jwt:SUB`. The key follows from the key id, within the
settings' set of keys (`jwks`). The algorithm follows from the key, and never from the token, whose
header anyone can write (RFC 8725).
"""

from __future__ import annotations

import hashlib
from typing import Any

import jwt

from cluster.security.caller import Caller
from cluster.security.jwks import KeySource
from cluster.security.tokens import TokenError, TokensBusyError

MAX_SUBJECT_CHARS = 200
MAX_REMEMBERED = 10_000  # tokens
LEEWAY_S = 10  # between the provider's clock and ours


class Jwts:
    """Checks tokens by the keys of one provider, which may change."""

    def __init__(self, keys: KeySource, issuer: str, audience: str) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._right: dict[bytes, Caller] = {}  # by the SHA-256 of a valid token

    async def caller(self, token: str) -> Caller:
        """Return the caller. A token once valid is not checked again: see `expires`.

        Raises TokenError, TokensBusyError.
        """
        if self._keys.renewed():
            self._right.clear()
        digest = hashlib.sha256(token.encode()).digest()
        known = self._right.get(digest)
        if known is None:
            if len(self._right) >= MAX_REMEMBERED:
                self._right.clear()
            known = self._right[digest] = await self._checked(token)
        return known

    async def _checked(self, token: str) -> Caller:
        try:
            key_id = jwt.get_unverified_header(token).get("kid", "")
            if not self._has(key_id) and not (await self._keys.look_again() and self._has(key_id)):
                if not self._keys.value:
                    raise TokensBusyError("the issuer's keys are not loaded yet; retry")
                raise TokenError("the token's key is not one of the issuer's")
            keys = self._keys.value
            key, algorithms = keys[key_id] if key_id else next(iter(keys.values()))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(algorithms),
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "aud", "iss", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise TokenError(f"the token is not valid: {error}") from None
        subject = claims["sub"]
        if not 1 <= len(subject) <= MAX_SUBJECT_CHARS or not subject.isprintable():
            raise TokenError(f"sub: must have 1..{MAX_SUBJECT_CHARS} printable characters")
        return Caller(f"jwt:{subject}", float(claims["exp"]) + LEEWAY_S)

    def _has(self, key_id: str) -> bool:
        """Return whether there is such a key. A single key needs no id."""
        return key_id in self._keys.value or (not key_id and len(self._keys.value) == 1)
