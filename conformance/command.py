"""Command line of the kit: runs it for any client or for the clients of the tree."""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from conformance.cases import Case, load
from conformance.driver import DriverError
from conformance.matrix import MATRIX, TreeClient, render, saved, tree_clients
from conformance.runner import Outcome, Runner
from conformance.vectors import ROOT

JOBS = 2 * (os.cpu_count() or 1)
PASSED, FAILED, UNABLE = 0, 1, 2  # exit codes


def known_failing(path: Path | None) -> dict[str, str]:
    """Reads case -> reason, a line each: `NAME # WHY`. Raises ValueError without a reason."""
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
    """Cases whose name or group matches a pattern; all without patterns."""
    return [
        case
        for case in cases
        if not patterns
        or any(fnmatch.fnmatch(word, p) for p in patterns for word in (case.name, case.group))
    ]


def verdicts(outcomes: Sequence[Outcome], known: dict[str, str]) -> dict[str, str]:
    """Final result of each case: known failures are allowed, and a known one that passes fails."""
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
    parser.add_argument("--tree", action="store_true", help="all clients of clients.toml")
    parser.add_argument("--only", action="append", default=[], help="of --tree, this one")
    parser.add_argument(
        "--update", action="store_true", help="with --tree: write clients/MATRIX.md"
    )
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
        return PASSED
    if not cases:
        parser.error("no such case")
    if given.tree:
        if given.cases:
            parser.error("--tree runs all cases")
        return _tree(given, cases)
    if not given.client:
        parser.error("--client or --tree is missing")
    words, status = _run(given, cases, given.client, known_failing(given.known_failing))
    if given.save is not None and status != UNABLE:
        _write(given.save, words)
    return status


def _run(
    given: argparse.Namespace, cases: list[Case], client: str, known: dict[str, str]
) -> tuple[dict[str, str], int]:
    """Runs the cases; returns case -> result, and the exit code."""
    began = time.monotonic()

    def report(outcome: Outcome) -> None:
        failed = outcome.status == "failed" and outcome.case.name not in known
        if given.verbose or failed:
            print(f"{outcome.status:12} {outcome.case.name}  {outcome.seconds:.1f} s", flush=True)
        for fault in outcome.faults if failed else ():
            print(f"             {fault}", flush=True)

    try:
        outcomes = asyncio.run(Runner(client, given.jobs, report).run(cases))
    except ExceptionGroup as group:
        if any(not isinstance(error, DriverError) for error in group.exceptions):
            raise
        print(f"conformance: {group.exceptions[0]}")
        return {}, UNABLE
    words = verdicts(outcomes, known)
    for name in sorted(known.keys() & {name for name, word in words.items() if word == "failed"}):
        print(f"{name} is known as failing, and passes: take it off the list")
    tally = [list(words.values()).count(word) for word in ("passed", "failed")]
    print(f"conformance: {time.monotonic() - began:.0f} s, {given.jobs} drivers at a time")
    print(f"{tally[0]} passed, {tally[1]} failed, {len(words) - sum(tally)} skipped", flush=True)
    return words, FAILED if tally[1] else PASSED


# --- the clients of the tree -------------------------------------------------------------


def _tree(given: argparse.Namespace, cases: list[Case]) -> int:
    """Runs each client of the tree; compares the results with the saved ones, or saves them."""
    status = PASSED
    clients = tree_clients()
    for client in clients:
        if given.only and client.name not in given.only:
            continue
        print(f"\n===== conformance of {client.title}", flush=True)
        status = max(status, _one_of_tree(given, cases, client))
    if given.update:
        MATRIX.parent.mkdir(exist_ok=True)
        MATRIX.write_text(page(cases, clients), encoding="utf-8")
    return status


def _one_of_tree(given: argparse.Namespace, cases: list[Case], client: TreeClient) -> int:
    missing = [command for command in client.needs if shutil.which(command) is None]
    if missing:
        print(f"conformance: {client.title} IS NOT RUN HERE: {', '.join(missing)} is missing")
        return UNABLE if given.only else PASSED
    if client.build and subprocess.run(client.build, cwd=ROOT, check=False).returncode:
        print(f"conformance: {client.title} cannot be built")
        return FAILED
    driver = client.driver.replace("{python}", sys.executable)
    words, status = _run(given, cases, driver, known_failing(client.known_failing))
    if status != PASSED:
        return status
    if given.update:
        _write(client.results, words)
    elif not client.results.exists() or json.loads(client.results.read_text()) != words:
        print(f"conformance: {client.results.name} says otherwise: conformance/run --tree --update")
        return FAILED
    return PASSED


def page(cases: list[Case], clients: list[TreeClient]) -> str:
    """Renders clients/MATRIX.md from the saved results."""
    reasons = {client.title: known_failing(client.known_failing) for client in clients}
    return render(cases, saved(clients), {title: why for title, why in reasons.items() if why})


def _write(path: Path, words: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(words, indent=1) + "\n", encoding="utf-8")
