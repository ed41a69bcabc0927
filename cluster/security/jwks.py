"""Keys for signed tokens: a JSON Web Key Set (RFC 7517), of a file or a URL.

    Jwts --keys, renewed, look_again--> FileKeys --> a file, read again when it has changed
                                   '--> UrlKeys  --> the provider, by HTTPS

Only the node's setting names the URL: no token names a place to get keys from. Fetched keys stay
for a day while the provider cannot be reached. A token with an unknown key causes a new fetch,
for providers that rotate their keys; but not again soon, as anyone can send such tokens.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

import jwt

from cluster.errors import ConfigError
from cluster.security.watched import WatchedFile

log = logging.getLogger(__name__)

MAX_BYTES = 1024 * 1024
REFRESH_S = 300.0
RETRY_S = 10.0  # between two requests to the provider
STALE_S = 24 * 3600.0
TIMEOUT_S = 5.0  # of the provider, for each part and for all together
_PIECE = 64 * 1024
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

# Key id -> (key, algorithms that it may be used with)
Keys = Mapping[str, tuple[Any, tuple[str, ...]]]


class KeySource(Protocol):
    """value: the keys; empty: there are none yet, or no longer."""

    value: Keys

    def renewed(self) -> bool:
        """Return whether they have changed since the last call."""

    async def look_again(self) -> bool:
        """Look for a missing key; returns whether the keys have changed by now."""


class FileKeys(WatchedFile[Keys]):
    """Raises ConfigError for an unusable file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _read)

    async def look_again(self) -> bool:
        return False  # it was looked at just now


class UrlKeys:
    """Keys fetched on demand, at most one fetch at a time. Asked on the event loop only.

    fetch: the set as bytes; called in a thread. Raises OSError, HTTPException, ValueError.
    """

    def __init__(
        self, fetch: Callable[[], bytes], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.value: Keys = {}
        self._fetch = fetch
        self._clock = clock
        self._fetched_at = self._tried_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._renewed = False
        self._failure = ""

    def renewed(self) -> bool:
        age = self._clock() - self._fetched_at
        if self.value and age >= REFRESH_S:
            self._begin()  # in the background
        if self.value and age >= STALE_S:
            log.error("jwt_keys_url: the keys are a day old and count no longer")
            self._take_over({})
        renewed, self._renewed = self._renewed, False
        return renewed

    async def look_again(self) -> bool:
        before, task = self.value, self._begin()
        if task is not None:
            await asyncio.shield(task)
        return self.value is not before

    def _begin(self) -> asyncio.Task[None] | None:
        """Return the current fetch, or a new one; None: the last one was just now."""
        now = self._clock()
        if self._task is None and now - self._tried_at >= RETRY_S:
            self._tried_at = now
            self._task = asyncio.create_task(self._renew())
        return self._task

    async def _renew(self) -> None:
        try:
            keys = parsed(await asyncio.to_thread(self._fetch))
        except (OSError, HTTPException, ValueError) as error:  # ssl.SSLError is an OSError
            if self._failure != str(error):
                log.error("jwt_keys_url: no new keys: %s", error)
            self._failure = str(error)
        else:
            self._failure = ""
            self._fetched_at = self._clock()
            if keys.keys() != self.value.keys() or keys != self.value:
                self._take_over(keys)
        finally:
            self._task = None

    def _take_over(self, keys: Keys) -> None:
        self.value = keys
        self._renewed = True


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        """Return None: a redirect is an error, as it would choose the node's target."""


def fetcher(url: str, ca: Path | None) -> Callable[[], bytes]:
    """Return a function that gets the set. ca: the provider's; None: system. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise ConfigError(f"jwt_keys_ca: {ca}: {error}") from error
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirects
    )

    def fetch() -> bytes:
        deadline = time.monotonic() + TIMEOUT_S
        data = b""
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            while piece := answer.read1(_PIECE):
                data += piece
                if len(data) > MAX_BYTES:
                    raise ValueError(f"the set is longer than {MAX_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError("the set does not come to its end")
        return data

    return fetch


def parsed(data: bytes) -> Keys:
    """Parse a key set. Raises ValueError."""
    try:
        listed = json.loads(data)["keys"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no JSON Web Key Set: {error}") from error
    if not isinstance(listed, list):
        raise ValueError("no JSON Web Key Set: keys is not a list")
    found: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for place, raw in enumerate(listed):
        algorithms = _algorithms(raw) if isinstance(raw, dict) else ()
        if not algorithms:
            raise ValueError(f"key {place + 1} is not RSA, EC or Ed25519")
        key_id = str(raw.get("kid", ""))
        if key_id in found or (not key_id and len(listed) > 1):
            raise ValueError(f"key {place + 1} needs a kid of its own")
        try:
            found[key_id] = jwt.PyJWK(raw, algorithm=algorithms[0]).key, algorithms
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise ValueError(f"key {place + 1}: {error}") from error
    if not found:
        raise ValueError("it holds no keys")
    return found


def _read(path: Path) -> Keys:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"the set is longer than {MAX_BYTES} bytes")
        return parsed(data)
    except (OSError, ValueError) as error:
        raise ConfigError(f"jwt_keys: {path}: {error}") from error


def _algorithms(raw: dict[str, Any]) -> tuple[str, ...]:
    """Return asymmetric ones only: a key that checks must not be one that signs."""
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
