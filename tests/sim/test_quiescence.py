"""Groups at rest: their summaries, their wake-ups, and the noticed death of a leader."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.consensus.message import Append, AppendReply, Heartbeat, HeartbeatReply
from cluster.dedup.verdict import Kind
from storage.errors import CorruptionError
from tests.sim.stage import GID, Stage

ROUNDS = 2.0  # seconds: some heartbeats of the simulated nodes


class Heard:
    """The messages that pass."""

    def __init__(self, stage: Stage) -> None:
        self.messages: list[tuple[int, int, Any]] = []
        stage.hold(self._note)

    def _note(self, sender: int, receiver: int, message: Any) -> bool:
        self.messages.append((sender, receiver, message))
        return False

    def of(self, kind: type) -> list[Any]:
        return [message for _, _, message in self.messages if isinstance(message, kind)]


def resting() -> Stage:
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.run(ROUNDS)
    assert stage.group(1).is_quiescent
    return stage


def test_a_leader_knows_which_follower_is_silent() -> None:
    """A silent follower gets no leadership: proposals would wait for it in vain."""
    stage = resting()
    assert stage.group(1).is_responsive(2)
    assert stage.group(1).is_responsive(3)
    stage.isolate(3)
    stage.run(ROUNDS)
    assert stage.group(1).is_responsive(2)
    assert not stage.group(1).is_responsive(3)
    stage.release()
    stage.run(ROUNDS)
    assert stage.group(1).is_responsive(3)


def test_a_group_at_rest_costs_one_row_in_its_nodes_message() -> None:
    stage = resting()
    heard = Heard(stage)
    stage.run(ROUNDS)
    assert [message for message in heard.of(Append) if message.group == GID] == []
    rows = [list(zip(b.groups, b.terms, b.commits, strict=True)) for b in heard.of(Heartbeat)]
    leader = stage.group(1)
    assert rows
    assert all((GID, leader.term, leader.commit_index) in row for row in rows)
    assert all(reply.disagree == () for reply in heard.of(HeartbeatReply))
    assert len(heard.of(HeartbeatReply)) > len(rows) - 3
    stage.finish()


def test_followers_of_a_group_at_rest_do_not_stand() -> None:
    stage = resting()
    stage.free = True
    for node in (2, 3):
        stage.group(node).core.election_deadline = stage.node(node).clock() + 1.0
        stage.node(node).driver.touch(GID)
    term = stage.group(1).term
    stage.run(20.0)
    assert stage.group(1).is_ready
    assert stage.group(1).term == term
    stage.finish()


def test_a_proposal_wakes_the_group() -> None:
    stage = resting()
    stage.produce(1, count=3)
    stage.run(ROUNDS)
    assert stage.group(1).is_quiescent
    stage.finish()


@pytest.mark.parametrize("by", ["crash", "silence"])
def test_followers_miss_a_leader_that_rested(by: str) -> None:
    stage = resting()
    stage.free = True
    for node in (2, 3):
        stage.group(node).core.election_deadline = stage.node(node).clock() + 1.0
        stage.node(node).driver.touch(GID)
    stage.run(ROUNDS)
    assert stage.group(1).is_quiescent
    if by == "crash":
        stage.crash(1)
    else:
        stage.isolate(1)
    stage.run(10.0)
    leaders = [node for node in (2, 3) if stage.group(node).is_ready]
    assert len(leaders) == 1
    if by == "silence":
        assert not stage.group(1).is_leader, "it must not believe in itself for ever"
    stage.drop()
    if by == "crash":
        stage.start(1)
    stage.finish()


def test_one_silent_follower_wakes_the_group_and_is_heard_again() -> None:
    stage = resting()
    stage.isolate(3)
    stage.run(ROUNDS)
    assert stage.group(1).is_ready
    # The replica speaks for itself to nodes it does not hear.
    assert not stage.group(1).is_quiescent
    stage.drop()
    stage.run(ROUNDS)
    assert stage.group(1).is_quiescent
    stage.finish()


def test_a_restarted_follower_disagrees_until_it_knows_the_commit_index() -> None:
    """The commit index is volatile. With nothing else happening the follower must apply all."""
    stage = resting()
    heard = Heard(stage)
    beat = Heartbeat((GID,), (stage.group(1).term,), (stage.group(1).commit_index,))
    stage.crash(2)
    stage.start(2)
    stage.group(2).core._SyncObj__raftCommitIndex = 1  # as if the leader had not spoken yet
    stage.deliver(1, 2, beat)
    assert (GID,) in [reply.disagree for reply in heard.of(HeartbeatReply)]
    stage.run(ROUNDS)
    assert stage.group(2).commit_index == stage.group(1).commit_index
    stage.finish()


def test_another_leader_in_a_later_term_is_not_heard_through_an_old_beat() -> None:
    stage = resting()
    beat = Heartbeat((GID,), (stage.group(1).term,), (stage.group(1).commit_index,))
    stage.transfer(1, 2)
    deadline = stage.group(3).core.election_deadline
    heard = Heard(stage)
    stage.deliver(1, 3, beat)
    assert (GID,) in [reply.disagree for reply in heard.of(HeartbeatReply)]
    assert stage.group(3).core.election_deadline <= deadline + ROUNDS * 1e6
    assert stage.group(3).leader_id == 2
    stage.finish()


def test_a_group_that_is_not_here_is_named() -> None:
    stage = resting()
    heard = Heard(stage)
    stage.deliver(1, 2, Heartbeat((GID, 4711), (stage.group(1).term, 1), (1, 1)))
    assert (4711,) in [reply.disagree for reply in heard.of(HeartbeatReply)]
    stage.finish()


def test_all_groups_of_a_leader_share_the_message() -> None:
    every = {GID, GID + 1, GID + 2}
    stage = led_by_one(len(every))
    stage.run(2 * ROUNDS)
    heard = Heard(stage)
    stage.run(ROUNDS)
    assert {frozenset(beat.groups) for beat in heard.of(Heartbeat)} == {frozenset(every)}
    assert len(heard.of(Heartbeat)) <= 2 * (ROUNDS / stage.group(1).config.heartbeat + 1)
    stage.finish()


def led_by_one(groups: int, **settings: Any) -> Stage:
    """Node 1 leads all groups, and nobody stands against it."""
    stage = Stage(groups=groups, **settings)
    stage.elect(1)
    for gid in range(GID, GID + groups):
        for node in stage.cluster.live():
            group = node.partitions[gid].group
            assert group is not None
            if node.id == 1:
                group.campaign()
            else:
                group.core.election_deadline = node.clock() + 1e6
            node.driver.touch(gid)
    return stage


def at_rest(stage: Stage) -> int:
    groups = [partition.group for partition in stage.node(1).partitions.values()]
    return sum(group is not None and group.is_quiescent for group in groups)


@pytest.mark.parametrize("load", [0.5, 3.0])
def test_groups_rest_on_a_loop_that_is_busy_with_them(load: float) -> None:
    """load: seconds of work in a second, while no group rests: two answers to each heartbeat."""
    groups, heartbeat = 20, 0.4
    cost = load * heartbeat / (2 * groups)
    stage = led_by_one(groups, heartbeat=heartbeat, election_timeout=60.0, round_cost=cost)
    stage.run(30.0)
    assert at_rest(stage) == groups
    stage.finish()


def test_an_answer_that_comes_late_wakes_nobody() -> None:
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    late: list[Any] = []

    def note(sender: int, receiver: int, message: Any) -> bool:
        late.extend([message] if (sender, type(message)) == (2, AppendReply) else [])
        return False

    stage.hold(note)
    stage.run(ROUNDS)
    assert stage.group(1).is_quiescent
    heard = Heard(stage)
    stage.deliver(2, 1, late[-1])
    assert stage.group(1).is_quiescent
    assert [message for message in heard.of(Append) if message.group == GID] == []
    # News wakes it: the follower refuses, or is in another term.
    stage.deliver(2, 1, late[-1]._replace(success=False, next_index=1))
    assert [message for message in heard.of(Append) if message.group == GID]
    stage.run(ROUNDS)
    assert stage.group(1).is_quiescent
    stage.deliver(2, 1, late[-1]._replace(term=stage.group(1).term + 1))
    assert not stage.group(1).is_leader
    stage.finish()


def test_a_handover_wakes_the_group() -> None:
    stage = resting()
    stage.transfer(1, 3)
    (reply,) = stage.produce(3)
    assert reply.kind is Kind.APPENDED
    stage.finish()


def test_a_leader_that_stops_for_damage_while_at_rest_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader met a damaged entry; the node lives on, and must not speak for the replica."""
    stage = resting()
    node = stage.node(1)
    monkeypatch.setattr(node, "_look", lambda process: None)  # undamaged, none may stop
    node.partitions[GID].unreadable(CorruptionError("a damaged entry"))
    assert not stage.group(1).is_leader
    heard = Heard(stage)
    stage.free = True
    for other in (2, 3):
        stage.group(other).core.election_deadline = stage.node(other).clock() + 1.0
        stage.node(other).driver.touch(GID)
    stage.run(20.0)
    spoken_for = [m for sender, _, m in heard.messages if sender == 1 and isinstance(m, Heartbeat)]
    assert all(GID not in beat.groups for beat in spoken_for)
    assert any(stage.group(other).is_ready for other in (2, 3))


def test_a_quiescent_leader_is_deposed_by_a_message() -> None:
    """The leader wakes before it takes the message: its node must not speak for it afterwards."""
    stage = resting()
    stage.free = True
    term = stage.group(1).term
    stage.deliver(2, 1, Append(GID, term + 1, 0, 0, 0))
    assert not stage.group(1).is_leader
    assert not stage.group(1).is_quiescent
    heard = Heard(stage)
    stage.run(10.0)
    rows = [dict(zip(beat.groups, beat.terms, strict=True)) for beat in heard.of(Heartbeat)]
    terms = [row[GID] for row in rows if GID in row]
    assert terms
    assert min(terms) > term
    stage.finish()
