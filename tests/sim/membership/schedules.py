"""Directed schedules of changed members: the rules R1 to R8 of ADR 0038, and a model's findings.

`weak.py` plants the weakness that each of them catches.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from cluster.consensus import leader_term
from cluster.consensus.configuration import ChangeRefusedError, ChangeStep, ConfigurationChange
from cluster.consensus.message import (
    Append,
    AppendReply,
    PreVoteReply,
    Removed,
    TimeoutNow,
    VoteReply,
)
from cluster.consensus.port import NO_OP
from cluster.consensus.proposals import MAX_SLICE_ENTRIES
from cluster.dedup.verdict import Kind
from tests.sim.checker import Violation
from tests.sim.membership.stage import Changing
from tests.sim.schedules import schedule
from tests.sim.stage import GID

# -- the way it goes ----------------------------------------------------------------------


@schedule
def grow_and_shrink() -> None:
    """1 -> 3 -> 5 -> 3 -> 1, the leader among those that go."""
    stage = Changing(founding=1, smallest_majority=1)
    stage.elect(1)
    stage.produce(1, 3)
    for node in (2, 3, 4, 5):
        stage.add(1, node)
        stage.produce(1)
    assert stage.members() == [1, 2, 3, 4, 5]
    stage.remove(1, 4)
    stage.remove(1, 1)
    stage.run(2.0)
    (leader,) = stage.leaders()
    assert leader != 1 and stage.group(1).removed is not None
    stage.produce(leader, 2)
    for node in (2, 3, 5):
        if node != leader and len(stage.members()) > 1:
            stage.remove(leader, node)
    assert stage.members() == [leader]
    stage.produce(leader)
    stage.settle()


@schedule
def a_learner_behind_the_logs_start_gets_a_snapshot() -> None:
    """The snapshot's base is older than the learner's instance, which must not seem removed."""
    stage = Changing(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1, 12)
    for _ in range(2):
        stage.node(1).compact()
        stage.run(1.0)
    stage.remove(1, 3)
    stage.add(1, 4)
    base = stage.group(1).journal.configuration_at(stage.group(1).journal.base_index)
    assert base.configuration.version == 0 and stage.cluster.installs == 1
    assert stage.members() == [1, 2, 4]
    stage.crash(4)
    stage.start(4)
    assert stage.group(4).members.is_voter
    stage.settle()


@schedule
def a_snapshot_carries_the_configuration() -> None:
    """The entries that made it are gone; a node that installs it keeps it over a restart."""
    stage = Changing(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.crash(3)
    stage.add(1, 4)
    stage.remove(1, 3)
    stage.produce(1, 12)
    for _ in range(3):
        stage.node(1).compact()
        stage.run(1.0)
    stage.assign(5, n5=4)
    stage.change(1, ChangeStep.ADD, 5)
    stage.run(2.0)
    assert stage.cluster.installs == 1
    stage.crash(5)
    stage.start(5)
    journal = stage.group(5).journal
    first = journal.configuration_at(journal.base_index).configuration
    assert [one.node for one in first.voters] == [1, 2, 4], first
    stage.run(1.0)
    stage.change(1, ChangeStep.PROMOTE, 5)
    stage.settle(gone=(3,))


@schedule
def a_node_comes_back_as_another_replica() -> None:
    """Removed and taken back under the same directory: nothing of the older one is used."""
    stage = Changing()
    stage.elect(1)
    stage.produce(1, 3)
    stage.remove(1, 3)
    stage.bury(3, 1)
    assert not stage.holds(3) and GID in stage.node(3).driver.tombstones
    stage.produce(1)
    stage.add(1, 3)
    assert stage.group(3).config.instance == 2
    stage.crash(3)
    stage.start(3)
    assert stage.group(3).members.is_voter
    stage.remove(1, 2)
    stage.produce(1)
    stage.settle()


@schedule
def a_tombstone_outlives_a_restart() -> None:
    """The metadata of a node that starts may still have the replica: it does not open it."""
    stage = Changing()
    stage.elect(1)
    stage.remove(1, 3)
    before = stage.record
    stage.bury(3, 1)
    stage.crash(3, keep=10)
    stage.start(3)
    assert GID in stage.node(3).driver.tombstones
    stage.record = replace(before, version=1)
    stage.tell(3)
    stage.run(1.0)
    if stage.holds(3):
        raise Violation("a replica that was removed is opened again, empty")
    stage.settle()


# -- R1 to R8 -------------------------------------------------------------------------------------


@schedule
def one_change_at_a_time() -> None:
    """R1: the next one is refused until the one before is in force, and on an older version."""
    stage = Changing()
    stage.hold(lambda sender, receiver, message: isinstance(message, AppendReply))
    stage.campaign(1)
    assert stage.group(1).core.is_leader and not stage.group(1).is_ready
    _refused(stage, ChangeStep.ADD, 4)
    stage.release()
    stage.run(1.0)
    stage.hold(lambda sender, receiver, message: isinstance(message, AppendReply))
    stage.propose(1, ChangeStep.ADD, 4)
    _refused(stage, ChangeStep.REMOVE, 3)
    stage.run(0.2)
    _refused(stage, ChangeStep.REMOVE, 3)
    stage.release()
    stage.run(0.5)
    stage.remove(1, 3)
    with pytest.raises(ChangeRefusedError, match="version 1 is not in force") as refused:
        stage.group(1).change(
            ConfigurationChange(ChangeStep.REMOVE, 2, expected=1), lambda outcome: None
        )
    assert refused.value.configuration.version == 2
    stage.remove(1, 4)
    stage.settle()


def _refused(stage: Changing, step: ChangeStep, node: int) -> None:
    try:
        stage.propose(1, step, node)
    except ChangeRefusedError:
        return
    raise Violation("two changes are under way together")


@schedule
def a_change_waits_behind_much_else() -> None:
    """It is not in the next slice: until it is appended, no other one is taken."""
    stage = Changing(founding=5)
    stage.elect(1)
    stage.produce(1)
    stage.run(0.1)
    group, driver, before = stage.group(1), stage.node(1).driver, stage.group(1).applied_index
    answers: list[Any] = []
    for _ in range(MAX_SLICE_ENTRIES + 1):
        group.propose(NO_OP, answers.append)
    stage.propose(1, ChangeStep.REMOVE, 5)
    driver.begin()
    assert group.journal.last_index == before + MAX_SLICE_ENTRIES
    assert group.journal.configurations[-1].index == 0, "the change is in the first slice"
    _refused(stage, ChangeStep.REMOVE, 4)
    stage.run(1.0)
    assert len(answers) == MAX_SLICE_ENTRIES + 1
    assert stage.members() == [1, 2, 3, 4]
    stage.settle()


@schedule
def nobody_stands_with_an_unapplied_configuration() -> None:
    """R2: 3 has heard that 5, then 4 is removed, and has not applied it; {1, 2} go on alone."""
    stage = Changing(founding=5)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    slow = stage.group(3)
    slow._apply = lambda: None  # type: ignore[method-assign]
    stage.isolate(4, 5)
    stage.change(1, ChangeStep.REMOVE, 5)
    stage.change(1, ChangeStep.REMOVE, 4)
    assert slow.members.version == 0 and slow.journal.configurations[-1].configuration.version == 2
    stage.drop()
    stage.isolate(3, 4, 5)
    stage.produce(1, 2)
    stage.run(3.0)
    stage.stands(3)
    stage.stands(3)
    if 3 in stage.leaders():
        raise Violation("3 leads by a configuration that is out of force")
    ask = next(iter(stage.group(1)._leading.ask_successor({2})))[1]  # type: ignore[union-attr]
    stage.deliver(1, 3, ask)
    stage.run(0.3)
    if 3 in stage.leaders():
        raise Violation("3 leads by a configuration that is out of force, when asked to")
    del slow._apply
    stage.settle()


@schedule
def a_restart_knows_the_configuration_before() -> None:
    """R3: 2 leads {1,2,3}: 3 removed, 4 added at 1, too; 1 restarts, {2,4} go on, 1 asks 3."""
    stage = Changing()
    stage.elect(2)
    stage.produce(2)
    stage.run(1.0)
    stage.isolate(3)
    stage.remove(2, 3)
    stage.learn(2, 4)
    stage.change(2, ChangeStep.PROMOTE, 4)
    stage.run(0.5)
    stage.crash(1)
    stage.produce(2, 2)
    stage.drop()
    stage.isolate(1, 3)
    stage.start(1)
    stage.run(3.0)
    for _ in range(3):
        stage.stands(1)
    if 1 in stage.leaders():
        raise Violation("1 leads by a configuration that was out of force before it restarted")
    stage.settle()


@schedule
def a_lone_voter_leads_once_its_own_vote_is_durable() -> None:
    """1 stands by the configuration before, in which it is alone, and forgets that it did."""
    stage = Changing(founding=1, nodes=3, smallest_majority=1)
    stage.elect(1)
    stage.produce(1, 2)
    stage.learn(1, 2)
    quick = stage.node(1).sync_time
    stage.slow_disk(1, 0.1)
    stage.propose(1, ChangeStep.PROMOTE, 2)
    while stage.group(1).journal.configurations[-1].configuration.version < 2:
        stage.cluster.scheduler.run_until(stage.cluster.scheduler.now + 0.0001)
    stage.slow_disk(1)  # from the next sync on
    stage.send(1, stage.batch())  # with it 2 hears that it has a vote
    stage.run(0.5)
    assert stage.group(2).members.version == 2
    stage.crash(1)
    stage.node(1).sync_time = quick
    stage.start(1)
    assert stage.group(1).members.is_alone, "that 2 has a vote was not on its disk"
    stage.slow_disk(1)
    stage.stands(1)
    assert stage.group(1).core.is_leader and not stage.leaders()
    stage.crash(1)
    stage.node(1).sync_time = quick
    stage.start(1)
    stage.stands(2)
    stage.run(1.0)
    assert stage.leaders() == [2], "in that term"
    stage.settle()


@schedule
def votes_of_learners_do_not_count() -> None:
    """R4: 2 and the learner 4 are no majority of {1,2,3}."""
    stage = Changing()
    stage.elect(1)
    stage.learn(1, 4)
    stage.produce(1)
    stage.run(1.0)
    stage.isolate(2, 4)
    stage.produce(1, 2)
    stage.run(3.0)
    _elect_by(stage, 4, instance=1)
    if 2 in stage.leaders():
        raise Violation("2 is elected by a learner")
    stage.settle()


@schedule
def votes_of_removed_replicas_do_not_count() -> None:
    """R4: 2 knows that 4 and 5 are removed; their votes are nothing to it."""
    stage = Changing(founding=5)
    stage.elect(1)
    stage.run(1.0)
    stage.isolate(4, 5)
    stage.remove(1, 5)
    stage.remove(1, 4)
    stage.drop()
    stage.isolate(2, 4, 5)
    stage.produce(1, 2)
    stage.run(3.0)
    _elect_by(stage, 4)
    _elect_by(stage, 5)
    if 2 in stage.leaders():
        raise Violation("2 is elected by removed replicas")
    stage.settle()


def _elect_by(stage: Changing, voter: int, instance: int = 0) -> None:
    """Has 2 stand, and `voter` grant all that it might ask for."""
    stage.stands(2)
    term = stage.group(2).term + 1
    stage.deliver(voter, 2, PreVoteReply(GID, term, True, from_instance=instance))
    stage.deliver(voter, 2, VoteReply(GID, term, from_instance=instance))


@schedule
def a_leader_removes_itself_from_two() -> None:
    """R5, R7: 2 has the entry and does not know that it is committed; it needs 1 to know."""
    stage = Changing(founding=2, smallest_majority=1)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    # Messages that tell 2 of the commit, or ask it to stand, are lost.
    stage.hold(
        lambda sender, receiver, message: (
            sender == 1 and not (isinstance(message, Append) and message.data)
        )
    )
    stage.propose(1, ChangeStep.REMOVE, 1)
    stage.run(4.0)
    if stage.leaders():
        raise Violation(f"{stage.leaders()} lead, though 1 was removed and nobody took over")
    stage.settle()
    assert stage.leaders() == [2]


@schedule
def a_leader_that_is_removed_hands_over() -> None:
    """R5: to one that can stand at once, so that nobody waits for an election timeout."""
    stage = Changing()
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.change(1, ChangeStep.REMOVE, 1)
    stage.run(1.0)
    if len(stage.leaders()) != 1 or stage.leaders() == [1]:
        raise Violation(f"{stage.leaders()} lead after 1 was removed")
    stage.produce(stage.leaders()[0])
    stage.settle()


@schedule
def of_two_voters_none_goes_without_the_other() -> None:
    """R6: an entry that only 1 knows is not in force, and the last voter is not removed."""
    stage = Changing(founding=2, smallest_majority=1)
    stage.elect(1)
    stage.produce(1)
    stage.crash(2)
    stage.propose(1, ChangeStep.REMOVE, 2)
    lost = stage.send(1, stage.batch())
    stage.run(5.0)
    if lost.kind is Kind.APPENDED:
        raise Violation("1 acknowledges alone")
    stage.start(2)
    stage.elect(1)
    stage.run(1.0)
    assert stage.members() == [1], "it was committed by both"
    try:
        stage.propose(1, ChangeStep.REMOVE, 1)
    except ChangeRefusedError:
        pass
    else:
        raise Violation("the last voter may be removed")
    stage.settle()


@schedule
def who_was_removed_proves_it() -> None:
    """R7: remove 4 of {1,2,3,4}; 4 hears that it is done and goes, 1 dies; 2 and 3 need 3 of 4."""
    for buried in (False, True):
        stage = Changing(founding=4)
        stage.elect(1)
        stage.produce(1)
        stage.run(1.0)
        stage.isolate(3)
        # 2 has the entry, and does not hear that it is committed: messages of 4 are lost, too.
        stage.hold(
            lambda sender, receiver, message: (
                (sender, receiver) == (1, 2) and isinstance(message, Append) and not message.data
            )
        )
        stage.hold(lambda sender, receiver, message: isinstance(message, Removed))
        # 4 is told once more by the leader.
        stage.propose(1, ChangeStep.REMOVE, 4)
        stage.run(0.02)
        commit = stage.group(1).journal.last_index
        place = (commit, stage.group(1).term)
        stage.run(0.3)
        stage.deliver(1, 4, Append(GID, stage.group(1).term, *place, commit))
        assert stage.group(4).removed is not None and stage.group(2).members.version == 0
        if buried:
            stage.bury(4, 1)
            stage.crash(4, keep=10)
            stage.start(4)
        stage.crash(1)
        stage.settle(gone=(1,))
        assert stage.members() == [1, 2, 3]


@schedule
def an_older_snapshot_than_what_is_known_is_taken() -> None:
    """R8: 1 alone has logged a change; the others go on without it, and compact."""
    stage = Changing(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.isolate(1)
    stage.propose(1, ChangeStep.ADD, 4)
    stage.run(4.0)
    assert stage.group(1).journal.configurations[-1].configuration.version == 1
    stage.elect(2)
    stage.produce(2, 12)
    for _ in range(2):
        stage.node(2).compact()
        stage.run(1.0)
    stage.settle()
    assert stage.cluster.installs > 0
    assert stage.group(1).members.version == 0


# -- findings of a model (ADR 0038) ----------------------------------------------------------------


@schedule
def an_older_instance_does_not_vote() -> None:
    """5 is removed by {1,4,5}, wiped, and asked again; 2 has heard of nothing, and asks 3 and 5."""
    stage = Changing(founding=5)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.isolate(2, 3)
    stage.remove(1, 5)
    stage.wipe(5)
    stage.drop()
    stage.isolate(1, 4)
    stage.start(5)
    stage.assign(5, n5=2)
    assert stage.holds(5)
    stage.run(3.0)
    for _ in range(3):
        stage.stands(2)
    if 2 in stage.leaders():
        raise Violation("2 is elected by a replica that has lost what it acknowledged")
    stage.settle()


@schedule
def who_is_not_known_is_voted_for() -> None:
    """{1,2,3}, 4 added and 2 removed while 3 is cut off; 1 dies: 3 does not know 4."""
    stage = Changing()
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.isolate(3)
    stage.learn(1, 4)
    stage.change(1, ChangeStep.PROMOTE, 4)
    stage.run(0.5)
    stage.remove(1, 2)
    stage.bury(2, 1)
    stage.crash(1)
    stage.settle(gone=(1,))
    assert stage.members() == [1, 3, 4]


@schedule
def leadership_goes_to_who_has_the_configuration_in_force() -> None:
    """Asked before that, it may not stand, and all wait for it."""
    stage = Changing(founding=4)
    stage.elect(1)
    stage.run(1.0)
    slow = stage.group(2)
    slow._apply = lambda: None  # type: ignore[method-assign]
    stage.change(1, ChangeStep.REMOVE, 4)
    before = stage.group(2).term
    stage.group(1).transfer(2)
    stage.node(1).driver.touch(GID)
    stage.hold(lambda sender, receiver, message: isinstance(message, TimeoutNow))
    stage.run(0.5)
    if stage.held or stage.group(2).term != before:
        raise Violation("2 is asked to lead before the configuration is in force there")
    del slow._apply
    stage.drop()
    stage.run(1.0)
    stage.settle()


@schedule
def who_was_removed_unheard_learns_it_from_an_answer_to_its_poll() -> None:
    """4 has the entry that removes it; the leader has dropped it and tells it nothing more."""
    stage = Changing(founding=4)
    stage.elect(1)
    stage.run(1.0)
    stage.hold(
        lambda sender, receiver, message: (
            receiver == 4 and isinstance(message, Append) and not message.data
        )
    )
    stage.change(1, ChangeStep.REMOVE, 4)
    stage.drop()
    stage.produce(1, 2)
    assert stage.group(4).removed is None
    stage.run(3.0)
    stage.stands(4)
    if stage.group(4).removed is None:
        raise Violation("4 asks for votes for ever")
    stage.settle()


@schedule
def two_changes_while_one_voter_is_cut_off() -> None:
    stage = Changing(founding=4)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.isolate(3)
    stage.remove(1, 4)
    stage.add(1, 5)
    stage.produce(1, 2)
    stage.crash(1)
    stage.settle(gone=(1,))
    assert stage.members() == [1, 2, 3, 5]


# -- members left after a change must work -----------------------------------------------------


@schedule
def who_is_left_is_a_majority_that_answers() -> None:
    """{1,2,3} and 2 is dead: without 3 nothing is committed until 2 is back, not even a way out."""
    stage = Changing()
    stage.elect(1)
    stage.produce(1)
    stage.crash(2)
    stage.run(3.0)
    _goes_on_without(stage, 3)
    stage.start(2)
    stage.run(1.0)
    stage.remove(1, 3)
    stage.settle()


@schedule
def who_is_left_holds_what_is_committed() -> None:
    """{1,2,3} and 2 is far behind: without 3 all writes wait until 2 has caught up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader_term, "WITHIN_ENTRIES", 5)
        stage = Changing()
        stage.elect(1)
        stage.run(1.0)
        stage.hold(
            lambda sender, receiver, message: (
                receiver == 2 and isinstance(message, Append) and bool(message.data)
            )
        )
        stage.produce(1, 10)
        assert stage.group(1).is_responsive(2), "it answers what has no entries"
        _goes_on_without(stage, 3)
        stage.release()
        stage.run(1.0)
        stage.remove(1, 3)
        stage.settle()


