"""Checks of events told by a group's members: owners, their work, and their commits.

It knows the events of `harness.group_worker`, the ends of the partitions and the group's last
offsets, and nothing of how groups work. `at` and `begun` are of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Event = dict[str, Any]
# A process may take so long to report its work, and to notice that it was stopped.
SLACK_S = 1.0


@dataclass
class Commit:
    """A commit; `number`: of the ownership. A refused one may be stored all the same, if its first
    attempt was stored without an answer, before the ownership ended.
    """

    number: int
    offset: int
    begun: float
    at: float = 0.0
    stored: bool = False


@dataclass
class Ownership:
    """One process owns one partition for a time."""

    partition: int
    number: int
    pid: int
    at: float
    spans: list[tuple[int, int, float]] = field(default_factory=list)  # first, end, when


@dataclass
class Told:
    """All events, in the order of each process, by partition."""

    ownerships: list[Ownership] = field(default_factory=list)
    commits: dict[int, list[Commit]] = field(default_factory=dict)


def read(workers: Iterable[Iterable[Event]]) -> Told:
    told = Told()
    for events in workers:
        held: dict[int, Ownership] = {}
        asked: list[Commit] = []
        for event in events:
            _take(told, held, asked, event)
    return told


def _take(told: Told, held: dict[int, Ownership], asked: list[Commit], event: Event) -> None:
    match event["event"]:
        case "assigned":
            for partition, number in event["numbers"].items():
                known = held.get(partition)
                if known is None or known.number != number:
                    new = Ownership(partition, number, event["pid"], event["at"])
                    held[partition] = new
                    told.ownerships.append(new)
        case "lost" | "revoked":
            # A revoked one may be kept after all, and goes on under its number.
            if event["event"] == "lost":
                for partition in event["partitions"]:
                    held.pop(partition, None)
        case "records":
            for partition, (first, end) in event["spans"].items():
                if partition in held:
                    held[partition].spans.append((first, end, event["at"]))
        case "committing":
            for partition, offset in event["offsets"].items():
                if partition in held:
                    one = Commit(held[partition].number, offset, event["at"])
                    told.commits.setdefault(partition, []).append(one)
                    asked.append(one)
        case "committed":
            for one in asked:
                one.at = event["at"]
                one.stored = not event["error"]
            asked.clear()


def check(
    workers: Iterable[Iterable[Event]],
    ends: Mapping[int, int],
    committed: Mapping[int, int],
    harmed: Mapping[int, list[tuple[float, float]]],
) -> list[str]:
    """Finds breaches. `harmed`: process -> when it was stopped or could not be reached."""
    told = read(workers)
    wrong: list[str] = []
    for partition, end in ends.items():
        owned = sorted(
            (one for one in told.ownerships if one.partition == partition),
            key=lambda one: one.number,
        )
        commits = told.commits.get(partition, [])
        found = [
            *_one_owner(owned),
            *_owners_commit(owned, commits),
            *_never_back(commits),
            *_nothing_skipped(owned, commits, end),
            *_owner_of_the_moment(owned, harmed),
        ]
        if committed.get(partition, 0) != end:
            found.append(f"{committed.get(partition, 0)} is committed of {end}")
        wrong += [f"partition {partition}: {text}" for text in found]
    return wrong


def _one_owner(owned: list[Ownership]) -> list[str]:
    """Checks that a number belongs to one process."""
    pids: dict[int, set[int]] = {}
    for one in owned:
        pids.setdefault(one.number, set()).add(one.pid)
    return [
        f"ownership {number} is of the processes {sorted(some)}"
        for number, some in pids.items()
        if len(some) > 1
    ]


def _owners_commit(owned: list[Ownership], commits: list[Commit]) -> list[str]:
    """Checks that no stored commit began when a later ownership was known already."""
    return [
        f"{commit.offset} was committed under ownership {commit.number} after "
        f"{later.number} had begun"
        for commit in commits
        if commit.stored
        for later in owned
        if later.number > commit.number and later.at < commit.begun
    ]


def _never_back(commits: list[Commit]) -> list[str]:
    stored = sorted((one for one in commits if one.stored), key=lambda one: one.at)
    wrong, highest = [], 0
    for place, commit in enumerate(stored):
        before = max((one.offset for one in stored[:place] if one.at < commit.begun), default=0)
        highest = max(highest, before)
        if commit.offset < before:
            wrong.append(f"{commit.offset} was committed after {before}")
    return wrong


def _nothing_skipped(owned: list[Ownership], commits: list[Commit], end: int) -> list[str]:
    """Checks that each new owner begins at a committed offset, and leaves nothing out."""
    wrong: list[str] = []
    covered: list[tuple[int, int]] = []
    for one in owned:
        spans = one.spans
        covered += [(first, behind) for first, behind, _ in spans]
        wrong += [
            f"under ownership {one.number} came {after[0]} after {before[1]}"
            for before, after in pairwise(spans)
            if before[1] != after[0]
        ]
        if not spans:
            continue
        start = spans[0][0]
        known = [c for c in commits if c.number <= one.number]
        if start and start not in {commit.offset for commit in known}:
            wrong.append(f"ownership {one.number} began at {start}, which nobody committed")
        before = max((c.offset for c in known if c.stored and c.at < one.at), default=0)
        if start < before:
            wrong.append(f"ownership {one.number} began at {start}, {before} was committed")
    at = 0
    for first, behind in sorted(covered):
        if first > at:
            wrong.append(f"{at} to {first - 1} were worked on by nobody")
        at = max(at, behind)
    if at < end:
        wrong.append(f"{at} to {end - 1} were worked on by nobody")
    return wrong


def _owner_of_the_moment(
    owned: list[Ownership], harmed: Mapping[int, list[tuple[float, float]]]
) -> list[str]:
    """Checks that nobody works on another's records, except a process stopped or cut off."""
    wrong: list[str] = []
    for one in owned:
        next_at = min((later.at for later in owned if later.number > one.number), default=None)
        for first, _, when in one.spans:
            if next_at is None or when <= next_at + SLACK_S:
                continue
            if not any(a <= when <= b + SLACK_S for a, b in harmed.get(one.pid, [])):
                wrong.append(f"{first} was worked on under ownership {one.number}, too late")
    return wrong
