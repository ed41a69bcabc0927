"""Directed schedules: one for each weakness of the core that the guard closes.

`found.py` has the random search's findings. Each is a script over a `Stage`. It passes with the
code as it is and fails with its weakness planted (`test_sim.CAUGHT_BY` names the pairs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from crc32c import crc32c

from cluster.consensus import replication
from cluster.consensus.group import UNDECIDED
from cluster.consensus.message import Append, AppendReply, Vote, VoteReply
from cluster.dedup.verdict import Kind
from tests.sim.checker import Violation
from tests.sim.stage import GID, Stage

SCHEDULES: dict[str, Callable[[], None]] = {}


def schedule(script: Callable[[], None]) -> Callable[[], None]:
    SCHEDULES[script.__name__] = script
    return script


@contextmanager
def limited(module: Any, name: str, value: Any) -> Iterator[None]:
    """A limit of the code under test made small for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def is_entries(message: Any) -> bool:
    return isinstance(message, Append) and bool(message.data)


@schedule
def late_append_does_not_truncate() -> None:
    """An append arrives again after later entries were acknowledged; then the leader dies."""
    stage = Stage()
    stage.elect(1)
    stage.run(1.0)
    old: list[tuple[int, int, Any]] = []

    def copy(sender: int, receiver: int, message: Any) -> bool:
        if receiver == 2 and is_entries(message):
            old.append((sender, receiver, message))
        return False

    stage.hold(copy)
    stage.produce(1)
    stage.drop()
    stage.hold(lambda sender, receiver, message: receiver == 3)
    # Node 2 may not learn that the second one is committed.
    stage.hold(
        lambda sender, receiver, message: (
            isinstance(message, Append) and receiver == 2 and not message.data
        )
    )
    acked = stage.send(1, stage.batch())
    stage.run(0.2)
    assert acked.kind is Kind.APPENDED
    for sender, receiver, message in old:
        stage.deliver(sender, receiver, message)
    stage.crash(1)
    stage.drop()
    stage.run(3.0)
    stage.elect(2)
    stage.run(1.0)
    stage.finish()


@schedule
def late_ack_of_an_old_term_counts_nothing() -> None:
    """Node 2 acknowledged entries in term 1; other entries have their places in term 3."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.hold(lambda sender, receiver, message: receiver == 3)
    stage.hold(lambda sender, receiver, message: (sender, receiver) == (2, 1))
    stage.slow_disk(1)
    for pid in (11, 12, 13):
        stage.send(1, stage.batch(pid))
    stage.run(0.1)  # node 2 has them on disk, node 1 has not
    late = [message for sender, _, message in stage.held if sender == 2]
    assert isinstance(late[-1], AppendReply) and late[-1].next_index == 7
    stage.crash(1, 2)
    stage.drop()
    stage.node(1).sync_time = 0.002
    stage.start(1)
    stage.run(2.0)
    stage.elect(3)
    stage.transfer(3, 1)
    stage.run(0.5)
    stage.hold(lambda sender, receiver, message: True)
    stage.send(1, stage.batch(pid=14))
    stage.run(0.1)
    stage.deliver(2, 1, *late)
    stage.start(2)
    stage.finish()


@schedule
def late_votes_of_an_old_term_elect_nobody() -> None:
    """A vote for term n arrives when its candidate stands in term n + 1."""
    stage = Stage()
    stage.hold(lambda sender, receiver, message: isinstance(message, VoteReply))
    stage.campaign(1)
    stage.campaign(1)
    term = stage.group(1).term
    assert term == 2
    for sender, receiver, message in stage.held:
        if message.term < term:
            stage.deliver(sender, receiver, message)
    assert not stage.group(1).core.is_leader
    stage.finish()


@schedule
def a_vote_that_arrives_twice_counts_once() -> None:
    """One of five nodes votes for node 1; its vote arrives three times."""
    stage = Stage(nodes=5)
    stage.hold(lambda sender, receiver, message: isinstance(message, VoteReply))
    stage.campaign(1)
    vote = next(message for sender, _, message in stage.held if sender == 2)
    for _ in range(3):
        stage.deliver(2, 1, vote)
    assert not stage.group(1).core.is_leader
    stage.finish()


@schedule
def a_leader_counts_itself_after_its_fsync() -> None:
    """One follower has an entry, the leader's own fsync hangs: nothing is committed."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.isolate(3)
    stage.slow_disk(1)
    reply = stage.send(1, stage.batch())
    stage.run(0.3)
    assert reply.answer is None
    stage.crash(1, 2)
    stage.node(1).sync_time = 0.002
    stage.drop()
    stage.start(1)
    stage.run(2.0)
    stage.elect(1)
    stage.start(2)
    stage.finish()


