"""Cases, read from TOML and checked: a misspelt word must not make a case test nothing.

    cases/*.toml --load--> Case --> runner

Cases hold texts; the driver gets them as hexadecimal. "<null>" stands for null, "<any>" for any
value. README.md explains the words.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.broker.lies import CALLS, Lie
from conformance.broker.server import ACTIONS
from conformance.judge import RULES
from conformance.vectors import ROOT

CASES = Path(__file__).resolve().parent / "cases"
PROTOCOL = ROOT / "docs" / "protocol.md"
FEATURES = (
    "zstd",
    "lz4",
    "no_idempotence",
    "send_batch",
    "names",
    "resume_from",
    "own_sequences",
    "expected_offset",
    "resolve",
    "read",
    "any_replica",
    "rack",
    "offsets",
    "admin",
    "transactions",
    "members",
    "sinks",
    "tls",
    "tokens",
    "cancel",
    "flush_at_exit",
    "warnings",
)
SECURITY = ("", "tls", "tokens", "another_host")
VERBS = (
    "defaults",
    "open_producer",
    "send",
    "send_batch",
    "await",
    "flush",
    "last_sequence",
    "resolve",
    "begin",
    "send_offsets",
    "commit_transaction",
    "abort_transaction",
    "open_consumer",
    "subscribe",
    "unsubscribe",
    "subscription",
    "assign",
    "assignment",
    "pause",
    "resume",
    "paused",
    "poll",
    "seek",
    "position",
    "lag",
    "list_offset",
    "commit",
    "committed",
    "told",
    "abandon",
    "open_admin",
    "create_topic",
    "delete_topic",
    "describe_topic",
    "describe_cluster",
    "list_nodes",
    "change_node",
    "balance",
    "resize_topic",
    "reassign_partition",
    "alter_permissions",
    "list_permissions",
    "check_permission",
    "alter_quotas",
    "list_quotas",
    "group_lag",
    "delete_group",
    "list_sinks",
    "describe_sink",
    "reset_sink",
    "list_transactions",
    "describe_transaction",
    "end_transaction",
    "fence_producer",
    "open_sink",
    "stage_batch",
    "end_batch",
    "abort_batch",
    "warnings",
    "close",
    "exit",
)
KINDS = ("verb", "cluster", "until", "seen", "vector", "pause_ms", "freeze_ms")
SEEN = (*CALLS, "result", "arrived", "hello", "owned", "leave")


class CaseError(Exception):
    """Invalid case: the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case. `group`: its file, which is its class."""

    name: str
    group: str
    section: str  # heading of docs/protocol.md
    about: str
    needs: tuple[str, ...] = ()
    nodes: int = 1
    racks: tuple[str, ...] = ()  # of the nodes, in their order
    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"t": {}})
    lifetime_ms: int = 24 * 3600 * 1000
    # For clients: longer than any honest answer takes; short if an answer never comes.
    request_timeout_ms: int = 5000
    security: str = ""  # for nodes: see broker/secured.py
    # Variables of the client's process; the case then gets a process of its own.
    environment: Mapping[str, str] = field(default_factory=dict)
    lies: tuple[Mapping[str, Any], ...] = ()
    steps: tuple[Mapping[str, Any], ...] = ()
    sees: tuple[Mapping[str, Any], ...] = ()
    log: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Rules of the judge that this case's lies break.
    allow: tuple[str, ...] = ()

    def new_lies(self) -> list[Lie]:
        """Copies the lies, none of them told yet."""
        return [Lie(**lie) for lie in self.lies]


def load(folder: Path = CASES) -> list[Case]:
    """Loads all cases, by file and in the files' order. Raises CaseError."""
    cases: list[Case] = []
    sections = headings()
    for path in sorted(folder.glob("*.toml")):
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        unknown = set(found) - {"case"}
        if unknown:
            raise CaseError(f"{path.name}: {sorted(unknown)} instead of case")
        cases += [_case(path.stem, entry, sections) for entry in found["case"]]
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CaseError(f"these names stand twice: {', '.join(twice)}")
    return cases


def headings() -> set[str]:
    """Headings of docs/protocol.md."""
    lines = PROTOCOL.read_text(encoding="utf-8").splitlines()
    return {line.lstrip("#").strip() for line in lines if line.startswith("#")}


def _case(group: str, entry: Mapping[str, Any], sections: set[str]) -> Case:
    name = entry.get("name", "a case without a name")
    try:
        case = Case(group=group, **_nulls(entry))
        case.new_lies()
    except TypeError as error:
        raise CaseError(f"{group}, {name}: {error}") from error
    faults = [
        *_unknown("section", [case.section], sections),
        *_unknown("needs", case.needs, FEATURES),
        *_unknown("allow", case.allow, RULES),
        *_unknown("security", [case.security], SECURITY),
        *_unknown("at", [lie["at"] for lie in case.lies], CALLS),
        *_unknown("call", [seen["call"] for seen in case.sees], SEEN),
    ]
    for step in [*case.steps, *(step for lie in case.lies for step in lie.get("then", ()))]:
        faults += _step_faults(step)
    if not case.steps or not case.about:
        faults.append("it has no steps, or does not say what it is about")
    if faults:
        raise CaseError(f"{group}, {name}: {'; '.join(faults)}")
    return case


def _step_faults(step: Mapping[str, Any]) -> list[str]:
    kinds = [kind for kind in KINDS if kind in step]
    if len(kinds) != 1:
        return [f"a step is one of {', '.join(KINDS)}: {dict(step)}"]
    allowed = {"verb": VERBS, "cluster": ACTIONS, "until": SEEN, "seen": SEEN}.get(kinds[0])
    return [] if allowed is None else _unknown(kinds[0], [step[kinds[0]]], allowed)


def _unknown(what: str, words: Any, known: Any) -> list[str]:
    return [f"{what}: {word!r} is not known" for word in words if word not in known]


def _nulls(value: Any) -> Any:
    """Replaces the text <null> by None: TOML has no null."""
    match value:
        case "<null>":
            return None
        case dict():
            return {name: _nulls(inner) for name, inner in value.items()}
        case list():
            return [_nulls(inner) for inner in value]
    return value


def names_of_lies() -> list[str]:
    """Fields of a lie."""
    return [one.name for one in dataclasses.fields(Lie) if one.name != "met"]
