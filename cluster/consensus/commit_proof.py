"""What a replica proves about the commit index: (index, term of the entry there).

    poll, vote, answer to a poll, tombstone --(index, term)--> take_proof --> core

Two entries of one index and term are the same, and so is all before them. So a receiver
whose log has that entry may take it as committed, whoever says so. Without this a group
may wait for ever: a configuration entry is committed, and the only replicas that know it
are gone, or are not asked under the older configuration.
"""

from __future__ import annotations

from cluster.consensus.journal import Journal
from cluster.consensus.port import Core


def commit_proof(core: Core, journal: Journal) -> tuple[int, int]:
    """The newest entry that is committed and durable here; (0, 0): nothing to be proven."""
    index = min(core.commit_index, journal.durable_index)
    if index <= journal.base_index:
        return (journal.base_index, journal.base_term) if journal.base_term else (0, 0)
    return index, journal.term_at(index)


def take_proof(core: Core, journal: Journal, index: int, term: int) -> None:
    """Somebody proved that the entry at `index`, of `term`, is committed."""
    if core.commit_index < index <= journal.last_index and journal.term_at(index) == term:
        core.commit_index = index
