"""Weaknesses planted in the machines of classic groups. All must be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from cluster.groups import classic
from cluster.groups.classic import ClassicCoordinator, ClassicJoin, ClassicReady
from cluster.groups.classic_table import (
    UNKNOWN_MEMBER,
    ClassicFacts,
    ClassicTable,
    member_refusal,
)
from cluster.v1 import offsets_pb2 as pb

Plant = Callable[[], Any]


def anybody_commits() -> Any:
    """A commit is not checked when it is applied."""
    return patch.object(ClassicTable, "refusal", lambda *args, **kinds: "")


def member_id_is_enough() -> Any:
    """A commit is checked by the member's id, not by the generation."""

    def refusal(self: ClassicFacts, caller: pb.ClassicCaller) -> str:
        return member_refusal(caller.member, caller.instance, self._members, self._instances)

    return patch.object(ClassicFacts, "refusal", refusal)


def answers_before_the_log() -> Any:
    """A rebalance is answered when its entry is proposed, not when it is applied."""
    advance, stored = ClassicCoordinator.advance, ClassicCoordinator.stored

    def early(self: ClassicCoordinator, now: float) -> ClassicReady:
        ready = advance(self, now)
        if ready.proposal is not None:
            stored(self, now, True)
            ready.answers.extend(advance(self, now).answers)
        return ready

    return patch.multiple(ClassicCoordinator, advance=early, stored=lambda *args: None)


def new_leader_forgets() -> Any:
    """A new leader does not read the generation in the log."""
    return patch.object(ClassicCoordinator, "_continue", lambda *args: None)


def replaced_in_memory() -> Any:
    """A new process gets an instance id without an entry."""
    replace = ClassicCoordinator._replace

    def at_once(
        self: ClassicCoordinator, now: float, ticket: object, old: str, request: ClassicJoin
    ) -> None:
        replace(self, now, ticket, old, request)
        if self._replaced:
            self._must_store = False
            self._answer_replaced(now)

    return patch.object(ClassicCoordinator, "_replace", at_once)


def claims_are_not_written() -> Any:
    """An instance's new process waits for its rebalance; the log keeps the older one so long."""
    return patch.object(ClassicCoordinator, "_claim", lambda self: None)


def new_leader_misses_a_member() -> Any:
    """A new leader does not know one of the members in the log."""
    known = ClassicCoordinator._continue

    def all_but_one(self: ClassicCoordinator, record: pb.ClassicGroup, now: float) -> None:
        known(self, record, now)
        if len(self._members) > 1:
            self._delete(next(one for one in self._members if one != self.leader))

    return patch.object(ClassicCoordinator, "_continue", all_but_one)


def older_assignments_count() -> Any:
    """The assignment of an older generation's leader counts for a newer one."""
    sync = ClassicCoordinator.sync

    def any_generation(
        self: ClassicCoordinator, now: float, ticket: object, caller: pb.ClassicCaller, *rest: Any
    ) -> None:
        caller = pb.ClassicCaller(
            member=caller.member, instance=caller.instance, generation=self.generation
        )
        sync(self, now, ticket, caller, *rest)

    return patch.object(ClassicCoordinator, "sync", any_generation)


def instance_is_not_fenced() -> Any:
    """A process whose instance id was taken over is unknown, and joins again."""

    def refusal(member: str, instance: str, *known: Any) -> str:
        return member_refusal(member, instance, *known) and UNKNOWN_MEMBER

    def of_caller(caller: pb.ClassicCaller, members: Any, instances: Any, generation: int) -> str:
        refused = refusal(caller.member, caller.instance, members, instances)
        return refused or ("" if caller.generation == generation else "ILLEGAL_GENERATION")

    return patch.multiple(classic, member_refusal=refusal, caller_refusal=of_caller)


def static_members_are_dropped() -> Any:
    """A rebalance drops static members that have not come yet, as it does others."""
    complete = ClassicCoordinator._complete

    def drop(self: ClassicCoordinator, now: float) -> None:
        for one in list(self._members.values()):
            if one.joining is None:
                self._delete(one.member)
        complete(self, now)

    return patch.object(ClassicCoordinator, "_complete", drop)