@schedule
def a_batch_without_sequences_is_answered_by_the_log() -> None:
    """Its leader is deposed before it hears that followers have it: a repeat would be a copy."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.hold(lambda sender, receiver, message: receiver == 1)
    plain, known = stage.send(1, stage.batch(pid=0)), stage.send(1, stage.batch())
    stage.run(4.0)
    assert not stage.group(1).core.is_leader
    # A producer with sequences asks the next leader at once.
    assert (plain.kind, known.kind) == (None, Kind.NOT_LEADER)
    stage.elect(2)
    stage.drop()
    stage.run(1.0)
    assert plain.answer is not None and plain.answer.verdict.base_offset == 1, plain.answer
    stage.isolate(2)
    lost = stage.send(2, stage.batch(pid=0))
    stage.run(4.0)
    stage.elect(3)
    stage.produce(3, pid=5)
    assert lost.answer is None
    stage.drop()
    stage.run(2.0)
    assert lost.kind is Kind.NOT_LEADER, "another entry is in its place"
    stage.finish()


@schedule
def a_batch_without_sequences_does_not_wait_for_ever() -> None:
    """Its leader is cut off, so nothing decides on it: its memory is given back."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.isolate(1)
    stage.free = True
    plain = stage.send(1, stage.batch(pid=0))
    stage.run(UNDECIDED / 2)
    assert (stage.group(1).core.is_leader, plain.kind) == (False, None)
    stage.run(UNDECIDED)
    assert plain.kind is Kind.TIMEOUT, "it may commit yet"
    stage.drop()
    stage.finish()


@schedule
def a_batch_without_sequences_is_in_doubt_behind_a_snapshot() -> None:
    """It is stored, and its leader never sees its entry applied: a repeat would be a copy."""
    stage = Stage(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1)
    stage.hold(lambda sender, receiver, message: receiver == 1)
    plain = stage.send(1, stage.batch(pid=0))
    stage.run(4.0)
    stage.elect(2)
    stage.produce(2, 12, pid=5)
    last, answer = stage.group(1).journal.last_index, plain.answer
    assert answer is None, answer
    for _ in range(2):
        stage.node(2).compact()
        stage.run(1.0)
    stage.drop()
    stage.run(2.0)
    assert stage.group(1).journal.base_index > last
    if plain.kind is not Kind.TIMEOUT:
        raise Violation(f"a batch that is stored was answered {plain.answer}")
    stage.finish()


@schedule
def followers_acknowledge_after_their_fsync() -> None:
    """Both followers' fsyncs hang: no acknowledgement, and a power cut may take the entry."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.slow_disk(2)
    stage.slow_disk(3)
    reply = stage.send(1, stage.batch())
    stage.run(0.5)
    assert reply.answer is None
    stage.crash(2, 3)
    stage.node(2).sync_time = stage.node(3).sync_time = 0.002
    stage.start(2, 3)
    stage.finish()


@schedule
def a_heartbeat_commits_only_what_it_proves() -> None:
    """Node 3 has a tail of its own term; the new leader's first words are heartbeats."""
    stage = Stage()
    stage.elect(3)
    stage.produce(3)
    stage.run(1.0)
    stage.isolate(3)
    for pid in (11, 12, 13):
        stage.send(3, stage.batch(pid))
    stage.run(2.0)  # node 3 steps down with three entries that nobody has
    stage.elect(1)
    stage.produce(1, 4)
    stage.drop()
    stage.hold(lambda sender, receiver, message: receiver == 3 and is_entries(message))
    stage.run(2.0)
    stage.finish()


@schedule
def commit_stops_at_the_last_entry_that_matches() -> None:
    """Entries come one at a time, the commit index is far ahead of them."""
    with limited(replication, "MAX_MESSAGE_ENTRIES", 1):
        stage = Stage()
        stage.elect(3)
        stage.produce(3, 2)
        stage.run(1.0)
        stage.isolate(3)
        for pid in (11, 12, 13):
            stage.send(3, stage.batch(pid))
        stage.run(2.0)
        stage.elect(1)
        stage.produce(1, 4)
        stage.drop()
        # Node 1's answer about its second-last common entry, late and with today's commit index.
        journal = stage.group(1).journal
        at = 2
        late = Append(
            GID,
            stage.group(1).term,
            at,
            journal.term_at(at),
            stage.group(1).commit_index,
            journal.terms(at + 1, at + 1),
            (journal.entry(at + 1),),
            (crc32c(journal.entry(at + 1)),),
        )
        stage.deliver(1, 3, late)
        stage.finish()


