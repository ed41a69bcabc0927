"""Assignment of partitions, step by step: members send messages, entries are applied."""

from __future__ import annotations

from typing import Any

from cluster.groups.coordinator import (
    Assignment,
    Fenced,
    GroupCoordinator,
    Hello,
    InstanceClaim,
    InstanceHeld,
    OwnerChanges,
    Push,
    Remove,
)
from cluster.groups.ownership import (
    GroupOwnership,
    GroupSettings,
    OwnerChange,
    TopicIdPartition,
)
from tests.sim.groups import weak

SETTINGS = GroupSettings(session_timeout=10.0, revoke_timeout=5.0, processing_timeout=60.0)


class Script:
    """A group with entries applied at once, and the last message to each member."""

    def __init__(self, topics: dict[int, int]) -> None:
        self.facts, self.topics, self.now, self.index = GroupOwnership(), topics, 0.0, 0
        self.last: dict[str, Any] = {}
        self.moves: dict[TopicIdPartition, int] = {}
        self.fail_over()

    def fail_over(self) -> None:
        self.coordinator = GroupCoordinator(lambda: self.facts, SETTINGS, self.topics, self.now)
        self.settle()

    def settle(self) -> None:
        """Advances until there is nothing left to propose."""
        while True:
            ready = self.coordinator.advance(self.now)
            for push in ready.pushes:
                self._pushed(push)
            if not ready.proposals:
                return
            for proposal in ready.proposals:
                self._apply(proposal)
            self.coordinator.applied()

    def _pushed(self, push: Push) -> None:
        self.last[push[0]] = push[2]

    def _apply(self, proposal: OwnerChanges | InstanceClaim | Remove) -> None:
        self.index += 1
        before = {part: owner.member for part, owner in self.facts.owners.items()}
        if isinstance(proposal, OwnerChanges):
            self.facts.change(self.index, proposal.epoch, proposal.changes)
        elif isinstance(proposal, InstanceClaim):
            self.facts.claim(self.index, *proposal)
        else:
            self.facts.remove(proposal.member)
        for part, owner in self.facts.owners.items():
            if before.get(part) != owner.member:
                self.moves[part] = self.moves.get(part, 0) + 1

    def hello(
        self, member: str, connection: int = 1, topics: tuple[int, ...] = (1,), **rest: Any
    ) -> None:
        hello = Hello(member, connection, frozenset(topics), **rest)
        self.coordinator.hello(self.now, hello)
        self.settle()

    def comes_back(self, member: str, connection: int) -> None:
        """Returns after a fail-over or a lost stream, with the partitions it holds."""
        self.hello(member, connection, epoch=1, owned=frozenset(self.owns(member)))

    def gives_back(self, member: str, connection: int = 1) -> None:
        """All that it was asked for."""
        held = set(self.owns(member)) - set(self.last[member].revoke)
        self.coordinator.owned(self.now, member, connection, self.last[member].epoch, held)
        self.settle()

    def owns(self, member: str) -> dict[TopicIdPartition, int]:
        return self.facts.partitions_of(member)

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for owner in self.facts.owners.values():
            found[owner.member] = found.get(owner.member, 0) + 1
        return found


def test_a_second_member_gets_half_once_it_is_given_back() -> None:
    group = Script({1: 4})
    group.hello("a")
    assert group.counts() == {"a": 4}
    group.hello("b")
    assert group.counts() == {"a": 4}, "nothing is taken from who works on it"
    assert len(group.last["a"].revoke) == 2
    assert group.last["b"] == Assignment(group.last["b"].epoch, {}, ())
    group.gives_back("a")
    assert group.counts() == {"a": 2, "b": 2}
    assert set(group.last["b"].partitions) == set(group.owns("b"))


def test_what_is_owned_is_given_back_only_when_it_was_asked_for() -> None:
    """An answer to an earlier assignment says nothing of later ones."""
    group = Script({1: 4})
    group.hello("a")
    early = group.last["a"].epoch
    group.hello("b")
    group.coordinator.owned(group.now, "a", 1, early, set())
    group.settle()
    assert group.counts() == {"a": 4}
    group.coordinator.owned(group.now, "a", 1, group.last["a"].epoch, set())
    group.settle()
    assert group.counts() == {"a": 2, "b": 2}, "what was not asked back stays"


def test_a_member_that_gives_nothing_back_is_fenced_in_time() -> None:
    group = Script({1: 4})
    group.hello("a")
    group.hello("b")
    group.now += SETTINGS.revoke_timeout - 1
    for member in "ab":
        group.coordinator.ping(group.now, member, 1)
    group.settle()
    assert group.counts() == {"a": 4}
    group.now += 1
    group.settle()
    assert group.last["a"] == Fenced("REVOKE_TIMEOUT")
    assert group.counts() == {"b": 4}


