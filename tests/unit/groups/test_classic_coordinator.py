"""The coordinator of a classic group, request by request, as Kafka's answers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from cluster.groups import classic
from cluster.groups.classic import (
    COMPLETING,
    EMPTY,
    NEVER,
    PREPARING,
    STABLE,
    ClassicCoordinator,
    ClassicJoin,
    ClassicRoom,
    Joined,
    Synced,
)
from cluster.groups.classic_table import ClassicTable
from cluster.v1 import offsets_pb2 as pb

RANGE = (("range", b"r"),)


class Group:
    """A coordinator with entries that are applied when the test says so. now: its clock."""

    def __init__(self, delay: float = 0.0) -> None:
        self.table, self.now, self._numbers = ClassicTable(), 0.0, count(1)
        self.room = self.assignment_room = 1 << 20  # bytes that other groups leave
        self.lead(delay)
        self.answers: dict[Any, Joined | Synced] = {}
        self.entry: pb.ClassicGroup | None = None

    def lead(self, delay: float = 0.0) -> None:
        """Begins a leader's term from the log."""
        self.machine = ClassicCoordinator(
            "g", lambda: self.table.of("g"), delay, self.rooms, self.now
        )

    def rooms(self) -> ClassicRoom:
        return ClassicRoom(self.room, self.assignment_room)

    def advance(self, seconds: float = 0.0) -> None:
        self.now += seconds
        ready = self.machine.advance(self.now)
        self.entry = ready.proposal or self.entry
        self.answers.update(ready.answers)

    def write(self, done: bool | None = True) -> None:
        assert self.entry is not None
        if done:
            done = self.table.rebalance(self.entry)
        self.entry = None
        self.machine.stored(self.now, done)
        self.advance()

    def join(self, member: str = "", instance: str = "", **changes: Any) -> Any:
        """Joins; returns the ticket. A new member is `m1`, `m2`, ..."""
        ticket = next(self._numbers)
        request = ClassicJoin(
            member, instance, f"m{ticket}", "client", "host", 10.0, 20.0, "consumer", RANGE, False
        )
        self.machine.join(self.now, ticket, request._replace(**changes))
        self.advance()
        return ticket

    def joined(self, ticket: Any) -> Joined:
        answer = self.answers[ticket]
        assert isinstance(answer, Joined)
        return answer

    def join_error(self, **changes: Any) -> str:
        return self.joined(self.join(**changes)).error

    def sync(
        self,
        member: str,
        instance: str = "",
        generation: int | None = None,
        protocol: str | None = None,
        shares: Mapping[str, bytes] | None = None,
    ) -> Any:
        ticket = next(self._numbers)
        generation = self.machine.generation if generation is None else generation
        caller = pb.ClassicCaller(member=member, instance=instance, generation=generation)
        self.machine.sync(self.now, ticket, caller, (None, protocol), shares or {})
        self.advance()
        return ticket

    def beat(self, member: str, generation: int | None = None, instance: str = "") -> str:
        generation = self.machine.generation if generation is None else generation
        caller = pb.ClassicCaller(member=member, instance=instance, generation=generation)
        error = self.machine.heartbeat(self.now, caller)
        self.advance()
        return error

    def stable(self, *instances: str) -> list[str]:
        """A stable group of so many members; returns their ids, the leader's first."""
        tickets = [self.join(instance=one) for one in instances]
        self.advance(self.machine.next_due() - self.now if tickets[0] not in self.answers else 0)
        if self.machine.state == PREPARING:
            names = [f"m{one}" for one in tickets if one in self.answers]
            tickets[: len(names)] = [self.join(one) for one in names]
        names = [self.joined(one).member for one in tickets]
        leader = self.machine.leader
        for name in names:
            if name != leader:
                self.sync(name)
        self.sync(leader, shares={one: one.encode() for one in names})
        self.write()
        assert self.machine.state == STABLE
        return sorted(names, key=lambda name: name != leader)


