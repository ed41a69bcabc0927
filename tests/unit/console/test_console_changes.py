"""Changes of the console with an unknown outcome: the page never tells less than the error."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest

from oncelog._engine.net.attempts import Attempts
from oncelog.aio import Admin
from oncelog.console import changes
from oncelog.console.app import TASKS
from oncelog.console.changes import LOOK, OFFER, ChangePlan, ChangeTask, Query, fixed, given
from oncelog.console.parts import Field, Links, Notes, Page
from oncelog.console.sessions import BrowserSession
from oncelog.errors import (
    BrokerUnavailableError,
    DeliveryTimeoutError,
    InvalidRequestError,
    NotAuthorizedError,
    OncelogError,
    Outcome,
    RequestTimeoutError,
    TransactionCommittedError,
)
from tests.integration.ops.commands import exists

DOUBT = "The change may have been made: look before you repeat it."
IDENTITY = "orders-3 producer 17 epoch 2 sequences 4711..4740 may be stored"


def not_delivered(outcome: Outcome) -> OncelogError:
    error = DeliveryTimeoutError(f"no acknowledgement; {IDENTITY}")
    error.outcome = outcome
    return error


def after_no_answer(error: OncelogError) -> OncelogError:
    """Return the error of a call, after a first attempt without an answer."""
    attempts = Attempts()
    attempts.failed(RequestTimeoutError("no answer"))
    return attempts.final(error)


class Failing:
    """A change that fails, and the error of a step after that."""

    def __init__(self, error: OncelogError, later: Exception, later_in: str = "plan") -> None:
        self.task = ChangeTask(
            "topic-delete", "Change", "Change", "topics", self._fields, self._plan
        )
        self._error = error
        self._later = later
        self._later_in = later_in
        self._ran = False

    async def made(self) -> Page:
        async with Admin(bootstrap_servers="127.0.0.1:1", request_timeout_ms=1) as admin:
            session = BrowserSession(admin, {}, "me", owns=False)
            form = {"topic": "orders", LOOK: "1", OFFER: session.offer()}
            form["seen"] = (await self._plan(session, form)).seen
            page = await changes.make(session, self.task, form)
        assert isinstance(page, Page)
        return page

    def _step(self, name: str) -> None:
        if self._ran and name == self._later_in:
            raise self._later

    async def _fields(self, session: BrowserSession, query: Query) -> Sequence[Field]:
        self._step("fields")
        return fixed(query, "topic")

    async def _plan(self, session: BrowserSession, query: Query) -> ChangePlan:
        self._step("plan")

        async def run() -> str:
            self._ran = True
            raise self._error

        return ChangePlan([f"{given(query, 'topic')} changes."], run, [], ["topic", "list"])


def problems(page: Page) -> list[str]:
    notes = [part for part in page.parts if isinstance(part, Notes) and part.level == "problem"]
    return [line for part in notes for line in part.lines]


@pytest.mark.parametrize("later_in", ["fields", "plan"])
@pytest.mark.parametrize(
    "later",
    [
        BrokerUnavailableError("gone"), NotAuthorizedError("no"), InvalidRequestError("no"),
        TimeoutError(),
    ],
)  # fmt: skip
async def test_the_doubt_stays_if_the_state_cannot_be_shown(
    later: Exception, later_in: str
) -> None:
    page = await Failing(not_delivered("unknown"), later, later_in).made()
    first, second = problems(page)
    assert first == f"no acknowledgement; {IDENTITY}. {DOUBT}"
    assert second and DOUBT not in second
    assert (page.status, page.extra["failed"]) == (503, True)
    (links,) = [part for part in page.parts if isinstance(part, Links)]
    assert links.links[0].text == "Did my record get in?"
    assert "producer+17+epoch+2" in links.links[0].href


@pytest.mark.parametrize(
    ("error", "status"),
    [(InvalidRequestError("no"), 503), (NotAuthorizedError("no"), 403)],
)
async def test_a_refusal_after_an_attempt_without_answer_is_in_doubt(
    error: OncelogError, status: int
) -> None:
    page = await Failing(after_no_answer(error), BrokerUnavailableError("gone")).made()
    assert (problems(page)[0].endswith(DOUBT), page.status) == (True, status)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (not_delivered("never_sent"), 400), (InvalidRequestError("no"), 400),
        (BrokerUnavailableError("gone"), 503), (TransactionCommittedError("done"), 409),
    ],
)  # fmt: skip
async def test_a_known_outcome_is_not_in_doubt(error: OncelogError, status: int) -> None:
    page = await Failing(error, BrokerUnavailableError("gone")).made()
    assert not any(DOUBT in line for line in problems(page))
    assert page.status == status


async def test_a_refusal_without_doubt_is_a_page_of_its_own() -> None:
    with pytest.raises(NotAuthorizedError):
        await Failing(NotAuthorizedError("no"), BrokerUnavailableError("gone")).made()


async def test_a_result_is_for_the_page_of_its_change() -> None:
    async with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        session = BrowserSession(admin, {}, "", owns=False)
        session.say("/topics/a", "Stored.")
        said = [session.take_said(address) for address in ("/", "/topics/a", "/topics/a")]
    assert said == ["", "Stored.", ""]


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_the_command_that_explains_a_change_exists(task: ChangeTask) -> None:
    exists(task.help)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("oncelog security --help", AssertionError),
        ("oncelog acl nothing", AssertionError),
        ("oncelog txn list --nothing", click.NoSuchOption),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        exists(line)
