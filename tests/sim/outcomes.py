"""Answers to proposers of metadata commands, against the log as it is in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import NamedTuple

from cluster.consensus.proposals import Applied, Outcome
from tests.sim.checker import Entry
from tests.sim.model import Violation


class Call(NamedTuple):
    """A command that a node proposes."""

    node: int
    incarnation: int
    entry: bytes


class Outcomes:
    """An applied command stands where it was told; one told as lost stands nowhere.

    All are answered that a node proposed which has not crashed since.
    """

    def __init__(self, log: Mapping[int, Entry]) -> None:
        self._log = log
        self._proposed: Counter[bytes] = Counter()
        self._lost: Counter[bytes] = Counter()
        self._waiting: Counter[Call] = Counter()

    def proposes(self, call: Call) -> None:
        self._proposed[call.entry] += 1
        self._waiting[call] += 1

    def told(self, call: Call, outcome: Outcome) -> None:
        self._waiting[call] -= 1
        if isinstance(outcome, Applied):
            found = self._log.get(outcome.index)
            if found is None or found.data != call.entry:
                raise Violation(f"metadata {outcome.index}: another command was told as applied")
        elif outcome.lost:
            self._lost[call.entry] += 1

    def check_end(self, living: Container[tuple[int, int]]) -> None:
        """living: nodes with their incarnations."""
        committed = Counter(one.data for one in self._log.values())
        for entry, lost in self._lost.items():
            if committed[entry] + lost > self._proposed[entry]:
                raise Violation(f"a metadata command was told as lost and is committed: {entry!r}")
        for call, waiting in self._waiting.items():
            if waiting and (call.node, call.incarnation) in living:
                raise Violation(f"node {call.node} never said what became of {call.entry!r}")
