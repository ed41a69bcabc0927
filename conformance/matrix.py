"""Matrix of clients and cases: clients/MATRIX.md, from conformance/results. Pure, but for files.

conformance/run --tree --update --results/NAME.json--> render --> clients/MATRIX.md
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.cases import Case
from conformance.vectors import ROOT

CLIENTS = ROOT / "conformance" / "clients.toml"
RESULTS = ROOT / "conformance" / "results"
KNOWN = ROOT / "conformance" / "known_failing"
MATRIX = ROOT / "clients" / "MATRIX.md"
SIGNS = {"passed": "yes", "not offered": "-", "known failing": "fails", "failed": "FAILS"}

HEAD = """# What each client passes

Made by `conformance/run --tree --update` from the results in conformance/results; do not edit.
The cases and what they are about: [conformance/](../conformance). `yes`: passes. `-`: the client
does not offer it. `fails`: known, with a reason below.
"""


@dataclass(frozen=True, slots=True)
class TreeClient:
    """One client of this tree. `folder`: its place; empty: part of the tree's own code."""

    name: str
    title: str
    driver: str
    build: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    folder: str = ""

    @property
    def known_failing(self) -> Path | None:
        path = KNOWN / f"{self.name}.txt"
        return path if path.exists() else None

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.json"

    @property
    def here(self) -> bool:
        return not self.folder or (ROOT / self.folder).is_dir()


def tree_clients() -> list[TreeClient]:
    """Clients of clients.toml that are in the tree."""
    found = tomllib.loads(CLIENTS.read_text(encoding="utf-8"))
    clients = [
        TreeClient(
            name,
            entry["title"],
            entry["driver"],
            tuple(entry.get("build", ())),
            tuple(entry.get("needs", ())),
            entry.get("folder", ""),
        )
        for name, entry in found.items()
    ]
    return [client for client in clients if client.here]


def saved(clients: Sequence[TreeClient]) -> dict[str, dict[str, str]]:
    """Saved results: title -> case -> result, without clients that have none."""
    return {
        client.title: json.loads(client.results.read_text(encoding="utf-8"))
        for client in clients
        if client.results.exists()
    }


def render(
    cases: Sequence[Case],
    results: Mapping[str, Mapping[str, str]],
    reasons: Mapping[str, Mapping[str, str]],
) -> str:
    """Renders the page. `results` and `reasons`: title of a client -> case -> word."""
    titles = list(results)
    parts = [HEAD, "## By class\n", _row(["class", *titles]), _row(["---"] * (len(titles) + 1))]
    for group in dict.fromkeys(case.group for case in cases):
        mine = [case.name for case in cases if case.group == group]
        counts = [_count([results[title].get(name, "") for name in mine]) for title in titles]
        parts.append(_row([group, *counts]))
    known = [
        f"- {title}, `{name}`: {why}" for title in reasons for name, why in reasons[title].items()
    ]
    if known:
        parts += ["\n## Known as failing\n", *known]
    parts += ["\n## By case\n", _row(["case", "section", *titles])]
    parts.append(_row(["---"] * (len(titles) + 2)))
    for case in cases:
        signs = [SIGNS.get(results[title].get(case.name, ""), "not run") for title in titles]
        parts.append(_row([case.name, case.section, *signs]))
    return "\n".join(parts) + "\n"


def _count(words: Sequence[str]) -> str:
    offered = [word for word in words if word != "not offered"]
    passed = f"{offered.count('passed')} of {len(offered)}"
    left = len(words) - len(offered)
    return passed if not left else f"{passed}, {left} not offered"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
