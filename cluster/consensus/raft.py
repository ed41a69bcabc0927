"""Raft parts of a replica, built together from the stored log and checkpoints.

    log and checkpoints on disk --open_raft--> Raft --> Group

They belong together: an installed snapshot takes the place of all of them, so `Group`
replaces the whole object and never a part.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.consensus.checkpoints import Checkpoints
from cluster.consensus.configuration import Members, Placed
from cluster.consensus.election import Election
from cluster.consensus.environment import Environment, GroupConfig, StateMachine
from cluster.consensus.guard import Guard
from cluster.consensus.journal import Journal
from cluster.consensus.port import LEADER, Core
from cluster.consensus.state_check import StateCheck
from storage.checkpoints import CheckpointStore
from storage.raft_log import RaftLogStore


@dataclass(frozen=True, slots=True)
class Raft:
    """The parts that live as long as the stored log that they were built from."""

    members: Members
    journal: Journal
    checkpoints: Checkpoints
    core: Core
    guard: Guard
    election: Election
    check: StateCheck

    def configure(self, placed: Placed) -> None:
        """Replaces the members in place: log, term and leader stay (ADR 0029)."""
        self.members.take(placed)
        self._voters_changed()

    def exclude_other(self) -> None:
        """Excludes the other of two voters from the count."""
        self.members.exclude_other()
        self._voters_changed()

    def _voters_changed(self) -> None:
        self.core.set_voters(self.members.voters)
        self.election.configuration_changed()

    @property
    def leads(self) -> bool:
        """Whether it may act as the leader: its own vote is durable.

        With several voters it is durable, as they were asked after that sync. A lone voter's core
        wins before its sync. If a crash takes that term back, another leader could use the same
        term (docs/adr/0085).
        """
        return self.core.state == LEADER and self.journal.durable_term == self.core.term

    @property
    def is_configured(self) -> bool:
        """Whether the newest committed configuration is in force here."""
        applied, commit = self.journal.applied_index, self.core.commit_index
        return not any(applied < one.index <= commit for one in self.journal.configurations)


def open_raft(
    config: GroupConfig,
    store: RaftLogStore,
    checkpoint_store: CheckpointStore,
    machine: StateMachine,
    env: Environment,
    installed: tuple[bytes, object] | None = None,
) -> Raft:
    """Restores `machine` from the newest checkpoint that loads. Raises storage.StorageError.

    installed: see Checkpoints.restore.
    """
    founding = config.founding.configuration
    journal = Journal(store, env.batch, tail_bytes=env.tail_bytes, founding=founding)
    checkpoints = Checkpoints(
        checkpoint_store,
        journal,
        env.batch,
        machine.pieces,
        machine.load,
        env.reads,
        env.replay,
        env.clock,
        group=config.group,
        every_bytes=config.checkpoint_bytes,
        every_entries=config.checkpoint_entries,
    )
    journal.applied_index = applied = checkpoints.restore(machine.restore, installed)
    placed = journal.configuration_at(journal.getRaftCommitIndex())
    members = Members(config.node_id, config.instance, placed)
    timeout = config.election_timeout
    core = Core(
        config.node_id,
        members.voters,
        journal,
        applied=applied,
        clock=env.clock,
        rng=env.rng,
        election_timeout=(timeout, 2 * timeout),
        heartbeat=config.heartbeat,
    )
    return Raft(
        members,
        journal,
        checkpoints,
        core,
        Guard(config.group, core, journal, members),
        Election(config.group, core, journal, members, timeout=timeout, rng=env.rng),
        StateCheck(config, journal, checkpoints, members),
    )
