"""The conformance kit with real drivers: Python passes all of it, and faulty drivers fail."""

from __future__ import annotations

import asyncio
import shlex
import sys

import pytest

from conformance.cases import load
from conformance.command import JOBS, main
from conformance.drivers import small_client, wrong_driver
from conformance.runner import COMMAND_S, LONGEST_S, Outcome, Runner

SMALL = f"{sys.executable} -m conformance.drivers.small_driver"
WRONG = f"{sys.executable} -m conformance.drivers.wrong_driver"
# Seconds that a failing case waits: for an event that never comes, and for an answer.
SOON, ANSWERED = 3.0, 8.0

# Faults of the small client -> cases that must notice.
SMALL_FAULTS = {
    "renumbers-retries": ["answer-lost", "not-ready", "late-copy"],
    "new-lease-for-a-retry": ["answer-lost", "timeout-is-no-failure", "cut-within-an-answer"],
    "timeout-is-stored": ["timeout-and-not-stored", "time-for-unknown-is-not-a-failure"],
    "duplicate-is-failure": ["answer-lost", "stream-breaks-after-the-append", "no-verdict"],
    "one-id-for-all": ["throttled", "token-in-all-attempts"],
    "no-token": ["first-batch", "token-in-each-partition"],
    "stays-with-the-first-leader": ["goes-to-the-leader-named", "reader-follows-the-leader"],
    "repeats-what-it-does-not-understand": ["verdict-of-a-later-version"],
    "ignores-the-lifetime": ["next-lease-at-90-percent"],
    "no-pauses": ["pauses-between-retries"],
    "believes-the-first-node": ["one-node-says-the-topic-is-gone", "topic-known-a-moment-later"],
    "goes-on-after-a-conflict": ["sequence-conflict-stops", "out-of-order-at-the-head"],
    "another-hash": ["key-decides-the-partition"],
    "no-checksum": ["checksum-is-wrong"],
    "skips-damage": ["checksum-is-wrong"],
    "trusts-lengths": ["length-is-a-lie"],
    "gives-whole-batches": ["skips-within-a-batch"],
    "begins-anew-when-ahead": ["new-leader-is-behind-the-reader"],
    "default-message-limit": ["answer-above-the-usual-limit"],
}
# The same for the driver that falsifies the Python client's input or output.
WRONG_FAULTS = {
    "another-query-each-time": ["a-batch-again"],
    "loses-the-token": ["a-gap-and-its-token"],
    "takes-no-notice-of-gaps": ["a-gap-and-its-token"],
    "tasks-in-any-order": ["tasks-in-their-order"],
    "ends-nothing": ["losers-are-dropped"],
    "aborts-no-batch": ["an-aborted-batch"],
    "window-of-ten": ["five-in-flight"],
    "no-idempotence": ["first-batch", "each-producer-has-an-id"],
    "another-name-each-time": ["epoch-rises", "last-sequence-of-the-predecessor"],
    "loses-sequences": ["own-sequences", "gaps-within-a-batch", "name-with-own-sequences"],
    "loses-expected-offsets": ["expected-offset-is-another", "mismatch-after-a-doubt"],
    "loses-headers": ["reads-what-it-wrote"],
    "loses-timestamps": ["reads-what-it-wrote"],
    "never-compresses": ["writes-06-nine-records-zstd", "writes-06-nine-records-lz4"],
    "commits-one-further": ["commits-given-offsets", "groups-have-a-leader"],
    "loses-metadata-of-commits": ["commits-given-offsets"],
    "reads-from-leaders-only": ["replica-is-behind"],
    "begins-at-the-end": ["from-the-beginning", "reads-07-headers"],
    "does-not-check": ["checksum-is-wrong"],
    "aborts-by-committing": ["abort-shows-nothing"],
    "commits-by-aborting": ["commit-shows-all", "staged-answer-lost"],
    "stages-no-offsets": ["positions-come-with-the-records", "successor-ends-what-is-open"],
    "commits-beside-the-transaction": ["positions-go-with-an-abort", "staged-twice-is-staged-once"],
    "begins-nothing": ["abort-shows-nothing", "one-transaction-at-a-time"],
    "abandons-by-closing": ["abandoned-is-not-committed"],
    "speaks-in-the-clear": ["certificate", "token", "token-in-the-clear"],
    "reads-a-token-once": ["token-is-read-again", "token-over-in-a-stream"],
    "one-partition-topics": ["topic-from-birth-to-end"],
    "does-what-it-shall-only-plan": ["node-is-drained"],
    "removes-no-quota": ["quotas"],
    "gives-out-blanks": ["blanks-are-no-records", "batches-of-blanks"],
    "takes-tombstones-for-blanks": ["blanks-are-no-records"],
    "everything-is-committed": ["unknown-outcome", "resolve-never", "resolve-forgotten"],
    "sequences-begin-anew": ["last-sequence-of-the-predecessor", "name-with-own-sequences"],
    "forgets-outcomes": ["unknown-outcome", "fenced-in-doubt", "lease-is-over-in-doubt"],
    "acknowledges-what-failed": ["invalid-batch-alone", "fenced-by-a-successor"],
}


