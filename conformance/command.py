"""Runs the kit from the command line, and says what came of it."""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from conformance.cases import Case, load
from conformance.driver import DriverError
from conformance.runner import Outcome, Runner

JOBS = 2 * (os.cpu_count() or 1)


def known_failing(path: Path | None) -> dict[str, str]:
    """Case -> why: a line each, `NAME # WHY`. Raises ValueError for a line without a reason."""
    known: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path is not None else ():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, why = line.partition("#")
        if not why.strip():
            raise ValueError(f"{path}: {line!r} has no reason behind a #")
        known[name.strip()] = why.strip()
    return known


def chosen(cases: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    """Those whose name or group matches one of the patterns; all without patterns."""
    return [
        case
        for case in cases
        if not patterns
        or any(fnmatch.fnmatch(word, p) for p in patterns for word in (case.name, case.group))
    ]


def verdicts(outcomes: Sequence[Outcome], known: dict[str, str]) -> dict[str, str]:
    """Case -> what counts: a failure that is known is one, and a known one that passes fails."""
    words: dict[str, str] = {}
    for outcome in outcomes:
        name, status = outcome.case.name, str(outcome.status)
        if name in known:
            status = {"failed": "known failing", "passed": "failed"}.get(status, status)
        words[name] = status
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="conformance/run", description="Runs the conformance cases with a client's driver."
    )
    parser.add_argument("--client", help="how the driver is started")
    parser.add_argument("--jobs", type=int, default=JOBS, help="drivers at a time")
    parser.add_argument("--known-failing", type=Path, help="a file of cases that may fail")
    parser.add_argument("--save", type=Path, help="write the results as JSON to this file")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("-v", "--verbose", action="store_true", help="also what passes")
    parser.add_argument("cases", nargs="*", help="names or classes of cases, with * and ?")
    given = parser.parse_args(arguments)
    cases = chosen(load(), given.cases)
    if given.list:
        for case in cases:
            print(f"{case.group:12} {case.name:40} {case.section}")
        return 0
    if not given.client or not cases:
        parser.error("--client is missing" if cases else "no such case")
    return _run(given, cases)


def _run(given: argparse.Namespace, cases: list[Case]) -> int:
    known = known_failing(given.known_failing)
    began = time.monotonic()

    def report(outcome: Outcome) -> None:
        if given.verbose or outcome.status == "failed":
            print(f"{outcome.status:12} {outcome.case.name}  {outcome.seconds:.1f} s", flush=True)
        for fault in outcome.faults if outcome.status == "failed" else ():
            print(f"             {fault}", flush=True)

    try:
        outcomes = asyncio.run(Runner(given.client, given.jobs, report).run(cases))
    except ExceptionGroup as group:
        if any(not isinstance(error, DriverError) for error in group.exceptions):
            raise
        print(f"conformance: {group.exceptions[0]}")
        return 2
    words = verdicts(outcomes, known)
    for name in sorted(known.keys() & {name for name, word in words.items() if word == "failed"}):
        print(f"{name} is known as failing, and passes: take it off the list")
    if given.save is not None:
        given.save.write_text(json.dumps(words, indent=1) + "\n", encoding="utf-8")
    tally = [list(words.values()).count(word) for word in ("passed", "failed")]
    skipped = len(words) - sum(tally)
    print(f"conformance: {time.monotonic() - began:.0f} s, {given.jobs} drivers at a time")
    print(f"{tally[0]} passed, {tally[1]} failed, {skipped} skipped")
    return 1 if tally[1] else 0