def test_an_empty_group_waits_for_more_members() -> None:
    """Each window in which one came is followed by another, up to the rebalance timeout."""
    group = Group(delay=3.0)
    first = group.join()
    group.advance(2)
    second = group.join()
    group.advance(1.5)
    assert group.machine.state == PREPARING and not group.answers, "a second window"
    group.advance(2.6)
    one, other = group.joined(first), group.joined(second)
    assert (one.generation, one.leader, other.leader) == (1, one.member, one.member)
    assert [name for name, _, _ in one.members] == [one.member, other.member]
    assert not other.members

    group = Group(delay=3.0)
    first = group.join(rebalance_timeout=5.0)
    for _ in range(4):
        group.advance(1.5)
        group.join()
    assert first in group.answers, "not for ever"


def test_a_new_member_gets_its_id_first() -> None:
    group = Group()
    ticket = group.join(returns=True)
    answer = group.joined(ticket)
    assert (answer.error, answer.member) == ("MEMBER_ID_REQUIRED", "m1")
    assert group.machine.state == EMPTY and not group.machine.is_idle
    assert group.joined(group.join("m9")).error == "UNKNOWN_MEMBER"
    assert not group.joined(group.join("m1")).error
    assert group.machine.state == COMPLETING

    group = Group()
    group.join(returns=True)
    group.advance(10)
    assert group.machine.is_idle, "the id is forgotten"
    static = group.join(instance="i", returns=True)
    assert not group.joined(static).error, "a static member is known by its instance id"


def test_a_rebalance_is_answered_when_it_is_in_the_log() -> None:
    group = Group()
    member = group.joined(group.join()).member
    ticket = group.sync(member, shares={member: b"all"})
    assert ticket not in group.answers and group.entry is not None
    assert group.beat(member) == ""
    group.write(None)
    assert ticket not in group.answers and group.entry is not None, "once more"
    group.write()
    assert group.answers[ticket] == Synced("", "consumer", "range", b"all")
    again = group.sync(member)
    assert group.answers[again] == group.answers[ticket]
    record = group.table.of("g")
    assert record is not None and record.record.generation == 1


def test_without_room_the_members_are_told() -> None:
    group = Group()
    member = group.joined(group.join()).member
    ticket = group.sync(member, shares={member: b"all"})
    group.write(False)
    assert group.answers[ticket] == Synced("NOT_STORED")
    assert group.machine.state == PREPARING
    assert [one.assignment for one in group.machine.members()] == [b""], "no memory is kept"


def test_an_assignment_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "MAX_ASSIGNMENT_BYTES", 10)
    monkeypatch.setattr(classic, "MAX_GROUP_METADATA_BYTES", 20)
    group = Group()
    member = group.joined(group.join()).member
    ticket = group.sync(member, shares={member: bytes(11)})
    assert group.answers[ticket] == Synced("ASSIGNMENT_TOO_LARGE") and group.entry is None
    large = group.join(protocols=(("range", bytes(20)),))
    assert group.joined(large).error == "GROUP_FULL"
    assert group.joined(group.join(member, protocols=(("range", bytes(20)),))).error == "GROUP_FULL"
    many = tuple((f"p{number}", b"") for number in range(classic.MAX_PROTOCOLS + 1))
    for changes in ({"protocols": many}, {"protocol_type": "c" * (classic.MAX_TYPE_CHARS + 1)}):
        assert Group().join_error(**changes) == "INCONSISTENT_PROTOCOL"
    monkeypatch.setattr(classic, "MAX_MEMBERS", 1)
    assert group.joined(group.join()).error == "GROUP_FULL"


def test_without_room_only_joins_that_add_memory_are_refused() -> None:
    """Else a group that takes all that there is stops the members of the others."""
    group = Group()
    leader, static = group.stable("", "i")
    group.room = 0
    assert group.join_error() == group.join_error(returns=True) == "NO_ROOM"
    larger = (("range", b"rr"),)
    assert group.join_error(member=static, instance="i", protocols=larger) == "NO_ROOM"
    assert group.machine.state == STABLE
    restarted = group.join(instance="i")
    group.write()
    assert group.joined(restarted).error == "", "a static member's new process adds nothing"
    again, generation = group.join(leader), group.machine.generation
    group.join(group.joined(restarted).member, "i")
    assert group.joined(again)[:3] == ("", leader, generation + 1)
    group.room = classic.MEMBER_BYTES
    assert group.join_error() == "NO_ROOM", "its protocols count as well"
    group.room += len("range") + len(b"r")
    assert group.join() not in group.answers, "it waits for the others"


