"""The journal against a list of (term, data), through restarts and crashes."""

from __future__ import annotations

import random

import pytest

from cluster.consensus.configuration import (
    CONFIGURATION,
    Configuration,
    Member,
    pack_configuration,
)
from cluster.consensus.journal import Journal
from tests.unit.consensus.raft_parts import Parts


def content(journal: Journal) -> list[tuple[int, bytes]]:
    first, last = journal.base_index + 1, journal.last_index
    if first > last:
        return []
    return list(zip(journal.terms(first, last), journal.entries(first, last), strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_random_changes_survive_restarts(seed: int) -> None:
    """Append, truncate, trim and sync in any order equal a plain list, also after a reload."""
    rng = random.Random(seed)
    parts = Parts()
    base, term = 1, 1
    model: list[tuple[int, bytes]] = []  # entries above the base
    for _ in range(200):
        journal = parts.journal
        action = rng.random()
        if action < 0.5:
            term += rng.random() < 0.2
            data = bytes([rng.randrange(256)]) * rng.randrange(1, 40)
            if data[0] == CONFIGURATION or rng.random() < 0.1:
                data = pack_configuration(Configuration(len(model), (Member(1),)))
            journal.append(data, journal.last_index + 1, term)
            model.append((term, data))
        elif action < 0.65 and journal.last_index > journal.applied_index:
            index = rng.randint(journal.applied_index + 1, journal.last_index)
            journal.truncate_from(index)
            del model[index - base - 1 :]
        elif action < 0.8:
            parts.sync()
            journal.applied_index = rng.randint(journal.applied_index, journal.durable_index)
        elif action < 0.9 and journal.applied_index > journal.base_index:
            index = rng.randint(journal.base_index + 1, journal.applied_index)
            journal.trim_to(index)
            del model[: index - base]
            base = index
        else:
            parts.sync()
            applied = journal.applied_index
            parts.journal = parts.new_journal(tail_bytes=rng.choice((0, 1 << 20)))
            parts.journal.applied_index = applied
        assert parts.journal.base_index == base
        assert content(parts.journal) == model
        above = [base + at for at, (_, data) in enumerate(model, 1) if data[0] == CONFIGURATION]
        assert [one.index for one in parts.journal.configurations if one.index > base] == above
        assert parts.journal.configurations[0].index <= base


def test_only_synced_entries_are_durable() -> None:
    parts = Parts()
    parts.fill(1, 1)
    assert parts.journal.durable_index == 1
    parts.journal.begin_sync()
    parts.fill(1)
    parts.journal.end_sync()
    assert parts.journal.durable_index == 3, "what came during the sync is not covered by it"


def test_a_term_is_durable_when_it_was_synced() -> None:
    parts = Parts()
    parts.journal.set_hard_state(3, 1)
    parts.journal.begin_sync()
    parts.journal.set_hard_state(4, 1)
    assert parts.journal.durable_term < 3
    parts.journal.end_sync()
    assert parts.journal.durable_term == 3, "what came during the sync is not covered by it"
    parts.sync()
    assert parts.new_journal().durable_term == parts.journal.durable_term == 4


def test_truncation_takes_durability_back() -> None:
    parts = Parts()
    parts.fill(1, 1, 1)
    parts.sync()
    parts.journal.truncate_from(3)
    parts.fill(2)
    assert parts.journal.durable_index == 2


def test_memory_is_bounded_and_old_entries_come_from_disk() -> None:
    parts = Parts()
    parts.journal = parts.new_journal(tail_bytes=10)
    parts.fill(*[1] * 100)
    parts.sync()
    assert len(parts.journal._tail) == 100, "nothing that is not applied is let go"
    parts.apply(101)
    parts.sync()
    assert sum(map(len, parts.journal._tail.values())) <= 10
    assert parts.journal.entry(2) == b"e2"
    assert parts.journal.entries(95, 101)[-1] == b"e101"


def test_vote_survives_a_restart() -> None:
    parts = Parts()
    parts.journal.set_hard_state(5, 3)
    parts.sync()
    again = parts.new_journal()
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (5, 3)


def test_commit_index_begins_at_what_was_applied() -> None:
    parts = Parts()
    parts.fill(1, 1, 1)
    parts.journal.setRaftCommitIndex(4)
    parts.sync()
    assert parts.new_journal().getRaftCommitIndex() == 1