@schedule
def a_restarted_replica_trusts_no_commit_index() -> None:
    """An entry that only node 1 has; it restarts with both others gone."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.isolate(1)
    stage.send(1, stage.batch())
    stage.run(0.2)
    stage.crash(1, keep=100)
    stage.start(1)
    stage.run(3.0)
    assert not stage.group(1).is_leader
    stage.elect(2)
    stage.produce(2, pid=5)
    stage.finish()


@schedule
def a_power_cut_of_all_loses_nothing() -> None:
    stage = Stage()
    stage.elect(1)
    stage.produce(1, 10)
    stage.send(1, stage.batch())
    stage.crash(1, 2, 3)
    stage.start(1, 2, 3)
    stage.finish()


@schedule
def one_vote_a_term_also_after_a_restart() -> None:
    """Node 3 votes for node 1, restarts, and is asked by node 2 in the same term."""
    stage = Stage()
    stage.hold(lambda sender, receiver, message: receiver == 2)
    stage.hold(lambda sender, receiver, message: isinstance(message, VoteReply))
    stage.campaign(1)
    term = stage.group(1).term
    stage.crash(3)
    stage.start(3)
    stage.release()
    stage.run(0.1)
    stage.deliver(2, 3, Vote(GID, term, 1 << 30, term))
    stage.finish()


@schedule
def a_divergent_tail_rejoins() -> None:
    """More entries than fit in a message differ; the replica gives them up and follows.

    One of the messages to it is lost, so that it has to refuse the one after that.
    """
    with limited(replication, "MAX_MESSAGE_ENTRIES", 3):
        stage = Stage()
        stage.elect(1)
        stage.produce(1, 3)
        stage.isolate(1)
        for pid in range(11, 23):
            stage.send(1, stage.batch(pid))
        stage.run(3.0)
        stage.elect(2)
        first_own = stage.group(2).journal.last_index
        stage.produce(2, 8, pid=2)
        stage.drop()
        stage.hold(
            lambda sender, receiver, message: (
                receiver == 1 and is_entries(message) and message.prev_index == first_own + 2
            )
        )
        stage.run(1.0)
        assert stage.held
        stage.finish()


@schedule
def entries_of_old_terms_are_not_counted() -> None:
    """Figure 8 of the Raft paper, with five nodes."""
    with limited(replication, "MAX_MESSAGE_ENTRIES", 1):
        stage = Stage(nodes=5)
        stage.elect(1)
        stage.produce(1)
        stage.run(1.0)
        # (a) node 1 replicates an entry to node 2 only
        stage.hold(lambda sender, receiver, message: sender == 1 and receiver != 2)
        stage.hold(lambda sender, receiver, message: receiver == 1)
        stage.send(1, stage.batch(pid=2))
        stage.run(0.2)
        stage.crash(1, keep=100)
        stage.drop()
        # (b) node 5 leads with votes of 3 and 4, and keeps its entries to itself
        stage.run(3.0)
        stage.hold(lambda sender, receiver, message: sender == 5 and isinstance(message, Append))
        stage.hold(lambda sender, receiver, message: receiver == 2 or sender == 2)
        stage.elect(5)
        stage.send(5, stage.batch(pid=3))
        stage.run(0.1)
        stage.crash(5, keep=100)
        stage.drop()
        # (c) node 1 leads again and sends the old entry on, but nothing of its own term
        stage.start(1)
        stage.run(3.0)
        stage.hold(
            lambda sender, receiver, message: (
                sender == 1
                and is_entries(message)
                and message.term in message.terms
                and stage.group(receiver).journal.last_index >= message.prev_index
            )
        )
        stage.elect(1)
        stage.run(1.0)  # less than it takes a leader that nobody answers to step down
        old = stage.group(1).journal.last_index - 1
        assert stage.group(3).journal.last_index == stage.group(4).journal.last_index == old
        # (d) node 5 comes back with the higher last term and is elected
        stage.crash(1, keep=100)
        stage.drop()
        stage.start(5)
        stage.run(3.0)
        stage.elect(5)
        stage.run(1.0)
        stage.finish()


@schedule
def an_unsynced_entry_of_its_term_commits_nothing() -> None:
    """Found by seed 151695. In slices before one fsync a leader counted an entry of its term
    that it had not synced, and took the one before, of an earlier term, as committed by it."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    # All hold an entry of the old term, and nobody knows that.
    stage.hold(lambda sender, receiver, message: receiver == 1)
    stage.send(1, stage.batch())
    stage.run(0.2)
    stage.crash(1, keep=100)
    stage.drop()
    stage.start(1)
    stage.run(3.0)
    stage.hold(lambda sender, receiver, message: isinstance(message, VoteReply))
    stage.campaign(1)
    # Two slices of node 1: it is elected; node 2 has synced its appended entries.
    stage.hold(lambda sender, receiver, message: 1 in (sender, receiver))
    node, known = stage.node(1), stage.group(1).commit_index
    node.paused_until = stage.cluster.scheduler.now + 5.0
    (vote,) = (message for sender, _, message in stage.held if sender == 2)
    node.driver.receive(2, [vote])
    assert node.driver.begin()
    sent = [message for sender, to, message in stage.held if (sender, to) == (1, 2)]
    stage.held.clear()
    stage.deliver(1, 2, *sent)
    node.driver.receive(2, [message for sender, _, message in stage.held if sender == 2])
    assert node.driver.begin()
    leader = stage.group(1)
    assert leader.core.is_leader and leader.progress[2].match == leader.journal.last_index
    assert leader.journal.durable_index == leader.journal.last_index - 1 > known
    if leader.commit_index > known:
        raise Violation(f"{leader.commit_index} is committed by an entry that may be lost")
    node.driver.sync()
    node.driver.finish()
    assert leader.has_work, "it is committed with its fsync, and waits for no message"
    stage.finish()