async def run(
    command: str,
    names: list[str],
    longest_s: float = LONGEST_S,
    jobs: int = JOBS,
    command_s: float = COMMAND_S,
) -> list[Outcome]:
    cases = [case for case in load() if case.name in names]
    assert len(cases) == len(set(names)), f"no such case among {names}"
    return await Runner(command, jobs, lambda _: None, longest_s, command_s).run(cases)


def test_the_python_client_passes(capsys: pytest.CaptureFixture[str]):
    assert main(["--tree", "--only", "python"]) == 0, capsys.readouterr().out


def test_each_fault_has_its_cases():
    assert set(SMALL_FAULTS) == small_client.FAULTS
    assert set(WRONG_FAULTS) == wrong_driver.FAULTS


async def test_the_small_client_passes_what_its_faults_fail():
    names = sorted({name for cases in SMALL_FAULTS.values() for name in cases})
    outcomes = await run(SMALL, names)
    assert {o.case.name: o.faults for o in outcomes if o.status != "passed"} == {}


@pytest.mark.parametrize(
    ("command", "faults"), [(SMALL, SMALL_FAULTS), (WRONG, WRONG_FAULTS)], ids=["small", "wrong"]
)
async def test_each_fault_is_noticed(command: str, faults: dict[str, list[str]]):
    """A few at a time: most of each is waiting for events that do not come."""
    some = asyncio.Semaphore(JOBS)

    async def unnoticed(fault: str) -> list[str]:
        async with some:
            outcomes = await run(f"{command} --fault {fault}", faults[fault], SOON, 1, ANSWERED)
        return [f"{fault}: {o.case.name}" for o in outcomes if o.status != "failed"]

    found = await asyncio.gather(*map(unnoticed, faults))
    assert [line for lines in found for line in lines] == []


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("pass", "has ended instead of answering hello"),
        ("print('hello', flush=True); input()", "is no JSON"),
        ('print(\'{"id": 7, "ok": {}}\', flush=True); input()', "answers another command"),
        ("print('{\"id\": 1}', flush=True); input()", "has ok or error"),
        ('print(\'{"id": 1, "ok": 5}\', flush=True); input()', "are objects"),
    ],
)
async def test_a_driver_that_does_not_keep_to_its_protocol(code: str, fault: str):
    (outcome,) = await run(shlex.join([sys.executable, "-c", code]), ["first-batch"])
    assert outcome.status == "failed"
    assert fault in outcome.faults[0]


async def test_what_a_driver_says_is_shown():
    code = "import sys; sys.exit('out of ideas')"
    (outcome,) = await run(shlex.join([sys.executable, "-c", code]), ["first-batch"])
    assert "stderr: out of ideas" in outcome.faults


async def test_a_driver_that_cannot_be_started(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        await run("/nowhere/driver", ["first-batch"])


def test_the_command(capsys: pytest.CaptureFixture[str]):
    assert main(["--client", "/nowhere/driver"]) == 2
    assert "/nowhere/driver cannot be started" in capsys.readouterr().out
    assert main(["--client", SMALL, "first-batch", "epoch-rises"]) == 0
    assert "1 passed, 0 failed, 1 skipped" in capsys.readouterr().out
    assert main(["--client", f"{SMALL} --fault no-token", "first-batch"]) == 1
    assert "failed       first-batch" in capsys.readouterr().out
