"""The console's web application: routes, sessions, and the headers that bound a page.

    request --> RequestGuard (host, headers) --> a route --> its session --> a page --> HTML

Each page is whole without JavaScript. Scripts, styles and pictures come from this process only.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.aio import Admin
from oncelog.config import MAX_INT32, MAX_INT64
from oncelog.console import changes, cluster_tasks, life, pages, security, topic_tasks, transactions
from oncelog.console.errors import status_of
from oncelog.console.listening import ConsoleConfig
from oncelog.console.masks import Masks
from oncelog.console.oidc import ATTEMPT_S, LoginAttempts, LoginError, short
from oncelog.console.parts import Notes, Page
from oncelog.console.records import RecordReader
from oncelog.console.sessions import BrowserSession, Sessions
from oncelog.errors import NotAuthorizedError, OncelogError, UnauthenticatedError
from oncelog.version import __version__
from oncelog.views.words import when

if TYPE_CHECKING:
    from oncelog.console.provider import IdentityProvider

HERE = Path(__file__).parent
PAGE_S = 30.0  # for a whole page, with all of its calls
SWEEP_S = 60.0  # between two looks for sessions that were idle too long
MAX_FORM_BYTES = 64 * 1024
MAX_FIELDS = 20
FORM_S = 10.0  # for a form to come
CALLBACK = "/oidc/callback"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a form's Origin is "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
STATIC = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "htmx-4.0.1.min.js": "text/javascript",
    "uplot-1.6.32.min.js": "text/javascript",
    "uplot-1.6.32.min.css": "text/css",
    "icon.svg": "image/svg+xml",
}
TASKS = {task.name: task for task in (*topic_tasks.TASKS, *cluster_tasks.TASKS)}
Ask = Callable[[Admin, Mapping[str, str]], Awaitable[Page]]


class Console:
    """Routes of one console, with its sessions."""

    def __init__(self, config: ConsoleConfig) -> None:
        self._provider = _provider_of(config)
        self._attempts = LoginAttempts()
        self.sessions = Sessions(config, self._provider)
        self._config = config
        self._reader = RecordReader(Masks(config.masks))
        # Cookies of one host are shared by all its ports; browsers tie __Host- to TLS.
        self._cookie = "__Host-oncelog" if config.secured else f"oncelog_{secrets.token_hex(4)}"
        self._attempt_cookie = f"{self._cookie}_login"
        self._static = {name: (HERE / "static" / name).read_bytes() for name in STATIC}
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters["when"] = when

    def app(self) -> ASGIApp:
        """Return the application for a server."""
        routes = [
            Route("/", self._listing(pages.overview)),
            Route("/nodes", self._listing(pages.nodes)),
            Route("/topics", self._listing(pages.topics)),
            Route("/topics/{topic}", self._page(self._topic)),
            Route("/topics/{topic}/records", self._page(self._records)),
            Route("/topics/{topic}/records/{partition}/{offset}", self._page(self._record)),
            Route("/topics/{topic}/{partition}", self._page(self._partition)),
            Route("/groups", self._listing(pages.groups)),
            Route("/groups/{group:path}", self._page(self._group)),
            Route("/producers", self._listing(pages.producers)),
            Route("/events", self._listing(pages.events)),
            Route("/transactions", self._listing(transactions.transactions)),
            Route("/transactions/{transaction}", self._page(self._transaction)),
            Route("/sinks", self._listing(transactions.sinks)),
            Route("/sinks/{sink:path}", self._page(self._sink)),
            Route("/security", self._listing(security.security)),
            Route("/life", self._page(self._life)),
            Route("/change/{task}", self._page(self._look), methods=["GET"]),
            Route("/change/{task}", self._page(self._change), methods=["POST"]),
            Route("/enter", self._enter, methods=["GET", "POST"]),
            Route("/leave", self._leave, methods=["POST"]),
            Route("/static/{name}", self._file),
        ]
        if self._provider is not None:
            routes += [Route("/oidc/login", self._begin), Route(CALLBACK, self._finish)]
        handlers: Any = {HTTPException: self._http_error}
        app = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)
        return RequestGuard(app, self._config)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(self._sweep())
        yield
        sweeping.cancel()
        self._reader.close()
        await self.sessions.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sessions.end_idle()

    # --- pages -----------------------------------------------------------------------

    def _listing(self, ask: Ask) -> Callable[[Request], Awaitable[Response]]:
        async def of_session(session: BrowserSession, request: Request) -> Page:
            return await ask(session.admin, request.query_params)

        return self._page(of_session)

    def _page(
        self, make: Callable[[BrowserSession, Request], Awaitable[Page | str]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a page that needs a session. make: a page, or where to go."""

        async def handle(request: Request) -> Response:
            try:
                session = await self.sessions.use(self._cookie_of(request))
            except LoginError as error:
                return self._entrance(error.text, error.status, _address(request))
            if session is None:
                return RedirectResponse(self._entrance_of(request), 303)
            admin = session.admin
            try:
                async with asyncio.timeout(PAGE_S):
                    page = await make(session, request)
            except OncelogError as error:
                if isinstance(error, UnauthenticatedError) and session.tokens is not None:
                    return await self._refused(error, session, admin, request)
                return self._failed(error, session)
            except TimeoutError:
                text = f"The cluster did not answer within {PAGE_S:.0f} s."
                if request.method == "POST":
                    text += " The change may have been made: look before you repeat it."
                return self._error(503, "No answer", text, session)
            if isinstance(page, str):
                return RedirectResponse(page, 303)
            return self._render(page, session, request)

        return handle

    async def _topic(self, session: BrowserSession, request: Request) -> Page:
        return await pages.topic(session.admin, request.query_params, request.path_params["topic"])

    async def _partition(self, session: BrowserSession, request: Request) -> Page:
        given = request.path_params
        index = pages.number(given, "partition", 0, MAX_INT32)
        return await pages.partition(session.admin, request.query_params, given["topic"], index)

    async def _group(self, session: BrowserSession, request: Request) -> Page:
        return await pages.group(session.admin, request.query_params, request.path_params["group"])

    async def _records(self, session: BrowserSession, request: Request) -> Page:
        topic = request.path_params["topic"]
        return await self._reader.search(session, request.query_params, topic)

    async def _record(self, session: BrowserSession, request: Request) -> Page:
        given = request.path_params
        partition = pages.number(given, "partition", 0, MAX_INT32)
        offset = pages.number(given, "offset", 0, MAX_INT64)
        return await self._reader.record(session, given["topic"], partition, offset)

    async def _transaction(self, session: BrowserSession, request: Request) -> Page:
        given = request.path_params["transaction"]
        return await transactions.transaction(session.admin, request.query_params, given)

    async def _sink(self, session: BrowserSession, request: Request) -> Page:
        name = request.path_params["sink"]
        return await transactions.sink(session.admin, request.query_params, name)

    async def _life(self, session: BrowserSession, request: Request) -> Page | str:
        return await life.page(session, request.query_params)

    async def _look(self, session: BrowserSession, request: Request) -> Page:
        return await changes.show(session, self._task(request), request.query_params)

    async def _change(self, session: BrowserSession, request: Request) -> Page | str:
        self._refuse_strangers(request)
        task = self._task(request)
        return await changes.make(session, task, await _form(request))

    def _task(self, request: Request) -> changes.ChangeTask:
        """Return the kind of change of an address. Raises HTTPException."""
        if not self._config.allows_changes:
            text = "This console only reads: start it with --allow-changes"
            raise HTTPException(403, text)
        task = TASKS.get(request.path_params["task"])
        if task is None:
            raise HTTPException(404)
        return task

    # --- logging in and out ----------------------------------------------------------

    async def _enter(self, request: Request) -> Response:
        try:
            if request.method == "POST":
                self._refuse_strangers(request)
                if self._config.login != "token":
                    raise HTTPException(405)
                token = (await _form(request)).get("token", "").strip()
                is_sendable = token and token.isascii() and token.isprintable()
                cookie: str | None = await self.sessions.enter_by_token(
                    token if is_sendable else "-"
                )
            elif self._config.login == "token":
                return self._entrance()
            elif self._config.login == "oidc":
                return self._entrance(path=request.query_params.get("to", "/"))
            else:
                cookie = await self.sessions.enter_by_key(request.query_params.get("key", ""))
        except UnauthenticatedError:
            return self._entrance("The nodes do not accept this token.", 401)
        except OncelogError as error:
            return self._entrance(error.message, status_of(error))
        if cookie is None:
            return self._entrance(status=403)
        answer = RedirectResponse("/", 303)
        self._set_cookie(answer, self._cookie, cookie)
        return answer

    def _entrance(self, problem: str = "", status: int = 200, path: str = "/") -> Response:
        issuer = "" if self._config.oidc is None else self._config.oidc.issuer
        return self._html(
            "enter.html", status, title="Log in", login=self._config.login, problem=problem,
            issuer=issuer, login_path=f"/oidc/login?{urlencode({'to': path})}",
            session=None, area="", command="oncelog console", refreshes=False, said="",
        )  # fmt: skip

    def _entrance_of(self, request: Request) -> str:
        """Return where a person without a session logs in, to come back to this page."""
        if self._provider is None or request.method != "GET":
            return "/enter"
        return f"/enter?{urlencode({'to': _address(request)})}"

    async def _begin(self, request: Request) -> Response:
        """Send a person to the provider. A link leads here: the policy binds forms to this host."""
        assert self._provider is not None
        attempt = self._attempts.begin(request.query_params.get("to", "/"))
        try:
            url = await self._provider.login_url(attempt, self._origin(request) + CALLBACK)
        except LoginError as error:
            return self._entrance(error.text, error.status, attempt.path)
        answer = RedirectResponse(url, 303)
        self._set_cookie(answer, self._attempt_cookie, attempt.cookie, "lax", ATTEMPT_S)
        return answer

    async def _finish(self, request: Request) -> Response:
        """Take the provider's answer.

        It answers with a page that goes on by itself: browsers send a strict cookie neither with
        this request nor along its redirects, since another site began it.
        """
        assert self._provider is not None
        query = request.query_params
        try:
            attempt = self._attempts.resume(
                request.cookies.get(self._attempt_cookie, ""), query.get("state", "")
            )
        except LoginError as error:  # a stranger's link ends no attempt
            return self._entrance(error.text, error.status)
        try:
            back = self._origin(request) + CALLBACK
            tokens = await self._provider.exchange(query, attempt, back)
            cookie = await self.sessions.enter_by_grant(tokens)
        except LoginError as error:
            answer = self._entrance(error.text, error.status, attempt.path)
        except OncelogError as error:
            answer = self._entrance(error.message, status_of(error), attempt.path)
        else:
            answer = self._going_on("You are logged in", attempt.path, "Go on to the console")
            self._set_cookie(answer, self._cookie, cookie)
        self._drop_cookie(answer, self._attempt_cookie)
        return answer

    async def _leave(self, request: Request) -> Response:
        self._refuse_strangers(request)
        session, url = self._session(request), ""
        if session is not None and session.tokens is not None and self._provider is not None:
            url = self._provider.logout_url(session.tokens, self._origin(request) + "/enter")
        await self.sessions.leave(self._cookie_of(request))
        answer = RedirectResponse("/enter", 303) if not url else self._going_on(
            "You are logged out of the console", url, "Log out at the provider as well"
        )  # fmt: skip
        self._drop_cookie(answer, self._cookie)
        return answer

    def _going_on(self, title: str, target: str, text: str) -> Response:
        """Return a page that leads to another one, also of another site."""
        return self._html(
            "onward.html", 200, title=title, target=target, text=text, session=None, area="",
            command="oncelog console", refreshes=False, said="",
        )  # fmt: skip

    def _origin(self, request: Request) -> str:
        """Return the console's origin, as this browser names it."""
        seen = f"{request.url.scheme}://{request.headers.get('host', '')}"
        return self._config.public_origin or seen

    def _refuse_strangers(self, request: Request) -> None:
        """Refuse a form that a page of another site sent. Raises HTTPException."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        is_own = origin in (None, self._origin(request))
        if site not in (None, "same-origin", "none") or not is_own:
            text = "The form came from another site"
            if site in (None, "same-origin"):
                text += f", {short(origin or '')}; behind a proxy give --public-url its address"
            raise HTTPException(403, text)

    def _session(self, request: Request) -> BrowserSession | None:
        return self.sessions.find(self._cookie_of(request))

    def _cookie_of(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")

    def _set_cookie(
        self,
        answer: Response,
        name: str,
        value: str,
        same_site: Literal["lax", "strict"] = "strict",
        max_age: int | None = None,
    ) -> None:
        answer.set_cookie(
            name, value, max_age, path="/", httponly=True, samesite=same_site,
            secure=self._config.secured,
        )  # fmt: skip

    def _drop_cookie(self, answer: Response, name: str) -> None:
        """Browsers ignore an insecure answer about a cookie that is bound to the host."""
        answer.delete_cookie(name, path="/", httponly=True, secure=self._config.secured)

    # --- answers ---------------------------------------------------------------------

    def _render(self, page: Page, session: BrowserSession, request: Request) -> Response:
        live = page.refreshes and "live" in request.query_params
        where, url = request.scope["raw_path"].decode("latin-1"), URL(_address(request))
        return self._html(
            page.template, page.status, title=page.title, parts=page.parts, area=page.area,
            command=page.command, refreshes=page.refreshes, session=session, live=live,
            changes=page.changes, said="" if live else session.take_said(where),
            again=str(url),
            renewing=str(url.include_query_params(live=1)), **page.extra,
        )  # fmt: skip

    async def _refused(
        self, error: OncelogError, session: BrowserSession, admin: Admin, request: Request
    ) -> Response:
        """Answer for nodes that refuse a provider's token. admin: it had the token."""
        if self.sessions.outlived(session, admin):
            if request.method == "GET":
                return RedirectResponse(_whole_address(request), 303)
            text = "Your token ended meanwhile. Look whether the change was made, and ask again."
            return self._error(status_of(error), error.reason, text, session)
        await self.sessions.leave(self._cookie_of(request))
        text = f"The nodes do not accept your token any more: {error.message}. Log in again."
        return self._entrance(text, 401, _address(request))

    def _failed(self, error: OncelogError, session: BrowserSession) -> Response:
        text = error.message
        if isinstance(error, NotAuthorizedError):
            text = (
                f"{error.principal or 'Nobody'} may not {error.operation} {error.kind} "
                f"{error.name or ''}".strip()
                + ": ask an administrator for this permission."
            )
        return self._error(status_of(error), error.reason, text, session)

    def _error(
        self, status: int, title: str, text: str, session: BrowserSession | None
    ) -> Response:
        return self._html(
            "page.html", status, title=title, parts=[Notes("Problem", [text], "problem")], area="",
            command="oncelog cluster health", refreshes=False, session=session, live=False,
            changes=(), said="",
        )  # fmt: skip

    async def _http_error(self, request: Request, error: HTTPException) -> Response:
        session = self._session(request)
        return self._error(error.status_code, error.detail, f"{error.detail}.", session)

    def _html(self, template: str, status: int, **values: Any) -> Response:
        html = self._templates.get_template(template).render(
            version=__version__, allows=self._config.allows_changes, **values
        )
        return HTMLResponse(html, status, {"cache-control": "no-store"})

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404)
        headers = {"cache-control": "max-age=3600"}
        return Response(self._static[name], media_type=STATIC[name], headers=headers)


