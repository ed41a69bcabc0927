"""The trace of a leader's death in docs/protocol.md, as the simulated nodes speak it.

    python -m tests.sim.leader_kill        prints it; the page has it word for word

One line for each message, in the order in which they are sent. Heartbeats, clocks and repeats
are left out. No delay is drawn, so that the trace is the same for any seed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from cluster.consensus.message import Append, AppendReply, PreVote, PreVoteReply, Vote, VoteReply
from cluster.dedup.verdict import Kind
from cluster.partition.replica import Answer
from tests.sim.client import Sent
from tests.sim.network import Quality
from tests.sim.stage import GID, Stage

CONTENT = {0x01: "no-op", 0x10: "batch"}  # the first byte of an entry


def said(message: Any) -> str:
    """Describes a message between nodes in words; empty: not worth a line."""
    match message:
        case Append(terms=()) if message.prev_index == 0:
            return ""
        case Append(terms=()):
            return f"Append  term {message.term}, committed up to {message.commit}"
        case Append():
            entries = ", ".join(CONTENT[data[0]] for data in message.data)
            place = f"entry {message.prev_index + 1} ({entries})"
            after = f"after {message.prev_index} of term {message.prev_term}"
            return f"Append  term {message.term}, {place} {after}"
        case AppendReply():
            if message.success and message.next_index == 1:
                return ""
            if message.success:
                return f"AppendReply  term {message.term}, on disk up to {message.next_index - 1}"
            return f"AppendReply  term {message.term}, refused"
        case PreVote() | Vote():
            log = f"my log ends with {message.last_index} of term {message.last_term}"
            return f"{type(message).__name__}  term {message.term}, {log}"
        case PreVoteReply():
            return f"PreVoteReply  {'yes' if message.granted else 'no'}"
        case VoteReply():
            return f"VoteReply  term {message.term}, yes"
        case _:
            return ""


class Trace:
    """A client and three nodes; their messages go into `lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: set[tuple[int, int, str]] = set()
        self.stage = Stage(sync_time=0.0)
        self.stage.cluster.network.quality = Quality(delay=0.0)
        self.stage.elect(1)
        self.stage.run(1.0)
        self.stage.hold(self._note)
        self.stage.run(1.0)  # notes messages that are repeats from now on
        self.stage.node(1).driver.touch(GID)
        self.stage.run(1.0)
        self.lines.clear()

    def _note(self, sender: int, receiver: int, message: Any) -> bool:
        words = said(message)
        if words and (sender, receiver, words) not in self._known:
            self._known.add((sender, receiver, words))
            self.line(f"{sender}", f"{receiver}", words)
        return False

    def line(self, sender: str, receiver: str, words: str) -> None:
        self.lines.append(f"{sender:>6} > {receiver:<6}  {words}")

    def event(self, text: str) -> None:
        self.lines.append(f"-- {text}")

    def send(self, node: int, batch: Sent, *, heard: bool = True) -> Kind | None:
        """Sends a batch; returns its answer if there is one within a second."""
        self.line("client", f"{node}", f"Batch  producer 1, epoch 0, base_sequence {batch.first}, "
                  f"prev_sequence {batch.prev}")  # fmt: skip
        reply = Reply(self, node)
        self.stage.node(node).call(GID, [(batch.request(), reply)])
        if heard:
            self.stage.run(1.0)
        return reply.kind


class Reply:
    """Notes the answer to a batch."""

    def __init__(self, trace: Trace, node: int) -> None:
        self._trace, self._node = trace, node
        self.kind: Kind | None = None

    def check(self, answer: Answer) -> None:
        verdict = answer.verdict
        self.kind = verdict.kind
        at = f", base_offset {verdict.base_offset}" if verdict.base_offset >= 0 else ""
        self._trace.line(f"{self._node}", "client", f"BatchResult  {verdict.kind.name}{at}")

    def arrive(self, answer: Answer | None) -> None:
        """Ignores the answer: the trace is of messages sent."""


def trace() -> list[str]:
    """Traces node 1's death when a batch is on the others' disks and its client has no answer."""
    run = Trace()
    stage = run.stage
    first, second = stage.batch(), stage.batch()
    assert run.send(1, first) is Kind.APPENDED
    run.send(1, second, heard=False)
    while not all(stage.group(node).journal.durable_index == 4 for node in (2, 3)):
        stage.cluster.scheduler.run_until(stage.cluster.scheduler.now + 0.0001)
    stage.crash(1)
    run.event("node 1 is killed before it can say so")
    run.event("the stream to node 1 breaks: the second batch is in doubt")
    stage.run(3.0)
    run.event("node 2 misses its leader")
    stage.elect(2)
    stage.run(1.0)
    run.event("the client asks node 3 who leads (DescribeTopics): node 2, in term 2")
    assert run.send(2, second) is Kind.DUPLICATE
    assert run.send(2, stage.batch()) is Kind.APPENDED
    lines = list(run.lines)
    stage.start(1)
    stage.finish()
    return lines


def main(show: Callable[[str], None] = print) -> None:
    logging.disable(logging.CRITICAL)
    for line in trace():
        show(line)


if __name__ == "__main__":
    main()
