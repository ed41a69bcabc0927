"""OpenID Connect without IO: the tokens of a person, and an attempt to log in.

    /oidc/login --begin--> a cookie, and the provider --code, state--> /oidc/callback --resume

The console keeps no attempt: its browser has it in a cookie. State, nonce and verifier follow from
that cookie and a key of this process, so strangers cannot fill the memory, nor end the attempts of
others.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

ATTEMPT_S = 600  # from the link to the provider's answer
MAX_PATH_CHARS = 1000
_BYTES = 32


class LoginError(Exception):
    """A login that did not succeed, with the status of its page."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class GrantEndedError(LoginError):
    """The provider takes this code, or this refresh token, no longer."""


@dataclass(frozen=True, slots=True)
class GrantedTokens:
    """A provider's answer. refresh: empty: there is none. life_s: of the access token."""

    access: str = field(repr=False)
    identity: str = field(repr=False)  # the ID token
    refresh: str = field(repr=False)
    life_s: float
    subject: str


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One attempt. cookie: of its browser. path: where the person wanted to go."""

    cookie: str = field(repr=False)
    path: str
    state: str
    nonce: str
    verifier: str = field(repr=False)

    @property
    def challenge(self) -> str:
        return _text(hashlib.sha256(self.verifier.encode()).digest())


class LoginAttempts:
    """Makes attempts, and knows them again by the cookie of their browser."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = secrets.token_bytes(_BYTES)
        self._clock = clock

    def begin(self, path: str) -> LoginAttempt:
        wanted = quote(local_path(path), safe="")
        return self._of(f"{int(self._clock())}.{secrets.token_urlsafe(_BYTES)}.{wanted}")

    def resume(self, cookie: str, state: str) -> LoginAttempt:
        """Return the attempt of this browser that the provider answers. Raises LoginError."""
        attempt = self._of(cookie)
        began = cookie.partition(".")[0]
        if not hmac.compare_digest(attempt.state.encode(), state.encode()) or (
            self._clock() - int(began) > ATTEMPT_S  # a true state: this process wrote the number
        ):
            raise LoginError(
                "This login does not go on: it began in another window or browser, was used "
                f"already, or began more than {ATTEMPT_S // 60} minutes ago. Log in again.",
                400,
            )
        return attempt

    def _of(self, cookie: str) -> LoginAttempt:
        state, nonce, verifier = (
            _text(hmac.digest(self._key, f"{name}:{cookie}".encode(), "sha256"))
            for name in ("state", "nonce", "verifier")
        )
        path = unquote(cookie.split(".", 2)[-1])
        return LoginAttempt(cookie, path, state, nonce, verifier)


def local_path(given: str) -> str:
    """Return the path, or "/" for an address that may lead to another site."""
    is_local = given.startswith("/") and not given.startswith("//") and "\\" not in given
    fits = len(given) <= MAX_PATH_CHARS and given.isascii() and given.isprintable()
    return given if is_local and fits else "/"


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a token, unchecked, to describe it; empty: it is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def refusal(issuer: str, said: str, access: str) -> LoginError:
    """Return the error for a token that the nodes refuse."""
    claims = claims_of(access)
    text = f"You are logged in at {issuer}, but the nodes do not accept its access token: {said}. "
    if claims:
        audience = claims.get("aud", "nobody")
        names = ", ".join(map(str, audience)) if isinstance(audience, list) else str(audience)
        text += (
            f"The token is for {short(names)}, by the issuer {short(str(claims.get('iss', '')))}. "
            "The nodes compare these with their settings jwt_audience and jwt_issuer, and its "
            "signature with jwt_keys or jwt_keys_url."
        )
    else:
        text += (
            "The token is not a JWT, which the nodes need. Providers make one for a resource "
            "or a scope: see --oidc-resource and --oidc-scopes."
        )
    return LoginError(text, 401)


def short(text: str) -> str:
    """Return a text of strangers in one line that fits a sentence."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= 300 else line[:300] + "..."


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


__all__ = [
    "ATTEMPT_S",
    "GrantEndedError",
    "GrantedTokens",
    "LoginAttempt",
    "LoginAttempts",
    "LoginError",
    "claims_of",
    "local_path",
    "refusal",
    "short",
]  # fmt: skip