def test_memory_of_assignments_is_counted() -> None:
    """A disk that is full stores none, and each group of the partition may have as many bytes."""
    group = Group()
    leader, other = group.stable("", "")
    assert group.machine.assigned_bytes == len(leader) + len(other)
    group.join(leader)
    group.join(other)
    group.sync(leader, shares={other: bytes(5000)})
    group.write(None)
    assert group.entry is not None, "it is tried again"
    assert group.machine.assigned_bytes == 5000
    group.write()
    group.lead()
    assert group.machine.assigned_bytes == 5000, "the next leader counts them as well"


@pytest.mark.parametrize("stored", [True, False])
def test_assignments_that_nobody_gets_take_no_memory(stored: bool) -> None:
    """A member that does not join again, and lives, holds the rebalance up for its whole time."""
    group = Group()
    leader, other = group.stable("", "")
    group.join(leader)
    group.join(other)
    group.sync(leader, shares={other: bytes(5000)})
    assert group.machine.assigned_bytes == 5000
    group.join(other, protocols=(("range", b"other"),))
    assert group.machine.state == PREPARING
    group.write(stored)
    assert group.machine.assigned_bytes == 0
    assert {one.assignment for one in group.machine.members()} == {b""}


def test_without_room_only_assignments_that_add_memory_are_refused() -> None:
    group = Group()
    leader, other = group.stable("", "")
    group.assignment_room = 0

    def assigned(size: int) -> str:
        group.join(leader)
        group.join(other)
        ticket = group.sync(leader, shares={other: bytes(size)})
        if group.entry is not None:
            group.write()
        answer = group.answers[ticket]
        assert isinstance(answer, Synced)
        return answer.error

    least = len(leader) + len(other)  # bytes of the generation in the log
    assert assigned(least + 1) == "NOT_STORED"
    assert group.machine.state == PREPARING
    assert assigned(least) == ""
    group.assignment_room = least + 1
    assert assigned(least + 1) == ""


