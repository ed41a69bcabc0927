"""A consumer's part in its group, without a network: the effect of each message on its
partitions.
"""

from __future__ import annotations

from oncelog._engine.consume.membership import MemberOwnerships, Owned, Step
from oncelog.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NOTHING: Step[TopicPartition] = Step((), (), {})


def member() -> MemberOwnerships[TopicPartition]:
    """A member that owns both partitions under number 5."""
    one: MemberOwnerships[TopicPartition] = MemberOwnerships()
    one.connect()
    assert one.assignment(1, 2, {A: 5, B: 5}, ()) == Step((), (), {A: 5, B: 5})
    return one


def test_what_is_asked_back_is_held_until_it_is_given_back() -> None:
    one = member()
    assert one.assignment(1, 3, {A: 5}, [B]) == Step((), (B,), {})
    assert (one.may_poll(A), one.may_poll(B)) == (True, False)
    assert one.next_commit(B) == (5, 1), "it is to be committed first"
    assert one.assignment(1, 4, {A: 5}, [B]) == NOTHING, "asked once"
    assert one.released(1, [B]) == Owned(1, 4, frozenset({A}))
    assert one.next_commit(B) is None


def test_another_number_is_another_ownership() -> None:
    one = member()
    assert one.assignment(1, 3, {A: 5, B: 7}, ()) == Step((B,), (), {B: 7})
    assert one.assignment(1, 4, {B: 7}, ()) == Step((A,), (), {})


def test_what_was_asked_back_on_an_older_connection_is_kept() -> None:
    one = member()
    one.assignment(1, 3, {A: 5}, [B])
    assert one.connect() == 2
    assert one.released(1, [B]) is None
    assert one.may_poll(B)
    assert one.assignment(1, 9, {}, ()) == NOTHING, "late, of the older one"
    assert one.assignment(2, 4, {A: 5}, [B]) == Step((), (B,), {}), "asked again"


def test_what_it_never_heard_of_is_asked_back() -> None:
    """Only the newest assignment is sent; the answer lists the partitions held."""
    one: MemberOwnerships[TopicPartition] = MemberOwnerships()
    one.connect()
    assert one.assignment(1, 3, {A: 5}, [B]) == Step((), (), {A: 5})
    assert one.released(1, ()) == Owned(1, 3, frozenset({A}))


def test_who_is_fenced_has_nothing_and_begins_anew() -> None:
    one = member()
    assert one.fenced() == (A, B)
    assert (one.epoch, dict(one.owned), one.next_commit(A)) == (0, {}, None)
