"""Changes from the console: a form, a plan that tells the effects, and the confirmed change.

    GET with fields --> ChangeTask.plan --> the effects are shown --> POST: the same plan, made

A change is made only if its plan still has the effects that the person saw. Nodes decide about
rights; the plan asks them before, so that nobody fills in a form in vain.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from oncelog.aio import Admin
from oncelog.console.errors import status_of
from oncelog.console.parts import (
    Facts,
    Field,
    Filter,
    Link,
    Links,
    Notes,
    Page,
    Part,
    Table,
    path,
)
from oncelog.console.sessions import BrowserSession
from oncelog.errors import InvalidRequestError, NotAuthorizedError, OncelogError
from oncelog.views.changes import doubt
from oncelog.views.life import read_question

Query = Mapping[str, str]
LOOK = "look"  # in an address: show the effects, and not only the form
OFFER = "offer"  # field with the key of one confirmation, which no other page can know
AGAIN_S = 5.0  # for the present state, after a change failed: its error is to be shown in time
PINNED = "at"  # field with values that the plan found, such as offsets
# First word of a task's name -> its command, where that has another name.
COMMANDS = {
    "balance": "cluster balance", "record": "topic produce", "rule": "acl", "transaction": "txn",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NeededPermission:
    """A permission that a change takes."""

    operation: str
    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """A change with its effects, before it is made.

    effects: the change is made only while they hold. notes: more to know, may change meanwhile.
    run: makes the change and returns a sentence. typed: to be typed if the change cannot be undone.
    hindrances: reasons that the change is not made. pinned: values that the plan found, which the
    confirmed change uses as they are.
    """

    effects: Sequence[str]
    run: Callable[[], Awaitable[str]]
    needs: Sequence[NeededPermission]
    command: Sequence[str]
    notes: Sequence[str] = ()
    typed: str = ""
    hindrances: Sequence[str] = ()
    pinned: str = ""
    table: Table | None = None

    @property
    def seen(self) -> str:
        """Return a digest of the effects."""
        return hashlib.sha256("\n".join((*self.effects, self.typed)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """A kind of change. fields: its form, for an address.

    area: the list to return to; with of, the page of the thing that this field names.
    """

    name: str
    title: str
    button: str
    area: str
    fields: Callable[[BrowserSession, Query], Awaitable[Sequence[Field]]]
    plan: Callable[[BrowserSession, Query], Awaitable[ChangePlan]]
    of: str = ""

    def back(self, query: Query) -> str:
        """Return the address of the page to return to."""
        return path(self.area, *([query.get(self.of, "")] if self.of else []))

    @property
    def help(self) -> str:
        """Return the command that explains this kind of change."""
        kind = self.name.partition("-")[0]
        return f"oncelog {COMMANDS.get(kind, kind)} --help"


def given(query: Query, name: str) -> str:
    """Return a value that must not be empty, as it is: names may begin with a space.

    Raises InvalidRequestError.
    """
    value = query.get(name, "")
    if not value.strip():
        raise InvalidRequestError(f"{name}: it must not be empty", field=name)
    return value


def fixed(query: Query, *names: str) -> list[Field]:
    """Return fields that the address has decided."""
    return [
        Field(name, name.capitalize().replace("_", " "), query.get(name, ""), fixed=True)
        for name in names
    ]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Values of the template: fields of the POST, and the text to type."""

    action: str
    button: str
    fields: Mapping[str, str]
    typed: str = ""
    ready: bool = False


@dataclass(slots=True)
class _Shown:
    problems: list[str]
    status: int = 200
    plan: ChangePlan | None = None
    hindrances: list[str] = field(default_factory=list)


async def show(
    session: BrowserSession, task: ChangeTask, query: Query, problem: str = "", status: int = 400
) -> Page:
    """Return the page of a change: its form, and its effects if the address asks for them.

    problem: told before all others, with its status.
    """
    shown, fields = _Shown([problem] if problem else [], status if problem else 200), None
    try:
        async with asyncio.timeout(AGAIN_S if problem else None):
            fields = await task.fields(session, query)
            if LOOK in query or all(one.fixed for one in fields):
                plan = await task.plan(session, query)
                shown.hindrances = [*plan.hindrances, *await _missing(session, plan.needs)]
                shown.plan = plan
    except OncelogError as error:
        if not problem and (fields is None or isinstance(error, NotAuthorizedError)):
            raise
        shown.problems.append(error.message)
        shown.status = status if problem else status_of(error)
    except TimeoutError:
        shown.problems.append(f"The nodes did not tell the present state within {AGAIN_S:.0f} s.")
    return _page(session, task, query, fields or (), shown)


