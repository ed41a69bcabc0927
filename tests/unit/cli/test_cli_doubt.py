"""Commands whose outcome is not known do not tell that nothing was done."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from oncelog import Admin
from oncelog.cli.options import with_admin
from oncelog.cli.records import _Report
from oncelog.errors import (
    DeliveryTimeoutError,
    OncelogError,
    Outcome,
    RequestTimeoutError,
    TransactionCommittedError,
)
from oncelog.types import RecordMetadata

DOUBT = "no answer. The change may have been made: look before you repeat it."


def without_answer(outcome: Outcome | None) -> Callable[..., None]:
    def call(self: Admin, *args: object, **kwargs: object) -> None:
        error = RequestTimeoutError("no answer")
        error.outcome = outcome
        raise error

    return call


@pytest.mark.parametrize(
    ("call", "outcome", "told"),
    [
        (["drain"], "unknown", DOUBT),
        (["drain"], None, "no answer"),
        (["drain", "--dry-run"], "unknown", "no answer"),
        (["list"], "unknown", "no answer"),
    ],
)
def test_a_change_without_an_answer_may_have_been_made(
    call: list[str], outcome: Outcome | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admin, "drain_node", without_answer(outcome))

    @click.command(call[0])
    @click.option("--dry-run", is_flag=True)
    @with_admin
    def command(admin: Admin, as_json: bool, dry_run: bool) -> None:
        admin.drain_node(2, dry_run=dry_run)

    with pytest.raises(RequestTimeoutError) as raised:
        command.main([*call[1:], "--bootstrap", "127.0.0.1:1"], call[0], standalone_mode=False)
    assert raised.value.message == told


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_read_without_an_answer_leaves_no_doubt_before_the_change(
    dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command looks before it changes something, and some look after it."""
    monkeypatch.setattr(Admin, "drain_node", lambda self, node_id, *, dry_run=False: ())
    monkeypatch.setattr(Admin, "list_nodes", without_answer("unknown"))

    @click.command("drain")
    @with_admin
    def command(admin: Admin, as_json: bool) -> None:
        admin.drain_node(2, dry_run=dry_run)
        admin.list_nodes()

    with pytest.raises(RequestTimeoutError) as raised:
        command.main(["--bootstrap", "127.0.0.1:1"], "drain", standalone_mode=False)
    assert raised.value.message == ("no answer" if dry_run else DOUBT)


def test_an_abort_of_a_committed_transaction_was_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def committed(self: Admin, transaction_id: int) -> None:
        raise TransactionCommittedError("it is committed")

    monkeypatch.setattr(Admin, "abort_transaction", committed)

    @click.command("abort")
    @with_admin
    def command(admin: Admin, as_json: bool) -> None:
        admin.abort_transaction(7)

    with pytest.raises(TransactionCommittedError) as raised:
        command.main(["--bootstrap", "127.0.0.1:1"], "abort", standalone_mode=False)
    assert raised.value.message == "it is committed"


def failed(outcome: Outcome) -> OncelogError:
    error = DeliveryTimeoutError("late")
    error.outcome = outcome
    return error


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        (["unknown"], "1 of 2 records may be stored or not: DELIVERY_TIMEOUT: late"),
        (["never_sent"], "1 of 2 records were not stored: DELIVERY_TIMEOUT: late"),
        (
            ["not_stored", "unknown", "unknown"],
            "1 of 4 records were not stored and 2 of 4 records may be stored or not: "
            "DELIVERY_TIMEOUT: late",
        ),
    ],
)
def test_produce_counts_records_that_may_be_stored(outcomes: list[Outcome], told: str) -> None:
    report = _Report()
    report.delivered(RecordMetadata("t", 0, 0, 0, 0, 0, 0, False), None)
    for outcome in outcomes:
        report.delivered(None, failed(outcome))
    assert report.why() == told
