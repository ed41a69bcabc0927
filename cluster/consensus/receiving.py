"""Receiving side of a replica: applies one message of a peer and answers it.

Group.receive --message--> receive --> guard, election, replicator, state check --> answers
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.consensus.commit_proof import take_proof
from cluster.consensus.leader_term import LeaderTerm
from cluster.consensus.message import (
    Append,
    AppendReply,
    CheckpointAt,
    GroupMessage,
    PreVote,
    PreVoteReply,
    Removed,
    StateChecksum,
    TimeoutNow,
    Vote,
    VoteReply,
)
from cluster.consensus.port import Clock
from cluster.consensus.raft import Raft


class Receiver:
    """The messages of one replica. may_lead: whether it may stand for election now."""

    def __init__(self, raft: Raft, clock: Clock, may_lead: Callable[[], bool]) -> None:
        self._raft = raft
        self._clock = clock
        self._may_lead = may_lead

    def receive(
        self, sender: int, message: GroupMessage, leading: LeaderTerm | None
    ) -> GroupMessage | None:
        """Takes a message; returns the answer. leading: this replica's term as leader, or None."""
        raft, core = self._raft, self._raft.core
        match message:
            case Append():
                if message.term >= core.term:
                    raft.election.on_leader_contact(self._clock())
                return raft.guard.append(sender, message)
            case AppendReply():
                if raft.guard.append_reply(sender, message) and leading is not None:
                    leading.replicator.on_reply(sender, message, self._clock())
            case CheckpointAt():
                if message.term == core.term and sender == core.leader_id:
                    raft.check.plan(message.index)
            case StateChecksum():
                if raft.members.counts(sender, message.from_instance):
                    raft.check.note(sender, message.index, message.checksum)
            case Removed():
                take_proof(core, raft.journal, message.index, message.index_term)
            case _:
                return self._receive_of_election(sender, message, self._clock())
        return None

    def _receive_of_election(
        self, sender: int, message: GroupMessage, now: float
    ) -> GroupMessage | None:
        core, guard, election = self._raft.core, self._raft.guard, self._raft.election
        match message:
            case Vote():
                guard.vote(sender, message)
            case VoteReply():
                guard.vote_reply(sender, message)
            case PreVote():
                return election.on_pre_vote(now, sender, message)
            case PreVoteReply():
                if election.on_pre_vote_reply(sender, message) and self._may_lead():
                    election.begin(now)
            case TimeoutNow():
                asked = message.term == core.term and sender == core.leader_id
                if asked and self._may_lead():
                    election.begin(now)
            case _:
                raise AssertionError(f"not a message for a group: {message!r}")
        return None