def test_a_session_ends_after_its_time_and_not_with_the_stream() -> None:
    group = Script({1: 2})
    group.hello("a")
    group.now += SETTINGS.session_timeout - 0.1
    group.settle()
    assert group.counts() == {"a": 2}
    assert group.coordinator.next_due() == SETTINGS.session_timeout
    group.now += 0.1
    group.settle()
    assert group.counts() == {}
    assert group.last["a"] == Fenced("SESSION_ENDED")
    assert not group.facts.has_members


def numbers_after_a_lost_removal() -> tuple[set[int], set[int]]:
    """Numbers after a session ends, its removal is not committed, and the member joins again."""
    group = Script({1: 2})
    group.hello("a")
    before = set(group.owns("a").values())
    group.now += SETTINGS.session_timeout
    assert group.coordinator.advance(group.now).proposals == [Remove("a")]
    group.coordinator.applied()  # it was lost
    group.hello("a", 2)
    return before, set(group.owns("a").values())


def test_who_begins_anew_owns_under_other_numbers() -> None:
    """Otherwise a late commit of its last life would count in this one."""
    before, after = numbers_after_a_lost_removal()
    assert after and before.isdisjoint(after)
    with weak.rejoins_at_once():
        before, after = numbers_after_a_lost_removal()
        assert before == after


def test_a_member_that_does_not_get_on_gives_all_back_and_may_come_again() -> None:
    group = Script({1: 4})
    group.hello("a")
    group.hello("b")
    group.gives_back("a")
    group.coordinator.ping(group.now, "a", 1, idle=SETTINGS.processing_timeout + 1)
    group.settle()
    assert len(group.last["a"].revoke) == 2
    group.gives_back("a")
    assert group.counts() == {"b": 4}
    group.coordinator.ping(group.now, "a", 1, idle=0.0)
    group.settle()
    group.gives_back("b")
    assert group.counts() == {"a": 2, "b": 2}


def lives_through_a_fail_over() -> dict[TopicIdPartition, int]:
    """Number of moves of each partition while three of four members came back."""
    group = Script({1: 8})
    for member in "abcd":
        group.hello(member)
        for other in "abc":
            if getattr(group.last.get(other), "revoke", ()):
                group.gives_back(other)
    assert group.counts() == {"a": 2, "b": 2, "c": 2, "d": 2}
    group.moves.clear()
    group.fail_over()
    group.comes_back("a", 2)
    group.hello("new")
    group.now += 1
    for member in "bc":
        group.comes_back(member, 2)
    return group.moves


def test_a_fail_over_moves_nothing() -> None:
    assert lives_through_a_fail_over() == {}


def test_a_fail_over_moves_much_if_nobody_is_waited_for() -> None:
    with weak.failover_waits_for_nobody():
        assert len(lives_through_a_fail_over()) >= 4


def test_who_does_not_come_back_after_a_fail_over_loses_its_share() -> None:
    group = Script({1: 4})
    group.hello("a")
    group.hello("b")
    group.gives_back("a")
    group.fail_over()
    group.comes_back("a", 2)
    group.now += SETTINGS.session_timeout
    group.coordinator.ping(group.now - 0.1, "a", 2)
    group.settle()
    assert group.counts() == {"a": 4}


def test_a_flapping_member_moves_only_what_it_gets() -> None:
    group = Script({1: 9})
    for member in "ab":
        group.hello(member)
    group.gives_back("a")
    group.moves.clear()
    for life in range(1, 21):
        group.hello("flap", life)
        for member in "ab":
            if group.last[member].revoke:
                group.gives_back(member)
        group.coordinator.leave("flap", life)
        group.settle()
        for member in "ab":
            if group.last[member].revoke:
                group.gives_back(member)
    assert set(group.counts()) == {"a", "b"}
    assert len(group.moves) <= 6, group.moves


def test_fifty_members_at_once_move_nothing_twice() -> None:
    group = Script({1: 100})
    group.hello("m0")
    group.moves.clear()
    for number in range(1, 50):
        hello = Hello(f"m{number}", 1, frozenset({1}))
        group.coordinator.hello(group.now, hello)
    group.settle()
    group.gives_back("m0")
    assert set(group.counts().values()) == {2}
    assert max(group.moves.values()) == 1


def grows_while_it_gives_back() -> tuple[int, ...]:
    """Partitions asked of `a` in all when a third member comes before it has answered."""
    group = Script({1: 6})
    group.hello("a")
    group.hello("b")
    first = group.last["a"].revoke
    group.hello("c")
    return len(first), len(group.last["a"].revoke)


def test_what_is_asked_back_counts_as_free() -> None:
    assert grows_while_it_gives_back() == (3, 4)


