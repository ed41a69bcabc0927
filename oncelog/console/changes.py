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
from oncelog.console.parts import Cell, Facts, Field, Filter, Notes, Page, Part, Table, path
from oncelog.console.sessions import BrowserSession
from oncelog.errors import InvalidRequestError, NotAuthorizedError, OncelogError, RetriableError

Query = Mapping[str, str]
LOOK = "look"  # in an address: show the effects, and not only the form
OFFER = "offer"  # field with the key of one confirmation, which no other page can know
PINNED = "at"  # field with values that the plan found, such as offsets


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
    """A kind of change. fields: its form, for an address. back: the page to return to."""

    name: str
    title: str
    button: str
    area: str
    fields: Callable[[BrowserSession, Query], Awaitable[Sequence[Field]]]
    plan: Callable[[BrowserSession, Query], Awaitable[ChangePlan]]
    back: Callable[[Query], str]


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
    problem: str = ""
    status: int = 200
    plan: ChangePlan | None = None
    hindrances: list[str] = field(default_factory=list)


async def show(session: BrowserSession, task: ChangeTask, query: Query, problem: str = "") -> Page:
    """Return the page of a change: its form, and its effects if the address asks for them."""
    fields = await task.fields(session, query)
    asks = LOOK in query or all(one.fixed for one in fields)
    shown = _Shown(problem, 400 if problem else 200)
    if asks:
        try:
            shown.plan = await task.plan(session, query)
            shown.hindrances = [*shown.plan.hindrances, *await _missing(session, shown.plan.needs)]
        except NotAuthorizedError:
            raise
        except OncelogError as error:
            shown.problem, shown.status = error.message, status_of(error)
    return _page(session, task, query, fields, shown)


def _page(
    session: BrowserSession, task: ChangeTask, query: Query, fields: Sequence[Field], shown: _Shown
) -> Page:
    where, plan = path("change", task.name), shown.plan
    parts: list[Part] = []
    if shown.problem:
        parts.append(Notes("Problem", [shown.problem], "problem"))
    fixed: list[tuple[str, Cell]] = [(one.label, one.value) for one in fields if one.fixed]
    if all(one.fixed for one in fields):
        parts.append(Facts("Change", fixed))
    else:
        parts.append(Filter("Change", where, fields, "Show the effects", {LOOK: "1"}))
    command = f"oncelog {task.area.rstrip('s')} --help"
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
        given = {one.name: query.get(one.name, one.value) for one in fields}
        ready = bool(plan.effects) and not shown.hindrances
        given |= {PINNED: plan.pinned, "seen": plan.seen, OFFER: session.offer() if ready else ""}
        confirmation = Confirmation(where, task.button, given, plan.typed, ready)
    return Page(
        task.title, parts, command, task.area, template="change.html", status=shown.status,
        extra={"confirmation": confirmation, "back": task.back(query)},
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
        session.said = await plan.run()
    except NotAuthorizedError:
        raise
    except OncelogError as error:
        return await show(session, task, fresh, f"{error.message}{doubt(error)}")
    return task.back(form)


def doubt(error: OncelogError) -> str:
    """Return the end of a sentence about a change whose outcome is not known."""
    if isinstance(error, RetriableError) and error.outcome == "unknown":
        return " The change may have been made: look before you repeat it."
    return " Nothing was changed." if isinstance(error, InvalidRequestError) else ""


__all__ = ["ChangePlan", "ChangeTask", "NeededPermission", "doubt", "is_enforced", "make", "show"]
