"""Configurations of groups: possible steps, stored form, voters that count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.consensus.configuration import (
    CONFIGURATION,
    MAX_LEARNERS,
    MAX_VOTERS,
    ChangeRefusedError,
    ChangeStep,
    Configuration,
    ConfigurationChange,
    Member,
    Members,
    Placed,
    changed,
    pack_configuration,
    pack_placed,
    unpack_configuration,
    unpack_placed,
)
from cluster.consensus.message import Append, PreVote, VoteReply
from cluster.consensus.tombstone import Tombstone, tombstone_of, unpack_tombstone
from storage.errors import CorruptionError

THREE = Configuration(0, (Member(1), Member(2), Member(3)))
WITH_LEARNER = Configuration(4, THREE.voters, (Member(4, 4, 44),))

u63 = st.integers(0, 2**63)
members = st.lists(
    st.builds(Member, st.integers(1, 2**31 - 1), u63, u63), max_size=8, unique_by=lambda one: one[0]
)


def test_a_step_is_one_replica_and_one_version() -> None:
    added = changed(THREE, ConfigurationChange(ChangeStep.ADD, 4, 0, directory=44))
    assert added == Configuration(1, THREE.voters, (Member(4, 1, 44),))
    promoted = changed(added, ConfigurationChange(ChangeStep.PROMOTE, 4, 1))
    assert promoted == Configuration(2, (*THREE.voters, Member(4, 1, 44)))
    removed = changed(promoted, ConfigurationChange(ChangeStep.REMOVE, 1, 2))
    assert removed == Configuration(3, (Member(2), Member(3), Member(4, 1, 44)))
    assert changed(added, ConfigurationChange(ChangeStep.REMOVE, 4, 1)) == Configuration(
        2, THREE.voters
    )


def test_a_voter_becomes_a_learner_and_a_voter_again() -> None:
    demoted = changed(THREE, ConfigurationChange(ChangeStep.DEMOTE, 3, 0))
    assert demoted == Configuration(1, (Member(1), Member(2)), (Member(3),)), "the same instance"
    assert unpack_configuration(pack_configuration(demoted)) == demoted
    promoted = changed(demoted, ConfigurationChange(ChangeStep.PROMOTE, 3, 1))
    assert promoted == replace(THREE, version=2)
    learner, voter = at(3, 0, demoted), at(1, 0, demoted)
    assert not learner.is_voter and not learner.is_removed and learner.may_vote
    assert voter.majority == 2 and not voter.counts(3, 0) and voter.is_member(3, 0)


def test_at_most_so_many_learners_as_an_entry_can_name() -> None:
    most = tuple(Member(10 + number) for number in range(MAX_LEARNERS))
    full = Configuration(0, tuple(Member(1 + number) for number in range(5)), most)
    assert unpack_configuration(pack_configuration(full)) == full
    with pytest.raises(ChangeRefusedError, match=f"more than {MAX_LEARNERS} learners"):
        changed(full, ConfigurationChange(ChangeStep.DEMOTE, 5, 0))


@pytest.mark.parametrize(
    ("now", "change", "why"),
    [
        (THREE, ConfigurationChange(ChangeStep.ADD, 4, 1), "version 1 is not in force"),
        (THREE, ConfigurationChange(ChangeStep.ADD, 3, 0), "it has a replica"),
        (WITH_LEARNER, ConfigurationChange(ChangeStep.ADD, 4, 4), "it has a replica"),
        (THREE, ConfigurationChange(ChangeStep.PROMOTE, 4, 0), "it has no replica"),
        (THREE, ConfigurationChange(ChangeStep.PROMOTE, 3, 0), "it is a voter"),
        (THREE, ConfigurationChange(ChangeStep.REMOVE, 4, 0), "it has no replica"),
        (
            Configuration(2, (Member(1),), (Member(2),)),
            ConfigurationChange(ChangeStep.REMOVE, 1, 2),
            "last voter",
        ),
        (
            Configuration(2, (Member(1),), (Member(2),)),
            ConfigurationChange(ChangeStep.DEMOTE, 1, 2),
            "last voter",
        ),
        (WITH_LEARNER, ConfigurationChange(ChangeStep.DEMOTE, 4, 4), "it is a learner"),
        (THREE, ConfigurationChange(ChangeStep.DEMOTE, 4, 0), "it has no replica"),
        (
            Configuration(0, (Member(1),), tuple(Member(2 + i) for i in range(MAX_LEARNERS))),
            ConfigurationChange(ChangeStep.ADD, 999, 0),
            f"more than {MAX_LEARNERS} learners",
        ),
        (
            Configuration(0, tuple(Member(1 + i) for i in range(MAX_VOTERS)), (Member(99),)),
            ConfigurationChange(ChangeStep.PROMOTE, 99, 0),
            f"more than {MAX_VOTERS} voters",
        ),
    ],
)
def test_steps_that_are_refused(now: Configuration, change: ConfigurationChange, why: str) -> None:
    with pytest.raises(ChangeRefusedError, match=why) as refused:
        changed(now, change)
    assert refused.value.configuration is now


@given(u63, members, st.integers(0, 8), u63, u63)
def test_what_is_stored_is_what_was(
    version: int, both: list[Member], voters: int, index: int, term: int
) -> None:
    one = Configuration(version, tuple(both[:voters]), tuple(both[voters:]))
    assert unpack_configuration(pack_configuration(one)) == one
    placed = Placed(index, term, one)
    assert unpack_placed(pack_placed(placed)) == placed


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "configuration of 0 bytes"),
        (pack_configuration(THREE)[:-1], "for 3 voters and 0 learners"),
        (pack_configuration(THREE) + b"\0", "for 3 voters and 0 learners"),
        (b"\x10" + pack_configuration(THREE)[1:], "unknown type 16"),
        (bytes((CONFIGURATION, 9)) + pack_configuration(THREE)[2:], "layout 9"),
        (pack_configuration(Configuration(1, (Member(1), Member(1, 2)))), "names a node twice"),
    ],
)
def test_what_is_not_one_is_damage(data: bytes, why: str) -> None:
    with pytest.raises(CorruptionError, match=why):
        unpack_configuration(data)
    with pytest.raises(CorruptionError):
        unpack_placed(data)


def at(node: int, instance: int, now: Configuration) -> Members:
    return Members(node, instance, Placed(7, 3, now))


def test_who_counts() -> None:
    leader = at(1, 0, WITH_LEARNER)
    assert (leader.peers, leader.voters, leader.learners) == ((2, 3, 4), (2, 3), (4,))
    assert leader.is_voter and leader.majority == 2 and not leader.is_alone
    assert leader.counts(2, 0)
    assert not leader.counts(2, 1), "another instance"
    assert not leader.counts(4, 4), "a learner"
    assert leader.is_member(4, 4) and not leader.is_member(4, 0)
    assert not leader.counts(1, 0), "itself is counted elsewhere"


def test_a_replica_is_removed_by_what_comes_after_it() -> None:
    assert at(5, 0, WITH_LEARNER).is_removed
    assert not at(5, 4, WITH_LEARNER).is_removed, "it is of the version that added another"
    assert not at(5, 6, WITH_LEARNER).is_removed, "it has not heard of its own yet"
    assert at(4, 3, WITH_LEARNER).is_removed, "there is a newer instance on its node"
    learner = at(4, 4, WITH_LEARNER)
    assert not learner.is_removed and not learner.is_voter and learner.may_vote
    assert not at(4, 4, THREE).may_vote, "it does not hold the entry that added it"


def test_what_a_tombstone_says() -> None:
    stone = tombstone_of(at(5, 0, WITH_LEARNER), 8)
    assert unpack_tombstone(stone.pack()) == stone == Tombstone(0, 4, 7, 3, 8)
    answer = stone.answer(PreVote(16, 9, 7, 3, from_instance=2))
    assert answer is not None
    assert (answer.index, answer.index_term, answer.to_instance) == (7, 3, 2)
    assert stone.answer(Append(16, 8, 0, 0, 0)) is not None
    assert stone.answer(VoteReply(16, 9)) is None, "nobody waits for that"
    assert stone.answer(PreVote(16, 9, 7, 3, to_instance=6)) is None, "for a newer replica"
    with pytest.raises(CorruptionError, match="tombstone of 3 bytes"):
        unpack_tombstone(b"abc")
