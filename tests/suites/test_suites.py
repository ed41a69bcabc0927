"""Lists of the suites of others: held against their page, and judged both ways."""

from __future__ import annotations

import re

import pytest

from harness.node_process import ROOT
from tests.suites.__main__ import SUITES
from tests.suites.go_tests import PROGRAM, events
from tests.suites.outcome import Case, verdict

pytestmark = pytest.mark.unit
CANNOT = {"b": "no such call"}
PAGE = (ROOT / "docs" / "kafka-suites.md").read_text("utf-8")


def test_only_what_is_listed_may_fail() -> None:
    sound = [Case("a", True), Case("b", False), Case("c", False, skipped=True)]
    assert verdict(sound, CANNOT) == (
        ["1 passed, 1 failed as listed, 1 skipped themselves, 0 failed"], True
    )  # fmt: skip
    lines, passes = verdict([*sound, Case("d", False, text="broken")], CANNOT)
    assert not passes and lines[1:3] == ["FAILED d", "broken"]


def test_what_is_listed_must_fail() -> None:
    lines, passes = verdict([Case("a", True), Case("b", True)], CANNOT)
    assert not passes and lines[0] == "b passes: take it off the list (no such call)"


def test_a_suite_that_ran_nothing_does_not_pass() -> None:
    assert not verdict([], {})[1]
    assert not verdict([Case("a", False, skipped=True)], {})[1]


def test_a_panic_of_go_tests_is_a_failure() -> None:
    told = [
        '{"Action":"run","Test":"A"}',
        '{"Action":"run","Test":"B"}',
        '{"Action":"output","Test":"A","Output":"why\\n"}',
        '{"Action":"fail","Test":"A","Elapsed":0.1}',
        '{"Action":"output","Output":"panic: test timed out\\n"}',
        '{"Action":"fail","Elapsed":2}',
    ]
    program = (PROGRAM, False, "panic: test timed out\n")
    assert told_of(told) == [("A", False, "why\n"), program]
    assert told_of(told[4:]) == [program]
    del told[1]
    assert told_of(told) == [("A", False, "why\n")]


def told_of(lines: list[str]) -> list[tuple[str, bool, str]]:
    return [(case.name, case.passed, case.text) for case in events(lines)]


@pytest.mark.parametrize("name", SUITES)
def test_the_page_lists_what_cannot_pass(name: str) -> None:
    suite = SUITES[name]
    (section,) = re.findall(rf"(?ms)^## {re.escape(name)}$(.*?)(?=^## |\Z)", PAGE)
    assert suite.version in section
    rows = re.findall(r"(?m)^\| `(.+?)` \| (.+) \|$", section)
    listed = {test: reason for tests, reason in rows for test in tests.split("`, `")}
    assert listed == dict(suite.cannot)
