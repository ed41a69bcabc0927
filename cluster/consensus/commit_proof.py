"""Proof of the commit index that replicas attach to messages: (index, term of the entry there).

    poll, vote, answer to a poll, tombstone --(index, term)--> take_proof --> core

Entries of the same index and term are equal, and so is everything before them. A receiver whose log
has that entry may therefore take it as committed; any replica may send the proof. Without the proof
a group may wait forever: a configuration entry is committed, but the only replicas that know it are
gone, or are not asked under the older configuration.
"""

from __future__ import annotations

from cluster.consensus.journal import Journal
from cluster.consensus.port import Core


def commit_proof(core: Core, journal: Journal) -> tuple[int, int]:
    """Returns the newest entry that is committed and durable here; (0, 0): there is none."""
    index = min(core.commit_index, journal.durable_index)
    if index <= journal.base_index:
        return (journal.base_index, journal.base_term) if journal.base_term else (0, 0)
    return index, journal.term_at(index)


def take_proof(core: Core, journal: Journal, index: int, term: int) -> None:
    """Takes the entry at `index`, of `term`, as proven to be committed."""
    if core.commit_index < index <= journal.last_index and journal.term_at(index) == term:
        core.commit_index = index
