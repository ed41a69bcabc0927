"""Static tokens of small installations: a file with a line for each, which holds no secret.

    billing scrypt:16384:8:1:SALT:HASH        (both in hex; `oncelog acl token` makes the line)

A token is `oncelog.NAME.SECRET`, and its sender is the principal `token:NAME`. A check costs
scrypt's work, so that a stolen file is of no use. A valid token is remembered by its SHA-256
until the file changes, a wrong one never. One token is checked at a time; MAX_WAITING of each
name and MAX_ALL_WAITING in all may wait. A flood of wrong tokens of one name keeps out, while it
lasts, only clients of that name with a token not seen since the start.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ConfigError
from cluster.security.watched import WatchedFile

MAX_WAITING = 8  # checks of tokens of one name that wait for their turn
MAX_ALL_WAITING = 64
MAX_TOKENS = 10_000
MAX_BYTES = 4 * 1024 * 1024
MAX_N = 2**17
PREFIX = "oncelog."
_KIND = "token:"
_LINE = re.compile(
    r"([A-Za-z0-9_-]{1,100}) scrypt:([0-9]{1,7}):([0-9]{1,2}):([0-9]):"
    r"([0-9a-f]{32,128}):([0-9a-f]{64})"
)


class TokenError(Exception):
    """A token that identifies no sender; the text gives the reason, and no part of the token."""


class TokensBusyError(Exception):
    """Too many tokens are being checked; this one may be valid."""


@dataclass(frozen=True, slots=True)
class _Stored:
    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes


class StaticTokens:
    """Tokens of one file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError."""
        self._file = WatchedFile(path, _read)
        self._right: dict[bytes, str] = {}  # SHA-256 -> name
        self._turn = asyncio.Semaphore(1)
        self._waiting: Counter[str] = Counter()  # by name
        self._checking: dict[bytes, asyncio.Task[str]] = {}  # by SHA-256

    def look(self) -> None:
        """Read the file again if it has changed."""
        if self._file.renewed():
            self._right.clear()

    def line(self, principal: str) -> object | None:
        """Return the line of a principal's token, as it was last read; None: there is none."""
        return self._file.value.get(principal.removeprefix(_KIND))

    async def principal(self, token: str) -> str:
        """Return the principal. Raises TokenError, TokensBusyError."""
        self.look()
        digest = hashlib.sha256(token.encode()).digest()
        name = self._right.get(digest)
        if name is None:
            # A client's first calls come together: one check is for all of them.
            checking = self._checking.get(digest)
            if checking is None:
                checking = self._checking[digest] = asyncio.create_task(self._check(token, digest))
                checking.add_done_callback(lambda task: self._checked(digest, task))
            name = await asyncio.shield(checking)
        return f"{_KIND}{name}"

    def _checked(self, digest: bytes, task: asyncio.Task[str]) -> None:
        del self._checking[digest]
        if not task.cancelled():
            task.exception()  # its waiters have it, or have gone

    async def _check(self, token: str, sha256: bytes) -> str:
        name, _, secret = token.removeprefix(PREFIX).partition(".")
        stored = self._file.value.get(name)
        if stored is None or not secret:
            raise TokenError("the token is not known")
        if self._waiting[name] >= MAX_WAITING or self._waiting.total() >= MAX_ALL_WAITING:
            raise TokensBusyError("too many tokens are being checked; retry")
        self._waiting[name] += 1
        try:
            async with self._turn:
                digest = await asyncio.to_thread(_scrypt, secret.encode(), stored)
        finally:
            self._waiting[name] -= 1
        # The file may have changed meanwhile.
        if self._file.value.get(name) is not stored or not hmac.compare_digest(
            digest, stored.digest
        ):
            raise TokenError("the token is not known")
        self._right[sha256] = name  # now: the next look may find the line gone
        return name


def _scrypt(secret: bytes, stored: _Stored) -> bytes:
    return hashlib.scrypt(
        secret, salt=stored.salt, n=stored.n, r=stored.r, p=stored.p, maxmem=2**28, dklen=32
    )


def _read(path: Path) -> dict[str, _Stored]:
    try:
        data = path.read_bytes()
        text = data.decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tokens_file: {path}: {error}") from error
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if len(lines) > MAX_TOKENS or len(data) > MAX_BYTES:
        raise ConfigError(f"tokens_file: {path} has {len(lines)} lines, the limit is {MAX_TOKENS}")
    found: dict[str, _Stored] = {}
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line.strip())
        n = int(match[2]) if match else 0
        if match is None or not 2**12 <= n <= MAX_N or n & (n - 1):
            raise ConfigError(
                f"tokens_file: {path}: token {number} is not NAME scrypt:N:R:P:SALT:HASH"
            )
        if match[1] in found:
            raise ConfigError(f"tokens_file: {path}: {match[1]!r} is listed twice")
        found[match[1]] = _Stored(
            n, int(match[3]), int(match[4]), bytes.fromhex(match[5]), bytes.fromhex(match[6])
        )
    return found