def _goes_on_without(stage: Changing, node: int) -> None:
    """Asks 1 to remove it; later batches are acknowledged all the same."""
    with suppress(ChangeRefusedError):
        stage.propose(1, ChangeStep.REMOVE, node)
    stage.run(0.5)
    sent = stage.send(1, stage.batch())
    stage.run(2.0)
    if sent.kind is not Kind.APPENDED:
        raise Violation(f"{node} was removed, and who is left commits nothing")


@schedule
def a_learner_that_does_not_answer_gets_no_vote() -> None:
    """1 alone fills 2, which dies: as a voter it would be needed for all that follows."""
    stage = Changing(founding=1, smallest_majority=1)
    stage.elect(1)
    stage.produce(1, 3)
    stage.learn(1, 2)
    stage.crash(2)
    stage.run(3.0)
    with suppress(ChangeRefusedError):
        stage.propose(1, ChangeStep.PROMOTE, 2)
    stage.run(0.5)
    sent = stage.send(1, stage.batch())
    stage.run(2.0)
    if sent.kind is not Kind.APPENDED:
        raise Violation("a dead learner is a voter now, and 1 waits for it")
    stage.start(2)
    stage.run(1.0)
    stage.change(1, ChangeStep.PROMOTE, 2)
    stage.settle()