def test_the_number_of_a_lost_generation_commits_nothing_of_it() -> None:
    """A leader dies before its newest generation is written; the next one uses the number again."""
    group = Group()
    leader, other = group.stable("", "")
    new = group.join()
    for one in (leader, other):
        group.join(one)
    lost = group.machine.generation
    member = group.joined(new).member
    waits = group.sync(member, generation=lost)
    group.sync(leader, generation=lost, shares={member: b"all"})
    assert group.entry is not None and waits not in group.answers, "nobody works in it"
    group.lead()
    of_lost = {
        one: pb.ClassicCaller(member=one, generation=lost) for one in (leader, other, member)
    }

    def refusals() -> list[str]:
        return [group.table.refusal("g", of_lost[one]) for one in (leader, other, member)]

    assert refusals() == ["ILLEGAL_GENERATION", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER"]
    for one in (leader, other):
        assert group.answers[group.sync(one, generation=lost)] == Synced("ILLEGAL_GENERATION")
    # The number comes again, without the member that only the lost generation had.
    group.machine.leave(group.now, other, "")
    group.advance()
    group.join(leader)
    assert group.machine.generation == lost
    assert group.machine.commits(group.now, of_lost[leader]) == "REBALANCING", "not assigned yet"
    assert group.answers[group.sync(member, generation=lost)] == Synced("UNKNOWN_MEMBER")
    assert group.answers[group.sync(other, generation=lost)] == Synced("UNKNOWN_MEMBER")
    group.sync(leader, shares={leader: b"all"})
    group.write()
    assert refusals() == ["", "UNKNOWN_MEMBER", "UNKNOWN_MEMBER"]


def test_members_share_a_protocol() -> None:
    group = Group()
    both = (("sticky", b"s"), ("range", b"r"))
    first = group.joined(group.join(protocols=both)).member
    assert group.machine.protocol == "sticky"
    for protocols, kind in ((RANGE, "connect"), ((("new", b""),), "consumer"), ((), "consumer")):
        ticket = group.join(protocols=protocols, protocol_type=kind)
        assert group.joined(ticket).error == "INCONSISTENT_PROTOCOL"
    second = group.join(protocols=RANGE)
    answer = group.joined(group.join(first, protocols=both))
    assert (answer.protocol, answer.members[0][2]) == ("range", b"r")
    wrong = group.sync(group.joined(second).member, protocol="sticky")
    assert group.answers[wrong] == Synced("INCONSISTENT_PROTOCOL")


def test_who_is_no_member_is_told_so() -> None:
    group = Group()
    leader, other = group.stable("", "i")
    assert group.beat(leader) == group.beat(other, instance="i") == ""
    assert group.beat(leader, 0) == "ILLEGAL_GENERATION" and group.beat("m9") == "UNKNOWN_MEMBER"
    assert group.beat(leader, instance="i") == "FENCED_INSTANCE"
    assert group.beat(other, instance="j") == "UNKNOWN_MEMBER"
    late = group.sync(leader, generation=0, shares={other: b"wrong"})
    assert group.answers[late] == Synced("ILLEGAL_GENERATION")
    assert group.joined(group.join(leader, "i")).error == "FENCED_INSTANCE"


def test_a_rebalance_goes_on_without_members_that_do_not_come() -> None:
    group = Group()
    leader, static = group.stable("", "i")
    new = group.join()
    assert group.machine.state == PREPARING
    assert group.beat(leader) == "REBALANCING"
    late = group.sync(leader)
    assert group.answers[late] == Synced("REBALANCING")
    group.advance(9.9)
    assert group.beat(leader) == "REBALANCING" and new not in group.answers
    group.advance(9.9)
    assert new not in group.answers, "the static one's session has ended, the leader's has not"
    group.advance(0.2)
    answer = group.joined(new)
    assert [name for name, _, _ in answer.members] == [answer.member], answer
    assert group.beat(leader) == "UNKNOWN_MEMBER" == group.beat(static)


def test_a_rebalance_timeout_of_zero_keeps_no_timer_busy() -> None:
    group = Group()
    first = group.joined(group.join()).member
    static = group.join(instance="i", rebalance_timeout=0.0)
    group.join(first)
    name = group.joined(static).member
    group.sync(name, "i")
    group.sync(first)
    group.write()
    assert group.machine.state == STABLE and group.machine.leave(0, first, "") == ""
    group.advance()
    assert group.machine.state == PREPARING and group.machine.next_due() > group.now
    group.advance(1.5)
    assert group.machine.next_due() > group.now, "nobody has joined: it waits on"
    assert not group.joined(group.join(name, "i")).error

    alone = Group()
    name = alone.joined(alone.join(rebalance_timeout=0.0)).member
    alone.advance()
    assert alone.beat(name) == "", "it has time to sync"


def test_a_member_that_never_syncs_is_removed() -> None:
    group = Group()
    first = group.joined(group.join()).member
    for _ in range(4):
        group.advance(5)
        group.beat(first)
    assert group.machine.state == EMPTY and group.machine.is_idle


def test_a_repeated_join_gets_the_same_answer() -> None:
    group = Group()
    leader, other = group.stable("", "")
    answer = group.joined(group.join(other))
    assert (answer.error, answer.generation, answer.leader) == ("", 2, leader)
    assert group.machine.state == STABLE and not answer.members
    changed = group.join(other, protocols=(("range", b"other topics"),))
    assert group.machine.state == PREPARING and changed not in group.answers
    answer = group.joined(group.join(leader))
    assert answer.generation == 3 and not group.joined(changed).error
    assert group.joined(group.join(leader)).members == answer.members, "once more"
    assert group.machine.state == COMPLETING
    group.sync(leader, shares={leader: b""})
    group.write()
    group.join(leader)
    assert group.machine.state == PREPARING, "a leader joins again to assign anew"


def test_members_leave() -> None:
    group = Group()
    leader, static = group.stable("", "i")
    assert group.machine.leave(0, "m9", "") == "UNKNOWN_MEMBER"
    assert group.machine.leave(0, "", "j") == "UNKNOWN_MEMBER"
    assert group.machine.leave(0, leader, "i") == "FENCED_INSTANCE"
    assert group.machine.leave(0, "", "i") == "", "as an admin does"
    group.advance()
    assert group.machine.state == PREPARING and group.beat(static) == "UNKNOWN_MEMBER"
    assert group.machine.leave(0, leader, "") == ""
    group.advance()
    assert group.machine.state == EMPTY and group.entry is not None and not group.entry.members
    group.write()
    assert group.machine.is_idle and group.machine.next_due() == NEVER
    assert group.table.of("g") is None


def subscribed(topic: bytes) -> tuple[tuple[str, bytes], ...]:
    return (("range", b"\0\1\0\0\0\1\0\1" + topic + b"\xff\xff\xff\xff"),)


def test_a_static_members_other_topics_are_a_rebalance() -> None:
    group = Group()
    group.join(instance="i", protocols=subscribed(b"t"))
    group.sync("m1", "i", shares={"m1": b"x"})
    group.write()
    with_owned = (("range", subscribed(b"t")[0][1] + b"owned"),)
    ticket = group.join(instance="i", protocols=with_owned)
    assert group.machine.state == STABLE and ticket not in group.answers, "its entry comes first"
    group.write()
    answer = group.joined(ticket)
    assert (answer.leader, answer.generation, answer.members) == ("m1", 1, ())
    assert group.beat("m1", instance="i") == "FENCED_INSTANCE"
    assert group.beat(answer.member, instance="i") == ""
    assert group.answers[group.sync(answer.member, "i")] == Synced("", "consumer", "range", b"x")
    ticket = group.join(instance="i", protocols=subscribed(b"u"))
    assert group.machine.state == PREPARING and ticket not in group.answers
    group.write(None)
    assert ticket not in group.answers and group.machine.next_due() == NEVER, "once more"
    group.write()
    other = group.joined(ticket)
    assert other.generation == 2 and other.leader == other.member
    record = group.table.of("g")
    assert record is not None and record.record.generation == 1
    assert [one.member for one in record.record.members] == [other.member]
    group.lead()
    again = group.join(other.member, "i", protocols=subscribed(b"u"))
    assert group.joined(again).error == "", "the next leader knows it"


def test_the_next_leader_knows_who_has_an_instance_id() -> None:
    """Also if the rebalance that gave it a new holder was not in the log."""
    group = Group()
    first, static = group.stable("", "i")
    assert group.machine.leave(group.now, static, "i") == ""
    group.advance()
    ticket = group.join(instance="i")
    group.join(first)
    assert ticket not in group.answers, "the log still names the member that has left"
    group.write()
    answer = group.joined(ticket)
    assert (answer.error, answer.generation) == ("", 3)
    group.lead()
    assert group.machine.generation == 2
    again = group.joined(group.join(answer.member, "i"))
    assert (again.error, again.generation) == ("", 2)
    assert group.beat(static, 2, "i") == "FENCED_INSTANCE"


def test_the_next_leader_continues() -> None:
    group = Group()
    leader, other = group.stable("", "i")
    again = Group()
    again.table = group.table
    again.lead(3.0)
    assert again.beat(leader) == again.beat(other, instance="i") == ""
    assert again.answers[again.sync(other, "i")] == Synced("", "consumer", "range", other.encode())
    assert again.machine.members() == group.machine.members()
    again.advance(9)
    assert again.beat(leader) == ""
    again.advance(2)
    assert again.machine.state == PREPARING, "the other one did not come back"