class RequestGuard:
    """Refuses requests for other hosts, and adds the headers of all answers."""

    def __init__(self, app: ASGIApp, config: ConsoleConfig) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) == 1 and self._config.names_host(hosts[0]):
            await self._app(scope, receive, with_headers)
            return
        text = "The Host of this request is not the console's.\n"
        if self._config.public_url is not None:
            text = f"This console is at {self._config.public_origin}: a proxy must pass the Host.\n"
        refused = Response(text, 421)
        await refused(scope, receive, with_headers)


def _provider_of(config: ConsoleConfig) -> IdentityProvider | None:
    """Return the provider of the settings. Only such a console imports its libraries."""
    if config.oidc is None:
        return None
    from oncelog.console.provider import IdentityProvider

    return IdentityProvider(config.oidc)


def _address(request: Request) -> str:
    """Return the address of a page on this host, without the mark of a renewal."""
    return str(URL(_whole_address(request)).remove_query_params("live"))


def _whole_address(request: Request) -> str:
    return f"{request.scope['raw_path'].decode('latin-1')}?{request.url.query}"


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises HTTPException."""
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM_BYTES:
                    raise HTTPException(413, f"The form is larger than {MAX_FORM_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, f"The form did not come within {FORM_S:.0f} s") from None
    try:
        fields = parse_qs(body.decode("utf-8", errors="replace"), max_num_fields=MAX_FIELDS)
    except ValueError:
        raise HTTPException(400, f"The form has more than {MAX_FIELDS} fields") from None
    return {name: values[-1] for name, values in fields.items()}


__all__ = ["Console", "RequestGuard"]
