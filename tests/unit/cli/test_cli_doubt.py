"""Commands whose outcome is not known do not tell that nothing was done."""

from __future__ import annotations

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
    call: list[str], outcome: Outcome | None, told: str
) -> None:
    @click.command(call[0])
    @click.option("--dry-run", is_flag=True)
    @with_admin
    def command(admin: Admin, as_json: bool, dry_run: bool) -> None:
        error = RequestTimeoutError("no answer")
        error.outcome = outcome
        raise error

    with pytest.raises(RequestTimeoutError) as raised:
        command.main([*call[1:], "--bootstrap", "127.0.0.1:1"], call[0], standalone_mode=False)
    assert raised.value.message == told


def test_an_abort_of_a_committed_transaction_was_not_made() -> None:
    @click.command("abort")
    @with_admin
    def command(admin: Admin, as_json: bool) -> None:
        raise TransactionCommittedError("it is committed")

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