@schedule
def an_old_snapshot_changes_nothing() -> None:
    """A snapshot on its way is overtaken by the entries that it holds."""
    stage = Stage(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1, 8)
    stage.node(1).compact()
    stage.run(1.0)
    stage.node(1).compact()
    stage.run(1.0)
    group = stage.group(1)
    snapshot = group.base_reading(3)()
    assert snapshot.index > 1
    stage.produce(1, 6)
    stage.run(1.0)
    answers: list[bool] = []
    stage.node(2).install(1, snapshot, answers.append)
    stage.run(0.5)
    stage.crash(1)
    stage.run(3.0)
    stage.elect(2)
    stage.finish()


@schedule
def a_replica_far_behind_gets_a_snapshot() -> None:
    """And power fails in each disk call of the installation."""
    for calls in range(1, 7):
        stage = Stage(checkpoint_entries=4, retention_bytes=0)
        stage.elect(1)
        stage.produce(1, 2)
        stage.crash(3)
        stage.produce(1, 12)
        for _ in range(2):
            stage.node(1).compact()
            stage.run(1.0)
        assert stage.group(1).journal.base_index > 8
        stage.start(3)
        stage.node(3).disk.power_off_after = calls
        stage.run(6.0)
        stage.finish()
        # Also where the power failed when it was written, before it counted as installed.
        if stage.group(3).journal.base_index <= 8:
            raise Violation("no snapshot was installed")


@schedule
def power_fails_in_each_disk_call_of_a_compaction() -> None:
    for calls, survives in product(range(1, 10), (False, True)):
        stage = Stage(checkpoint_entries=4, retention_bytes=0)
        stage.node(1).unsynced_survives = survives
        stage.elect(1)
        stage.produce(1, 9)
        stage.node(1).disk.power_off_after = calls
        stage.node(1).compact()
        stage.run(0.2)  # the new log start is committed
        if stage.node(1).alive:
            stage.node(1).compact()
            stage.run(0.5)
        if not stage.node(1).alive:
            stage.start(1)
        stage.finish()


@schedule
def a_new_leader_waits_for_its_own_entry() -> None:
    """The tail of the old leader is not applied yet when its producer goes on."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.hold(lambda sender, receiver, message: receiver == 3 and sender == 1)
    # Node 2 does not learn that this one is committed.
    stage.hold(
        lambda sender, receiver, message: (
            isinstance(message, Append) and receiver == 2 and not message.data
        )
    )
    stage.produce(1)
    stage.crash(1)
    stage.drop()
    stage.run(3.0)
    stage.hold(lambda sender, receiver, message: isinstance(message, AppendReply))
    stage.elect(2)
    following = stage.send(2, stage.batch())
    stage.run(0.1)
    stage.release()
    stage.run(1.0)
    assert following.kind in (Kind.NOT_READY, Kind.APPENDED), following.answer
    stage.finish()


@schedule
def a_deposed_leader_does_not_refuse() -> None:
    """Node 1 does not know yet that node 2 leads and stored the predecessor."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.isolate(1)
    paused = stage.node(1)
    paused.paused_until = stage.cluster.scheduler.now + 4.0
    stage.run(3.0)
    stage.elect(2)
    stage.produce(2)
    stage.run(stage.node(1).paused_until - stage.cluster.scheduler.now)
    refused = stage.send(1, stage.batch())
    stage.run(0.5)
    stage.drop()
    stage.run(2.0)
    assert refused.kind is Kind.NOT_LEADER, refused.answer
    stage.finish()
