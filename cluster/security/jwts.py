"""Tokens of an identity provider (JWT, RFC 7519): signed, for this cluster, and not over.

Who shows one is the principal `jwt:SUB`. Which key may have signed it follows from the key id
within the set of keys that the settings name (JWKS, RFC 7517), and which algorithm from the
key: never from the token, whose header anybody can write (RFC 8725).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jwt

from cluster.errors import ConfigError
from cluster.security.caller import Caller
from cluster.security.tokens import TokenError
from cluster.security.watched import WatchedFile

MAX_BYTES = 1024 * 1024
MAX_SUBJECT_CHARS = 200
MAX_REMEMBERED = 10_000  # tokens
LEEWAY_S = 10  # between the provider's clock and ours
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")


class Jwts:
    """Checks tokens by the keys of one file, which is read again when it has changed."""

    def __init__(self, keys: Path, issuer: str, audience: str) -> None:
        """Raises ConfigError."""
        self._file = WatchedFile(keys, _read)
        self._issuer, self._audience = issuer, audience
        self._right: dict[bytes, Caller] = {}  # by the SHA-256 of a token that was found right

    def caller(self, token: str) -> Caller:
        """Raises TokenError. One that was found right is not looked at again: see `expires`."""
        if self._file.renewed():
            self._right.clear()
        digest = hashlib.sha256(token.encode()).digest()
        known = self._right.get(digest)
        if known is None:
            if len(self._right) >= MAX_REMEMBERED:
                self._right.clear()
            known = self._right[digest] = self._checked(token)
        return known

    def _checked(self, token: str) -> Caller:
        try:
            keys = self._file.value
            key_id = jwt.get_unverified_header(token).get("kid", "")
            if not key_id and len(keys) == 1:
                key_id = next(iter(keys))
            if key_id not in keys:
                raise TokenError("the token's key is not one of the issuer's")
            key, algorithms = keys[key_id]
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


def _read(path: Path) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Key id -> (key, algorithms that it may be used with)."""
    try:
        data = path.read_bytes()
        listed = json.loads(data)["keys"] if len(data) <= MAX_BYTES else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"jwt_keys: {path} is no JSON Web Key Set: {error}") from error
    if not isinstance(listed, list):
        raise ConfigError(f"jwt_keys: {path} is no JSON Web Key Set: keys is not a list")
    found: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for place, raw in enumerate(listed):
        algorithms = _algorithms(raw) if isinstance(raw, dict) else ()
        if not algorithms:
            raise ConfigError(f"jwt_keys: {path}: key {place + 1} is not RSA, EC or Ed25519")
        key_id = str(raw.get("kid", ""))
        if key_id in found or (not key_id and len(listed) > 1):
            raise ConfigError(f"jwt_keys: {path}: key {place + 1} needs a kid of its own")
        try:
            found[key_id] = jwt.PyJWK(raw, algorithm=algorithms[0]).key, algorithms
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise ConfigError(f"jwt_keys: {path}: key {place + 1}: {error}") from error
    if not found:
        raise ConfigError(f"jwt_keys: {path} holds no keys")
    return found


def _algorithms(raw: dict[str, Any]) -> tuple[str, ...]:
    """Asymmetric ones only: a key that checks must not be one that signs."""
    if "d" in raw or "k" in raw:
        return ()  # a secret does not belong here
    match raw.get("kty"):
        case "RSA":
            usable: tuple[str, ...] = _RSA
        case "EC":
            usable = tuple(filter(None, (_CURVES.get(str(raw.get("crv"))),)))
        case "OKP" if raw.get("crv") == "Ed25519":
            usable = ("EdDSA",)
        case _:
            usable = ()
    named = raw.get("alg")
    return tuple(one for one in usable if named is None or one == named)
