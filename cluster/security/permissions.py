"""Permission rules, and their only evaluation. Pure.

    Need (resource, operation) --Authorizer.allows--> rules of the metadata group, superusers

A rule allows or denies a principal some operations on a resource: one name, all names with a
prefix, or "*" for all of a kind. Everything else is forbidden, and a rule that denies overrides
all that allow. A principal that may do anything with a resource may also describe it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

KINDS = ("topic", "group", "producer", "sink", "cluster")
OPERATIONS = (
    "read", "write", "create", "alter", "delete", "describe", "fence", "abort",
)  # fmt: skip
ALL = "*"  # as a principal: any known one; as a name: all; as an operation: each
MAX_RULES = 10_000
MAX_CHARS = 255
_MAX_REMEMBERED = 100_000  # answers


class Need(NamedTuple):
    """A request's need. A name "*" is all of the kind, which only a rule for all gives."""

    operation: str
    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind}" + (f" {self.name!r}" if self.name else "")


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """deny: it forbids. prefix: `name` is a prefix of names."""

    principal: str
    kind: str
    name: str
    operations: tuple[str, ...]
    prefix: bool = False
    deny: bool = False

    def fits(self, need: Need) -> bool:
        """Return whether it covers this resource."""
        if need.kind != self.kind:
            return False
        if self.prefix:
            return need.name != ALL and need.name.startswith(self.name)
        return self.name in (ALL, need.name)

    def gives(self, operation: str) -> bool:
        """Return whether it allows the operation, if it allows."""
        return operation in self.operations or ALL in self.operations or operation == "describe"

    def forbids(self, operation: str) -> bool:
        """Return whether it denies the operation, if it denies."""
        return operation in self.operations or ALL in self.operations

    def __str__(self) -> str:
        verb = "deny" if self.deny else "allow"
        how = "prefix " if self.prefix else ""
        return f"{verb} {self.principal} {','.join(self.operations)} {self.kind} {how}{self.name}"


def fault(rule: Rule) -> str:
    """Return the fault of a rule, beginning with the field. Empty: none."""
    if not 1 <= len(rule.principal) <= MAX_CHARS or not rule.principal.isprintable():
        return f"principal: must have 1..{MAX_CHARS} printable characters"
    if rule.kind not in KINDS:
        return f"kind: {rule.kind!r} must be one of {', '.join(KINDS)}"
    if rule.kind == "cluster" and (rule.name or rule.prefix):
        return "name: the cluster has none"
    if rule.kind != "cluster" and not 1 <= len(rule.name) <= MAX_CHARS:
        return f"name: must have 1..{MAX_CHARS} characters"
    if not rule.name.isprintable():
        return "name: must not have control characters"
    if not rule.operations:
        return "operations: none is given"
    for operation in rule.operations:
        if operation != ALL and operation not in OPERATIONS:
            return f"operations: {operation!r} must be one of {', '.join(OPERATIONS)} or *"
    return ""


def tidy(rule: Rule) -> Rule:
    """Return the form in which equal rules are equal."""
    operations = (ALL,) if ALL in rule.operations else tuple(sorted(set(rule.operations)))
    return Rule(rule.principal, rule.kind, rule.name, operations, rule.prefix, rule.deny)


class Authorizer:
    """The evaluation that all code paths share.

    rules: those in force, the same object until they change.
    superusers: may do everything under any rules, so that no operator locks himself out.
    """

    def __init__(self, rules: Callable[[], Sequence[Rule]], superusers: Iterable[str] = ()) -> None:
        self._rules = rules
        self._superusers = frozenset(superusers)
        self._known: Sequence[Rule] = ()
        self._of: dict[str, list[Rule]] = {}
        self._answers: dict[tuple[str, Need], bool] = {}

    def missing(self, principal: str, needs: Iterable[Need]) -> Need | None:
        """Return the first need that is not allowed; None: all are."""
        for need in needs:
            if not self.allows(principal, need):
                return need
        return None

    def allows(self, principal: str, need: Need) -> bool:
        assert need.operation in OPERATIONS and need.kind in KINDS, need
        rules = self._rules()
        if rules is not self._known:
            self._take_over(rules)
        key = principal, need
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _MAX_REMEMBERED:
                self._answers.clear()
            answer = self._answers[key] = self._evaluate(principal, need)
        return answer

    def _take_over(self, rules: Sequence[Rule]) -> None:
        self._known = rules
        self._of = {}
        self._answers = {}
        for rule in rules:
            self._of.setdefault(rule.principal, []).append(rule)

    def _evaluate(self, principal: str, need: Need) -> bool:
        if principal in self._superusers:
            return True
        allowed = False
        for rule in (*self._of.get(principal, ()), *self._of.get(ALL, ())):
            if rule.deny and _touches(rule, need) and rule.forbids(need.operation):
                return False
            allowed |= not rule.deny and rule.fits(need) and rule.gives(need.operation)
        return allowed


def _touches(rule: Rule, need: Need) -> bool:
    """Return whether a rule matches. One that denies a single name also denies a need for all."""
    return rule.fits(need) or (need.kind == rule.kind and need.name == ALL)