def test_a_restarted_process_takes_its_instance_id_over_with_all_that_it_had() -> None:
    group = Script({1: 4})
    group.hello("a1", instance="a")
    group.hello("b1", instance="b")
    group.gives_back("a1")
    owned = set(group.owns("a1"))
    group.moves.clear()
    group.hello("a2", instance="a")
    held = group.last["a2"]
    assert isinstance(held, InstanceHeld)
    assert set(group.owns("a1")) == owned, "not before the second message"
    group.hello("a2", instance="a", claim=held.claim)
    assert set(group.owns("a2")) == owned
    assert set(group.last["a2"].partitions) == owned
    assert group.last["a1"] == Fenced("INSTANCE_TAKEN")
    assert set(group.moves) == owned
    # The earlier member does not know: it comes back, and has no way in.
    group.hello("a1", 2, instance="a", epoch=3)
    assert group.last["a1"] == Fenced("INSTANCE_TAKEN")
    # A hello with a claim that was true once does not count either.
    group.hello("a3", instance="a", claim=held.claim)
    assert group.last["a3"] == InstanceHeld(group.facts.instances["a"].number)


def test_a_late_hello_of_an_older_connection_changes_nothing() -> None:
    group = Script({1: 2})
    group.hello("a", 5)
    group.last.clear()
    group.hello("a", 4)
    assert group.last == {}
    group.hello("a", 6, epoch=1, owned=frozenset(group.owns("a")))
    assert set(group.last["a"].partitions) == set(group.owns("a"))


def connections_after_a_late_hello() -> set[int]:
    """A static member's first hello comes after its second, which waits for the claim."""
    group = Script({1: 2})
    for connection in (2, 1):
        group.coordinator.hello(0.0, Hello("a", connection, frozenset({1}), "i"))
        assert not group.coordinator.advance(0.0).pushes
    group.facts.claim(1, "i", 0, "a")
    group.coordinator.applied()
    pushed = {connection for _, connection, _ in group.coordinator.advance(0.0).pushes}
    assert group.coordinator.members()
    return pushed


def test_a_late_hello_does_not_replace_one_that_waits_for_a_claim() -> None:
    assert connections_after_a_late_hello() == {2}
    with weak.late_hello_joins():
        assert connections_after_a_late_hello() == {1}


def test_topics_that_grow_and_go() -> None:
    group = Script({1: 2})
    group.hello("a", topics=(1, 2))
    group.hello("b", topics=(1, 2))
    group.gives_back("a")
    group.moves.clear()
    group.coordinator.topics_changed({1: 4, 2: 1})
    group.settle()
    assert len(group.facts.owners) == 5
    assert all(part not in group.moves for part in [(1, 0), (1, 1)])
    group.coordinator.topics_changed({2: 1})
    group.settle()
    assert set(group.facts.owners) == {(2, 0)}


def test_range_gives_the_same_stretch_of_each_topic() -> None:
    group = Script({1: 4, 2: 4})
    group.coordinator = GroupCoordinator(
        lambda: group.facts, SETTINGS._replace(assignor="range"), group.topics, 0.0
    )
    group.hello("a", topics=(1, 2))
    group.hello("b", topics=(1, 2))
    group.gives_back("a")
    of_b = group.owns("b")
    assert set(of_b) == {(1, 2), (1, 3), (2, 2), (2, 3)}


def test_commits_are_the_owners_and_go_forward() -> None:
    facts = GroupOwnership()
    part = TopicIdPartition(1, 0)
    assert facts.check_commit(part, "", 0, 0) == ""
    facts.change(7, 1, [OwnerChange(part, 0, "a")])
    assert facts.check_commit(part, "", 0, 0) == "GROUP_HAS_MEMBERS"
    assert facts.check_commit(part, "b", 7, 1) == "FENCED_MEMBER"
    assert facts.check_commit(part, "a", 6, 1) == "FENCED_MEMBER"
    assert facts.check_commit(part, "a", 7, 6) == ""
    assert facts.check_owner(part, "a", 7) == ""
    assert facts.check_owner(part, "a", 6) == facts.check_owner(part, "b", 7) == "FENCED_MEMBER"
    assert facts.check_owner(part, "", 0) == "GROUP_HAS_MEMBERS"
    facts.committed(part, 6)
    assert facts.check_commit(part, "a", 7, 5) == "OUT_OF_ORDER"
    assert facts.check_commit(part, "a", 7, 6) == ""
    assert facts.is_repeat(part, 6)
    facts.remove("a")
    assert facts.check_commit(part, "a", 7, 9) == "FENCED_MEMBER"
    assert facts.check_commit(part, "", 0, 0) == "", "nobody is left"
