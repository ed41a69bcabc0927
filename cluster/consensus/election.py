"""Pre-vote around Raft's core: decides whether a replica may campaign now.

    deadline passed --> ask "would you vote for me?" --> majority --> the core's election

The core raises its term as soon as its deadline passes, so a node that was cut
off comes back with a high term and deposes a good leader. Here its deadline
only starts a poll that changes nothing (Raft thesis, section 9.6); a replica
that has a live leader refuses. A transfer of leadership skips the poll.

A replica is eager for one election timeout if it is known that nobody leads: the link to the leader
broke, or the group is new. It then campaigns soon, and again soon. All followers of a dead leader
know it at once, so votes are often split.
"""

from __future__ import annotations

import random

from cluster.consensus.commit_proof import commit_proof, take_proof
from cluster.consensus.configuration import Members
from cluster.consensus.journal import Journal
from cluster.consensus.message import PreVote, PreVoteReply
from cluster.consensus.port import Core

NEVER = float("-inf")
LEADER_LOST_WAIT = (0.05, 0.25)  # seconds after the link to the leader broke
EAGER_WAIT = (0.05, 0.25)  # of the election timeout: between the attempts of an eager replica


class Election:
    """Pre-vote and leader liveness of one replica. Pure over (core, journal, clock).

    timeout: the shortest election timeout, seconds; the longest is twice that.
    """

    def __init__(
        self,
        group: int,
        core: Core,
        journal: Journal,
        members: Members,
        *,
        timeout: float,
        rng: random.Random,
    ) -> None:
        self._group = group
        self._core = core
        self._journal = journal
        self._members = members
        self._timeout = timeout
        self._rng = rng
        self._asked_term = 0
        self._granted: set[int] = set()
        self._eager_until = NEVER
        self.leader_contact_at = NEVER

    def has_live_leader(self, now: float) -> bool:
        return self._core.is_leader or now - self.leader_contact_at < self._timeout

    def on_leader_contact(self, now: float) -> None:
        self.leader_contact_at = now
        self._eager_until = NEVER
        self._asked_term = 0

    def on_coalesced_heartbeat(self, now: float) -> None:
        """Notes the leader's coalesced heartbeat, which does not pass through the core."""
        self.on_leader_contact(now)
        if self._core.election_deadline < now + self._timeout:
            self._core.election_deadline = now + self._wait(now)

    def leader_lost(self, now: float) -> None:
        """Shortens the wait: the link to the leader broke."""
        self.leader_contact_at = NEVER
        self._eager_until = now + self._timeout
        soon = now + self._rng.uniform(*LEADER_LOST_WAIT)
        self._core.election_deadline = min(self._core.election_deadline, soon)

    def configuration_changed(self) -> None:
        """Ends the poll: replies of the old members do not count in the new configuration."""
        self._asked_term = 0

    def campaign(self, now: float) -> None:
        """Campaigns at once, and soon again: the other replicas may not be open yet."""
        self._eager_until = now + self._timeout
        self._core.election_deadline = now

    def begin(self, now: float) -> None:
        """Begins the core's election: the core campaigns once it sees its deadline passed."""
        core = self._core
        if core.is_leader:
            return
        core.election_deadline = NEVER
        core.tick()
        if core.is_candidate:
            core.election_deadline = now + self._wait(now)

    def _wait(self, now: float) -> float:
        """Returns the seconds until the next attempt, if this one fails."""
        if now < self._eager_until:
            return self._timeout * self._rng.uniform(*EAGER_WAIT)
        return self._timeout * (1 + self._rng.random())

    def postpone(self, now: float) -> None:
        """Moves the deadline: it passed, but this node may not lead now."""
        self._core.election_deadline = now + self._wait(now)

    def on_deadline(self, now: float) -> list[PreVote]:
        """Begins a poll, or lets a lone node's core go on by itself."""
        assert not self._core.is_leader
        if self._members.is_alone:
            return []
        self._core.election_deadline = now + self._wait(now)
        self._asked_term = self._core.term + 1
        self._granted = set()
        return [
            PreVote(
                self._group,
                self._asked_term,
                self._journal.last_index,
                self._journal.last_term,
                *commit_proof(self._core, self._journal),
            )
        ]

    def on_pre_vote(self, now: float, sender: int, message: PreVote) -> PreVoteReply:
        """Answers every replica: it may be in a configuration that is not known here yet."""
        core, journal = self._core, self._journal
        take_proof(core, journal, message.commit, message.commit_term)
        proof = commit_proof(core, journal)
        if not self._members.is_member(sender, message.from_instance):
            # A removed replica may hold that entry without knowing that it is committed.
            placed = self._members.placed
            proof = placed.index, placed.term
        ours = (journal.last_term, journal.last_index)
        fit = (message.last_term, message.last_index) >= ours and self._members.may_vote
        if fit and message.term > core.term and not self.has_live_leader(now):
            return PreVoteReply(self._group, message.term, True, *proof)
        return PreVoteReply(self._group, core.term, False, *proof)

    def on_pre_vote_reply(self, sender: int, message: PreVoteReply) -> bool:
        """Returns whether a majority would vote for us: then the election begins."""
        core = self._core
        take_proof(core, self._journal, message.commit, message.commit_term)
        if not message.granted and message.term > core.term:
            core.see_term(message.term, sender)
        if core.is_leader or not message.granted:
            return False
        if message.term != self._asked_term or self._asked_term != core.term + 1:
            return False
        if not self._members.counts(sender, message.from_instance):
            return False
        self._granted.add(sender)
        if len(self._granted) + 1 < self._members.majority:
            return False
        self._asked_term = 0
        return True
