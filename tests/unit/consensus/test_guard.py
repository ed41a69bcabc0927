"""Messages that the guard lets through: one case for each weakness of the core that it closes."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from cluster.consensus.guard import InvariantBroken
from cluster.consensus.message import Append, AppendReply, Vote, VoteReply
from tests.unit.consensus.raft_parts import GROUP, Parts


@pytest.fixture
def parts() -> Parts:
    """A follower in term 2 with entries 2..5 of term 1 and 6 of term 2; 4 is applied."""
    parts = Parts()
    parts.fill(1, 1, 1, 1, 2)
    parts.core.see_term(2, 2)
    parts.sync()
    parts.apply(4)
    return parts


def append(
    term: int, prev: int, prev_term: int, *terms: int, commit: int = 0, name: str = "n"
) -> Append:
    data = tuple(f"{name}{prev + 1 + i}".encode() for i in range(len(terms)))
    return Append(GROUP, term, prev, prev_term, commit, terms, data, tuple(map(crc32c, data)))


def entries(parts: Parts) -> list[bytes]:
    return parts.journal.entries(2, parts.journal.last_index)


OURS = [b"e2", b"e3", b"e4", b"e5", b"e6"]


def test_repeat_of_what_we_hold_truncates_nothing(parts: Parts) -> None:
    reply = parts.guard.append(2, append(2, 2, 1, 1, 1))
    assert entries(parts) == OURS
    assert reply == AppendReply(GROUP, 2, 5, True), "proves entries up to 4, no more"


def test_heartbeat_in_the_middle_truncates_nothing(parts: Parts) -> None:
    assert parts.guard.append(2, append(2, 3, 1)) == AppendReply(GROUP, 2, 4, True)
    assert entries(parts) == OURS


def test_a_gap_shows_how_far_the_leader_is_ahead(parts: Parts) -> None:
    assert parts.guard.leader_commit == 0
    assert not parts.guard.append(2, append(2, 90, 2, commit=80)).success
    assert parts.guard.leader_commit == 80
    parts.guard.append(1, append(1, 2, 1, commit=99))
    assert parts.guard.leader_commit == 80, "an older leader's word does not count"


def test_overlap_appends_only_what_is_new(parts: Parts) -> None:
    reply = parts.guard.append(2, append(2, 4, 1, 1, 2, 2))
    assert entries(parts) == [*OURS, b"n7"]
    assert reply == AppendReply(GROUP, 2, 8, True)


def test_conflict_truncates_from_there(parts: Parts) -> None:
    reply = parts.guard.append(3, append(3, 4, 1, 1, 3))
    assert entries(parts) == [b"e2", b"e3", b"e4", b"e5", b"n6"]
    assert parts.journal.term_at(6) == 3
    assert reply == AppendReply(GROUP, 3, 7, True)


def test_conflict_with_an_applied_entry_stops_the_replica(parts: Parts) -> None:
    with pytest.raises(InvariantBroken, match="entry 4 of term 3"):
        parts.guard.append(3, append(3, 3, 1, 3))
    assert entries(parts) == OURS


def test_prev_conflict_with_an_applied_entry_stops_the_replica(parts: Parts) -> None:
    with pytest.raises(InvariantBroken, match="applied one here has term 1"):
        parts.guard.append(3, append(3, 4, 2, 3))


@pytest.mark.parametrize(
    ("message", "commit"),
    [
        (append(2, 5, 1, 2, commit=9), 6),
        (append(2, 3, 1, 1, commit=9), 4),
        (append(2, 3, 1, commit=9), 3),
        (append(2, 9, 2, 2, commit=9), 1),
        (append(2, 5, 2, commit=9), 1),
        (append(2, 0, 0, commit=9), 1),
    ],
    ids=["matches", "a part", "heartbeat", "gap", "other term", "verifies nothing"],
)
def test_commit_rises_no_further_than_the_message_proves(message: Append, commit: int) -> None:
    parts = Parts()
    parts.fill(1, 1, 1, 1, 2)
    parts.core.see_term(2, 2)
    parts.guard.append(2, message)
    assert parts.core.commit_index == commit


def test_gap_is_refused_with_the_place_to_go_on(parts: Parts) -> None:
    reply = parts.guard.append(2, append(2, 9, 2, 2))
    assert reply == AppendReply(GROUP, 2, 7, False, rejected=9)


def test_refusal_skips_the_whole_conflicting_term(parts: Parts) -> None:
    parts.fill(2, 2)
    reply = parts.guard.append(3, append(3, 8, 3, 3))
    assert reply == AppendReply(GROUP, 3, 6, False, rejected=8), "term 2 begins at 6"


def test_stale_leader_is_told_our_term(parts: Parts) -> None:
    parts.core.see_term(4, 3)
    reply = parts.guard.append(2, append(2, 6, 2, 2))
    assert (reply.term, reply.success) == (4, False)
    assert entries(parts) == OURS


def test_who_is_not_known_here_is_followed_and_voted_for(parts: Parts) -> None:
    """The candidate may be in a configuration that this replica has not heard of yet."""
    assert parts.guard.append(9, append(7, 6, 2, 7)).success
    assert entries(parts) == [*OURS, b"n7"]
    parts.guard.vote(8, Vote(GROUP, 9, 99, 9))
    assert parts.journal.voted_for == 8


def test_two_leaders_in_a_term_are_an_invariant_broken() -> None:
    parts = Parts()
    parts.lead(1)
    with pytest.raises(InvariantBroken, match="two leaders"):
        parts.guard.append(2, append(1, 1, 0))


@pytest.mark.parametrize(
    ("sender", "term", "match"),
    [(2, 3, 2), (2, 2, 0), (9, 3, 0)],
    ids=["this term", "an earlier term", "a stranger"],
)
def test_ack_counts_only_in_its_term(sender: int, term: int, match: int) -> None:
    parts = Parts()
    parts.lead(3)
    parts.guard.append_reply(sender, AppendReply(GROUP, term, 3, True))
    assert parts.core.match_index(2) == match


def test_ack_of_a_higher_term_deposes() -> None:
    parts = Parts()
    parts.lead(3)
    assert not parts.guard.append_reply(2, AppendReply(GROUP, 8, 1, False))
    assert parts.core.term == 8
    assert not parts.core.is_leader


def test_ack_of_what_was_never_sent_is_an_invariant_broken() -> None:
    parts = Parts()
    parts.lead(1)
    with pytest.raises(InvariantBroken, match="never sent"):
        parts.guard.append_reply(2, AppendReply(GROUP, 1, 50, True))


def candidate(peers: tuple[int, ...]) -> Parts:
    parts = Parts(peers=peers)
    parts.core.election_deadline = float("-inf")
    parts.core.tick()
    assert parts.core.is_candidate
    return parts


def test_one_voter_counts_once() -> None:
    parts = candidate((2, 3, 4, 5))
    for _ in range(5):
        parts.guard.vote_reply(2, VoteReply(GROUP, 1))
    assert not parts.core.is_leader
    parts.guard.vote_reply(3, VoteReply(GROUP, 1))
    assert parts.core.is_leader


@pytest.mark.parametrize(
    ("sender", "term"), [(9, 1), (2, 0), (2, 2)], ids=["a stranger", "an old term", "a later term"]
)
def test_vote_that_does_not_count(sender: int, term: int) -> None:
    parts = candidate((2, 3))
    parts.guard.vote_reply(sender, VoteReply(GROUP, term))
    assert not parts.core.is_leader
