"""The page of a chaos run, from results that were made up."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos import report
from tests.chaos.checker import Check
from tests.chaos.history import History
from tests.chaos.run import Event, Result, recoveries, silences
from tests.chaos.workload import Load, Timeline

EVENTS = [
    Event("kill-leader", 2.0, 4.0, "killed node 1"),
    Event("pause", 5.0, 5.5, "paused <node 2>"),
    Event("power-cut", 8.0, 10.0, "cut the power of node 3"),
]


def timeline() -> Timeline:
    """Builds a timeline: ten acknowledgements a second, except 2.0 to 4.5 s and from 8.0 s on."""
    made = Timeline()
    for tenth in (*range(20), *range(45, 80)):
        made.acknowledged[tenth] = 10
        made.served.setdefault(0, set()).add(tenth)
    made.served[1] = set(range(101))
    return made


def result_of(checks: list[Check]) -> Result:
    times = timeline()
    return Result(
        seed=1,
        faults=["kill-leader", "pause"],
        seconds=12.0,
        load=Load("topic", 2),
        history=History(),
        timeline=times,
        events=EVENTS,
        leaders=[(0.0, 0, 1), (3.0, 0, 0), (4.0, 0, 2)],
        checks=checks,
        recovery=recoveries(EVENTS, times),
        left_out={"disk-full": "needs root"},
    )


def page(folder: Path, checks: list[Check]) -> str:
    written, _ = report.write(result_of(checks), folder)
    return written.read_text()


def shown(checks: list[Check]) -> list[str]:
    """Shows the checks; returns the terminal's lines after the first."""
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        report.show(result_of(checks), console)
    return capture.get().splitlines()[1:]


def test_the_terminal_says_what_holds() -> None:
    claims = [Check("lost", "all is there"), Check("duplicate", "nothing is there twice")]
    assert shown(claims) == [
        "  holds    all is there",
        "  holds    nothing is there twice",
        "all checks hold: 2 of 2",
    ]
    lost, twice = claims
    lost.note("node 1: [0] & more")
    twice.unknown = "not read: partition 0 of node 2"
    assert shown(claims) == [
        "  BROKEN   all is there; violations: 1",
        "           node 1: [0] & more",
        "  unknown  nothing is there twice; not read: partition 0 of node 2",
        "NOT all checks hold: lost",
    ]


def test_a_silence_is_of_the_fault_that_it_began_with() -> None:
    assert silences(EVENTS, timeline()) == [2.6, 0.1, 2.1]
    assert recoveries(EVENTS, timeline()) == [2.6, 2.1]


@pytest.mark.parametrize(
    ("broken", "open_", "verdict"),
    [
        (False, False, "all checks hold: 2 of 2"),
        (True, False, "NOT all checks hold: lost"),
        (True, True, "NOT all checks hold: lost"),
        (False, True, "1 of 2 checks hold, the others could not be made"),
    ],
)
def test_the_verdict_comes_first(tmp_path: Path, broken: bool, open_: bool, verdict: str) -> None:
    lost, twice = Check("lost", "nothing is lost"), Check("duplicate", "nothing is there twice")
    if broken:
        lost.note("node 1: (0, 7) & more")
    if open_:
        twice.unknown = "not read: node 2"
    text = page(tmp_path, [lost, twice])
    before, _, after = text.partition("<table>")
    assert verdict in before
    assert ("node 1: (0, 7) &amp; more" in after) is broken
    assert ("unknown: not read: node 2" in after) is open_
    assert "paused &lt;node 2&gt;" in text
    assert "Left out: disk-full: needs root." in text