def _page(
    session: BrowserSession, task: ChangeTask, query: Query, fields: Sequence[Field], shown: _Shown
) -> Page:
    where, plan = path("change", task.name), shown.plan
    parts: list[Part] = []
    if shown.problems:
        parts.append(Notes("Problem", shown.problems, "problem"))
        if read_question(shown.problems[0]) is not None:
            life = path("life", error=shown.problems[0])
            parts.append(Links("More", [Link("Did my record get in?", life)]))
    if all(one.fixed for one in fields):
        parts.append(Facts("Change", [(one.label, one.value) for one in fields]))
    else:
        parts.append(Filter("Change", where, fields, "Show the effects", {LOOK: "1"}))
    command = task.help
    confirmation = Confirmation(where, task.button, {})
    if plan is not None:
        command = shlex.join(["oncelog", *plan.command])
        parts.append(Notes("Effects", plan.effects or ["Nothing would change."], "effects"))
        if plan.table is not None:
            parts.append(plan.table)
        if plan.notes:
            parts.append(Notes("To know", plan.notes))
        if shown.hindrances:
            parts.append(Notes("Not possible", shown.hindrances, "problem"))
        values = {one.name: query.get(one.name, one.value) for one in fields}
        ready = bool(plan.effects) and not shown.hindrances
        values |= {PINNED: plan.pinned, "seen": plan.seen, OFFER: session.offer() if ready else ""}
        confirmation = Confirmation(where, task.button, values, plan.typed, ready)
    return Page(
        task.title, parts, command, task.area, template="change.html", status=shown.status,
        extra={
            "confirmation": confirmation, "back": task.back(query), "failed": bool(shown.problems),
        },
    )  # fmt: skip


async def _missing(session: BrowserSession, needs: Sequence[NeededPermission]) -> list[str]:
    """Return a sentence for each permission that the caller lacks."""
    if not await is_enforced(session.admin):
        return []
    who = session.principal or "Nobody"
    asked = [session.admin.check_permission(n.operation, n.kind, n.name) for n in needs]
    allowed = await asyncio.gather(*asked)
    return [
        f"{who} may not {need}: ask an administrator for this permission."
        for need, may in zip(needs, allowed, strict=True)
        if not may
    ]


async def is_enforced(admin: Admin) -> bool:
    """Tell whether the answering node enforces permissions; a refusal says so, too."""
    try:
        return (await admin.list_permissions("-")).enforced
    except NotAuthorizedError:
        return True


async def make(session: BrowserSession, task: ChangeTask, form: Query) -> Page | str:
    """Make a confirmed change; return the address to go to, or the page that says why not.

    Raises NotAuthorizedError.
    """
    fresh = {name: value for name, value in form.items() if name != PINNED} | {LOOK: "1"}
    if not session.take_offer(form.get(OFFER, "")):
        text = "This form was used already, or is too old. Look whether the change was made."
        return await show(session, task, fresh, text)
    try:
        plan = await task.plan(session, form)
    except NotAuthorizedError:
        raise
    except OncelogError:
        return await show(session, task, fresh)
    if not hmac.compare_digest(plan.seen, form.get("seen", "")):
        text = "The effects are no longer those that were shown. Nothing was changed: look again."
        return await show(session, task, fresh, text)
    if form.get("typed", "").strip() != plan.typed.strip():
        text = f"typed: it must be {plan.typed}. Nothing was changed."
        return await show(session, task, fresh, text)
    if plan.hindrances or not plan.effects:
        return await show(session, task, fresh)
    try:
        session.say(task.back(form), await plan.run())
    except OncelogError as error:
        if isinstance(error, NotAuthorizedError) and not doubt(error):
            raise
        text = f"{error.message}. {doubt(error)}".rstrip()
        return await show(session, task, fresh, text, status_of(error))
    return task.back(form)


__all__ = [
    "ChangePlan", "ChangeTask", "NeededPermission", "fixed", "given", "is_enforced", "make", "show",
]  # fmt: skip
