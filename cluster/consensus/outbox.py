"""Outgoing messages of one replica, until the driver takes them.

guard, election, leader's term, core --> Outbox --(peer, message)--> Driver
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.consensus.message import GroupMessage, Message, Vote, addressed
from cluster.consensus.raft import Raft


class Outbox:
    """Messages in the order in which they were made. They name both replicas by instance."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, Message]] = []

    def send(self, raft: Raft, messages: Iterable[tuple[int, GroupMessage]]) -> None:
        """Queues messages to members; the configuration knows their instances."""
        members = raft.members
        if not members.has_instances:
            self.messages += messages
            return
        for peer, message in messages:
            theirs = members.instance_of(peer)
            self.messages.append((peer, addressed(message, members.instance, theirs)))

    def answer(
        self, raft: Raft, peer: int, question: GroupMessage, answer: GroupMessage | None
    ) -> None:
        """Queues answers to the asking replica, member or not; also the core's answers to it."""
        own, theirs = raft.members.instance, question.from_instance
        if answer is not None:
            self.messages.append((peer, addressed(answer, own, theirs)))
        for receiver, raw in raft.core.take_sent() if isinstance(question, Vote) else ():
            assert receiver == peer, "the core answers its candidate"
            self.messages.append((peer, addressed(raft.guard.outbound(raw), own, theirs)))

    def take_sent(self, raft: Raft) -> None:
        """Takes the messages that the core sends by itself."""
        sent = raft.core.take_sent()
        self.send(raft, [(peer, raft.guard.outbound(raw)) for peer, raw in sent])
