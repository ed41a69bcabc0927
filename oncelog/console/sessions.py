"""Sessions of browsers, and the clients that act with their identity.

    a request's cookie --> Sessions.use --> BrowserSession.admin --> nodes, which decide

Sessions are in memory; a restart of the console ends them. A token stays in its session and goes
nowhere else. A session of a provider's token lives as long as the token, or has it renewed.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from oncelog.aio import Admin
from oncelog.console.listening import ConsoleConfig
from oncelog.console.oidc import GrantedTokens, GrantEndedError, LoginError, refusal
from oncelog.errors import NotAuthorizedError, UnauthenticatedError
from oncelog.settings import ClientSettings

T = TypeVar("T")

MAX_SESSIONS = 200  # then the principal with the most of them loses its most idle one
IDLE_S = 8 * 3600.0
MAX_OFFERS = 50  # confirmations, and results, that wait in one session
EARLY_S = 30.0  # a token is renewed that long before its end, or in its last quarter
RETRY_S = 10.0  # between two attempts to renew a token
RETIRED_S = 60.0  # for pages in progress that use the clients of the token before
_BYTES = 32
# It also runs while the machine is suspended; macOS counts that in its monotonic clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _now() -> float:
    """Return the seconds since the start of the machine."""
    return time.clock_gettime(_CLOCK)


class Refresher(Protocol):
    async def refresh(self, held: GrantedTokens) -> GrantedTokens:
        """Return new tokens of the same person. Raises GrantEndedError, LoginError."""


class BrowserSession:
    """One logged-in browser. principal: as the nodes name it; empty: they identify nobody.

    tokens: of a provider, since held_at; None: the session does not end by itself. ends_at: the
    access token's end. renew_at: from then on a request renews it.
    """

    def __init__(self, admin: Admin, settings: ClientSettings, principal: str, owns: bool) -> None:
        self.admin = admin
        self.settings = settings
        self.principal = principal
        self.used_at = 0.0
        self.tokens: GrantedTokens | None = None
        self.held_at = 0.0
        self.ends_at = self.renew_at = math.inf
        self.renewing = asyncio.Lock()
        self._retired: list[tuple[float, Admin]] = []
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

    def hold(self, tokens: GrantedTokens, now: float) -> None:
        """Keep the provider's tokens, which the clients use from now on."""
        self.tokens = tokens
        self.held_at = now
        self.ends_at = now + tokens.life_s
        early = min(EARLY_S, tokens.life_s / 4)
        self.renew_at = self.ends_at - early if tokens.refresh else math.inf

    def is_over(self, now: float) -> bool:
        """Tell whether the token has ended, and nothing can renew it."""
        return now >= self.ends_at and self.renew_at == math.inf

    async def replace(self, admin: Admin, settings: ClientSettings, now: float) -> None:
        """Use other clients. Pages in progress go on with those before."""
        self._retired.append((now, self.admin))
        self.admin = admin
        self.settings = settings
        while self._retired and now - self._retired[0][0] > RETIRED_S:
            await self._retired.pop(0)[1].close()

    async def close(self) -> None:
        for _, admin in self._retired:
            await admin.close()
        if self._owns:
            await self.admin.close()


def _keep(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    if len(kept) > MAX_OFFERS:
        kept.popitem(last=False)


class Sessions:
    """All sessions by their cookie. Must be used on one event loop."""

    def __init__(
        self,
        config: ConsoleConfig,
        provider: Refresher | None = None,
        clock: Callable[[], float] = _now,
    ) -> None:
        self.key = secrets.token_urlsafe(_BYTES)  # of the printed link, with login "own"
        self._config = config
        self._provider = provider
        self._clock = clock
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        self._own: Admin | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie; None: there is none, or it has ended."""
        session = self._sessions.get(cookie)
        if session is None or self._has_ended(session):
            return None
        session.used_at = self._clock()
        self._sessions.move_to_end(cookie)
        return session

    async def use(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie with a token that is valid for a page.

        Raises LoginError if the token has ended and the provider does not renew it now.
        """
        session = self.find(cookie)
        if session is None or self._clock() < session.renew_at:
            return session
        async with session.renewing:  # a provider takes a refresh token once
            if self._clock() >= session.renew_at and self.find(cookie) is session:
                await self._renew(cookie, session)
        return self.find(cookie)

    async def _renew(self, cookie: str, session: BrowserSession) -> None:
        assert self._provider is not None and session.tokens is not None
        try:
            tokens = await self._provider.refresh(session.tokens)
        except GrantEndedError:
            await self.leave(cookie)
            return
        except LoginError:
            if self._clock() >= session.ends_at:
                raise
            session.renew_at = min(session.ends_at, self._clock() + RETRY_S)
            return
        if self.find(cookie) is session:  # no logout meanwhile
            settings = self._config.settings(tokens.access)
            session.hold(tokens, self._clock())
            await session.replace(Admin(**settings), settings, self._clock())

    def outlived(self, session: BrowserSession, refused: Admin) -> bool:
        """Tell whether another token replaced that of these clients, or can at the next request.

        Nodes refused it, so it has ended by their clocks. A new one that they refuse is no better.
        """
        now = self._clock()
        if session.admin is not refused or now >= session.renew_at:
            return True
        if session.renew_at == math.inf or now - session.held_at < RETRY_S:
            return False
        session.ends_at = session.renew_at = now
        return True

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
        return await self._add(await self._of_token(token))

    async def enter_by_grant(self, tokens: GrantedTokens) -> str:
        """Open a session with a provider's tokens; return its cookie.

        Raises LoginError, OncelogError.
        """
        assert self._config.oidc is not None
        now = self._clock()  # the token's life began before the nodes are asked
        try:
            session = await self._of_token(tokens.access)
        except UnauthenticatedError as error:
            raise refusal(self._config.oidc.issuer, error.message, tokens.access) from None
        session.hold(tokens, now)
        return await self._add(session)

    async def _of_token(self, token: str) -> BrowserSession:
        settings = self._config.settings(token)
        admin = Admin(**settings)
        try:
            principal = await principal_of(admin)
        except BaseException:
            await admin.close()
            raise
        return BrowserSession(admin, settings, principal, True)

    async def _add(self, session: BrowserSession) -> str:
        await self.end_idle()
        while len(self._sessions) >= MAX_SESSIONS:
            counts = Counter(one.principal for one in self._sessions.values())
            busiest = counts.most_common(1)[0][0]
            held = (c for c, one in self._sessions.items() if one.principal == busiest)
            await self.leave(next(held))
        cookie = secrets.token_urlsafe(_BYTES)
        session.used_at = self._clock()
        self._sessions[cookie] = session
        return cookie

    async def end_idle(self) -> None:
        """End the sessions that are over: their tokens leave the memory."""
        for cookie in [c for c, s in self._sessions.items() if self._has_ended(s)]:
            await self.leave(cookie)

    def _has_ended(self, session: BrowserSession) -> bool:
        now = self._clock()
        return now - session.used_at > IDLE_S or session.is_over(now)

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
