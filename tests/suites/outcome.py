"""Outcome of a suite of others: which of its tests passed, and which may fail, each for a reason.

A suite passes if no test fails but those on its list, and each test on the list does fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LAST_LINES = 40  # of a failed test's output


@dataclass(frozen=True, slots=True)
class Case:
    """One test's outcome. text: why it failed or skipped itself."""

    name: str
    passed: bool
    skipped: bool = False
    text: str = ""


def verdict(cases: Sequence[Case], cannot: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return the lines to print, and True if the suite passes."""
    lines = []
    ran = [case for case in cases if not case.skipped]
    failed = [case for case in ran if not case.passed and case.name not in cannot]
    stale = [case.name for case in ran if case.passed and case.name in cannot]
    for case in failed:
        tail = case.text.splitlines()[-LAST_LINES:]
        lines += ["", f"FAILED {case.name}", *tail]
    lines += [f"{name} passes: take it off the list ({cannot[name]})" for name in stale]
    passed = sum(case.passed for case in ran)
    known = len(ran) - passed - len(failed)
    skipped = len(cases) - len(ran)
    lines.append(
        f"{passed} passed, {known} failed as listed, {skipped} skipped themselves, "
        f"{len(failed)} failed"
    )
    # A suite that ran nothing proves nothing.
    return lines, bool(passed or known) and not failed and not stale
