"""Guard of the core: enforces the rules of Raft that pysyncobj leaves out.

    network --Message--> Guard.append / append_reply / vote / vote_reply --> core

The guard is pure over (core, journal). It checks a message, hands only its safe part to the core,
and returns the answer. It closes these weaknesses of the core:

    acks and votes without a term     -> both are stamped; another term is dropped
    votes without a voter             -> one vote for each known voter and term
    truncation without a conflict     -> the prefix that we have is trimmed off;
                                         only entries that differ reach the core
    truncation of committed entries   -> a broken invariant: the replica stops
    commit raised without a match     -> capped at the index this message proves
    stale messages get no answer      -> they get our term, so a deposed leader
                                         learns that it is one

Every linked peer may send appends and ask for a vote, since it may be in a configuration that this
replica has not heard of. Only voters' acknowledgements and votes are counted.
"""

from __future__ import annotations

from typing import Any

from cluster.consensus.commit_proof import commit_proof, take_proof
from cluster.consensus.configuration import Members
from cluster.consensus.journal import Journal
from cluster.consensus.message import Append, AppendReply, Vote, VoteReply
from cluster.consensus.port import LEADER, Core


class InvariantBroken(AssertionError):
    """A replica has seen a state that Raft rules out. It stops; nothing is retried."""


class Guard:
    """The filter of one replica, for messages in both directions."""

    def __init__(self, group: int, core: Core, journal: Journal, members: Members) -> None:
        self._group = group
        self._core = core
        self._journal = journal
        self._members = members
        self._voters: set[int] = set()
        self._voters_term = 0
        self.leader_commit = 0  # as its leader said last; this replica may lack entries below it

    # -- inbound ----------------------------------------------------------------

    def append(self, sender: int, message: Append) -> AppendReply:
        """Takes a leader's entries or heartbeat; returns the reply to hold until the sync."""
        core, journal = self._core, self._journal
        if message.term < core.term:
            return self._refuse(message, journal.last_index + 1)
        if message.term == core.term and core.state == LEADER:
            raise InvariantBroken(f"two leaders in term {message.term}: {sender} and this node")
        self.leader_commit = message.commit

        retry_at = self._mismatch(message)
        if message.prev_index == 0 or retry_at:
            self._heartbeat(sender, message, verified=0)
            return self._refuse(message, retry_at) if retry_at else self._accept(1)

        skip = self._matching_prefix(message)
        last = message.prev_index + len(message.terms)
        if skip == len(message.terms):
            self._heartbeat(sender, message, verified=last)
            return self._accept(last + 1)

        prev = message.prev_index + skip
        if prev < max(journal.applied_index, core.commit_index):
            raise InvariantBroken(
                f"entry {prev + 1} of term {message.terms[skip]} from node {sender} would "
                f"replace a committed one (commit index {core.commit_index})"
            )
        entries = [
            (data, index, term, checksum)
            for index, data, term, checksum in zip(
                range(prev + 1, last + 1),
                message.data[skip:],
                message.terms[skip:],
                message.checksums[skip:],
                strict=True,
            )
        ]
        core.deliver(
            sender,
            {
                "type": "append_entries",
                "term": message.term,
                "commit_index": min(message.commit, last),
                "entries": entries,
                "prevLogIdx": prev,
                "prevLogTerm": message.terms[skip - 1] if skip else message.prev_term,
            },
        )
        assert journal.last_index == last
        if journal.configurations[-1].index > prev:
            # After a restart the configuration before this one must be in force.
            journal.save_commit(core.commit_index)
        return self._accept(last + 1)

    def append_reply(self, sender: int, message: AppendReply) -> bool:
        """Returns whether the reply is of this term and of a member of the group."""
        core = self._core
        if not self._members.is_member(sender, message.from_instance):
            return False
        if message.term > core.term:
            core.see_term(message.term, sender)
            return False
        if message.term < core.term or core.state != LEADER:
            return False
        if message.success and message.next_index > self._journal.last_index + 1:
            raise InvariantBroken(f"node {sender} acknowledges entries that were never sent")
        if sender in self._members.voters:
            core.acknowledge(sender, message.next_index, message.success)
        return True

    def vote(self, sender: int, message: Vote) -> None:
        take_proof(self._core, self._journal, message.commit, message.commit_term)
        if not self._members.may_vote:
            return
        self._core.deliver(
            sender,
            {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            },
        )

    def vote_reply(self, sender: int, message: VoteReply) -> None:
        core = self._core
        if not self._members.counts(sender, message.from_instance):
            return
        if message.term != core.term or not core.is_candidate:
            return
        if self._voters_term != core.term:
            self._voters_term = core.term
            self._voters = set()
        if sender in self._voters:
            return
        self._voters.add(sender)
        core.deliver(sender, {"type": "response_vote", "term": message.term})

    # -- outbound ---------------------------------------------------------------

    def outbound(self, message: dict[str, Any]) -> Vote | VoteReply:
        """Translates the core's outgoing messages."""
        kind = message["type"]
        if kind == "request_vote":
            last, last_term = message["last_log_index"], message["last_log_term"]
            proof = commit_proof(self._core, self._journal)
            return Vote(self._group, message["term"], last, last_term, *proof)
        assert kind == "response_vote", f"the core may not send {kind}"
        return VoteReply(self._group, message["term"])

    # -- parts --------------------------------------------------------------------

    def _mismatch(self, message: Append) -> int:
        """Returns 0 if our log matches at prev_index, else the next index to try."""
        journal, prev = self._journal, message.prev_index
        if prev > journal.last_index:
            return journal.last_index + 1
        if prev < journal.base_index or journal.term_at(prev) == message.prev_term:
            return 0
        if prev <= journal.applied_index:
            raise InvariantBroken(
                f"the leader's entry {prev} has term {message.prev_term}, the applied one here "
                f"has term {journal.term_at(prev)}"
            )
        return journal.first_index_of_term_at(prev)

    def _matching_prefix(self, message: Append) -> int:
        """Returns how many of the message's entries we already hold."""
        journal = self._journal
        index = message.prev_index
        for position, term in enumerate(message.terms):
            index += 1
            if index > journal.last_index:
                return position
            # Everything below the base is committed, so it is the same.
            if index > journal.base_index and journal.term_at(index) != term:
                return position
        return len(message.terms)

    def _heartbeat(self, sender: int, message: Append, *, verified: int) -> None:
        """Lets the core see leader, term and the part of the commit index that is proven."""
        core = self._core
        commit = max(core.commit_index, min(message.commit, verified))
        core.deliver(
            sender, {"type": "append_entries", "term": message.term, "commit_index": commit}
        )

    def _accept(self, next_index: int) -> AppendReply:
        version = self._members.version
        return AppendReply(self._group, self._core.term, next_index, True, 0, version)

    def _refuse(self, message: Append, next_index: int) -> AppendReply:
        rejected, version = message.prev_index, self._members.version
        return AppendReply(self._group, self._core.term, next_index, False, rejected, version)
