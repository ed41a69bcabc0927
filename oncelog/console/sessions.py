"""Sessions of browsers, and the clients that act with their identity.

    a request's cookie --> Sessions.find --> BrowserSession.admin --> nodes, which decide

Sessions are in memory; a restart of the console ends them. A token stays in its session and goes
nowhere else.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from oncelog.aio import Admin
from oncelog.console.listening import ConsoleConfig
from oncelog.errors import NotAuthorizedError
from oncelog.settings import ClientSettings

T = TypeVar("T")

MAX_SESSIONS = 200  # the one that was idle longest makes room
IDLE_S = 8 * 3600.0
MAX_OFFERS = 50  # confirmations, and results, that wait in one session
_BYTES = 32


class BrowserSession:
    """One logged-in browser. principal: as the nodes name it; empty: they identify nobody."""

    def __init__(self, admin: Admin, settings: ClientSettings, principal: str, owns: bool) -> None:
        self.admin = admin
        self.settings = settings
        self.principal = principal
        self.used_at = 0.0
        self._said: OrderedDict[str, str] = OrderedDict()  # address -> result of a change
        self._offers: OrderedDict[str, None] = OrderedDict()
        self._owns = owns

    def offer(self) -> str:
        """Return the key of one confirmation. A page of another site cannot know it."""
        key = secrets.token_urlsafe(_BYTES)
        _keep(self._offers, key, None)
        return key

    def take_offer(self, key: str) -> bool:
        """Use a key up; False: it was used already, is too old, or was never offered."""
        return self._offers.pop(key, self) is None

    def say(self, address: str, text: str) -> None:
        """Keep the result of a change for the page at this address."""
        _keep(self._said, address, text)

    def take_said(self, address: str) -> str:
        """Return the result of a change, once."""
        return self._said.pop(address, "")

    async def close(self) -> None:
        if self._owns:
            await self.admin.close()


def _keep(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    if len(kept) > MAX_OFFERS:
        kept.popitem(last=False)


class Sessions:
    """All sessions by their cookie. Must be used on one event loop."""

    def __init__(self, config: ConsoleConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_urlsafe(_BYTES)  # of the printed link, with login "own"
        self._config = config
        self._clock = clock
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        self._own: Admin | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie; None: there is none, or it was idle too long."""
        session = self._sessions.get(cookie)
        if session is None or self._clock() - session.used_at > IDLE_S:
            return None
        session.used_at = self._clock()
        self._sessions.move_to_end(cookie)
        return session

    async def enter_by_key(self, key: str) -> str | None:
        """Open a session with the identity of the command's caller; return its cookie."""
        if self._config.login != "own" or not hmac.compare_digest(key.encode(), self.key.encode()):
            return None
        settings = self._config.settings()
        if self._own is None:
            self._own = Admin(**settings)
        return await self._add(
            BrowserSession(self._own, settings, await principal_of(self._own), False)
        )

    async def enter_by_token(self, token: str) -> str:
        """Open a session with a token; return its cookie. Raises OncelogError."""
        settings = self._config.settings(token)
        admin = Admin(**settings)
        try:
            principal = await principal_of(admin)
        except BaseException:
            await admin.close()
            raise
        return await self._add(BrowserSession(admin, settings, principal, True))

    async def _add(self, session: BrowserSession) -> str:
        await self.end_idle()
        while len(self._sessions) >= MAX_SESSIONS:
            await self.leave(next(iter(self._sessions)))
        cookie = secrets.token_urlsafe(_BYTES)
        session.used_at = self._clock()
        self._sessions[cookie] = session
        return cookie

    async def end_idle(self) -> None:
        """End the sessions that were idle too long: their tokens leave the memory."""
        now = self._clock()
        for cookie in [c for c, s in self._sessions.items() if now - s.used_at > IDLE_S]:
            await self.leave(cookie)

    async def leave(self, cookie: str) -> None:
        session = self._sessions.pop(cookie, None)
        if session is not None:
            await session.close()

    async def close(self) -> None:
        for cookie in list(self._sessions):
            await self.leave(cookie)
        if self._own is not None:
            await self._own.close()


async def principal_of(admin: Admin) -> str:
    """Return the principal that the nodes see. Raises OncelogError."""
    try:
        return (await admin.list_permissions("-")).caller
    except NotAuthorizedError as error:
        return error.principal  # the refusal names the caller


__all__ = ["BrowserSession", "Sessions", "principal_of"]
