"""Schedules of learners that stay: they follow, and neither vote nor lead (ADR 123)."""

from __future__ import annotations

from contextlib import suppress

from cluster.consensus.configuration import ChangeRefusedError, ChangeStep
from cluster.consensus.message import Append, AppendReply, PreVoteReply, TimeoutNow, VoteReply
from cluster.consensus.port import NO_OP
from cluster.consensus.proposals import Abandoned, Outcome
from cluster.dedup.verdict import Kind
from tests.sim.checker import Violation
from tests.sim.membership.stage import Changing
from tests.sim.membership.survivor_schedules import told
from tests.sim.schedules import schedule
from tests.sim.stage import GID


def demoted(*nodes: int, founding: int = 5, **settings: int) -> Changing:
    """Builds a group that 1 leads, in which `nodes` have lost their votes."""
    stage = Changing(founding=founding, **settings)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    for node in nodes:
        stage.change(1, ChangeStep.DEMOTE, node)
    stage.run(1.0)
    return stage


def learners(stage: Changing, node: int) -> list[int]:
    return [one.node for one in stage.group(node).members.configuration.learners]


def holds_all(stage: Changing, *nodes: int) -> None:
    last = stage.group(1).applied_index
    behind = [node for node in nodes if stage.group(node).applied_index != last]
    if behind:
        raise Violation(f"{behind} have not applied entry {last}; {stage.describe()}")


# -- the way it goes ------------------------------------------------------------------------------


@schedule
def a_voter_becomes_a_learner_that_stays() -> None:
    """It applies all, also over a restart, and gets its vote back as the same replica."""
    stage = demoted(4, 5)
    assert stage.group(1).members.majority == 2
    stage.produce(1, 3)
    stage.run(1.0)
    holds_all(stage, 4, 5)
    stage.crash(5, keep=100)
    stage.produce(1, 2)
    stage.start(5)
    assert learners(stage, 5) == [4, 5] and not stage.group(5).members.is_voter
    stage.run(2.0)
    holds_all(stage, 4, 5)
    stage.change(1, ChangeStep.PROMOTE, 5)
    assert stage.group(5).config.instance == 0 and stage.group(1).members.majority == 3
    stage.settle()


@schedule
def learners_that_stay_lose_their_leader() -> None:
    """The voters elect; learners follow the next leader, though one of them has the longest log."""
    stage = demoted(4, 5)
    stage.hold(
        lambda sender, receiver, message: (
            receiver in (2, 3) and isinstance(message, Append) and bool(message.data)
        )
    )
    stage.send(1, stage.batch())
    stage.run(0.5)
    assert stage.group(4).journal.last_index > stage.group(2).journal.last_index
    stage.crash(1)
    stage.drop()
    stage.run(3.0)
    for node in (4, 5):
        stage.stands(node)
    if stage.leaders():
        raise Violation(f"{stage.leaders()} lead without a vote")
    stage.settle(gone=(1,))
    assert stage.leaders() in ([2], [3])


@schedule
def a_learner_behind_the_logs_start_stays_one() -> None:
    """It was away while it lost its vote, and gets that with a snapshot."""
    stage = Changing(founding=5, checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.crash(5)
    stage.change(1, ChangeStep.DEMOTE, 5)
    stage.produce(1, 12)
    for _ in range(3):
        stage.node(1).compact()
        stage.run(1.0)
    stage.start(5)
    stage.run(3.0)
    assert stage.cluster.installs == 1
    assert learners(stage, 5) == [5]
    stage.settle()


# -- replicas that count --------------------------------------------------------------------------


@schedule
def who_was_demoted_does_not_count() -> None:
    """{1,2,3} vote; 1 with the learners 4 and 5 commits nothing, as 2 and 3 go on without it."""
    stage = demoted(4, 5)
    stage.isolate(2, 3)
    lost = stage.send(1, stage.batch())
    stage.run(1.0)
    if lost.kind is Kind.APPENDED:
        raise Violation("two learners are counted as voters")
    stage.run(3.0)
    stage.elect(2)
    stage.produce(2, 2, pid=2)
    stage.settle()


@schedule
def votes_of_who_was_demoted_do_not_count() -> None:
    """2 knows that 4 and 5 have no vote: their grants are nothing to it."""
    stage = demoted(4, 5)
    stage.isolate(2, 4, 5)
    stage.produce(1, 2)
    stage.run(3.0)
    for _ in range(2):
        stage.stands(2)
        term = stage.group(2).term + 1
        for voter in (4, 5):
            stage.deliver(voter, 2, PreVoteReply(GID, term, True))
            stage.deliver(voter, 2, VoteReply(GID, term))
    if 2 in stage.leaders():
        raise Violation("2 is elected by learners")
    stage.settle()


@schedule
def who_was_demoted_unheard_elects_nobody() -> None:
    """4 and 5 were cut off meanwhile. Each asks the other, and 3, by the members of before."""
    stage = Changing(founding=5)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.isolate(4, 5)
    for node in (5, 4):
        stage.change(1, ChangeStep.DEMOTE, node)
    stage.produce(1, 2)
    stage.drop()
    stage.isolate(3, 4, 5)
    assert stage.group(4).members.version == stage.group(5).members.version == 0
    term = stage.group(1).term
    stage.run(3.0)
    for node in (4, 5, 3, 4, 5):
        stage.stands(node)
    if stage.leaders() != [1]:
        raise Violation(f"{stage.leaders()} lead, by members that are out of force")
    stage.produce(1)
    stage.settle()
    assert stage.group(1).term >= term and learners(stage, 4) == [5, 4]


@schedule
def who_was_demoted_still_answers() -> None:
    """4 of {1,2,3,4} alone knows that it is demoted, and 1 dies: 2 and 3 need 3 of 4."""
    stage = Changing(founding=4)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    # 2 and 3 have the entry, and do not hear that it is committed.
    stage.hold(
        lambda sender, receiver, message: (
            sender == 1 and receiver in (2, 3) and isinstance(message, Append) and not message.data
        )
    )
    stage.change(1, ChangeStep.DEMOTE, 4)
    stage.run(1.0)  # 4 hears it with a heartbeat
    assert stage.group(4).members.version == 1 and stage.group(2).members.version == 0
    stage.crash(1)
    stage.settle(gone=(1,))
    assert stage.leaders() in ([2], [3])


# -- a leader without a vote ----------------------------------------------------------------------


@schedule
def a_leader_that_is_demoted_hands_over() -> None:
    """To a voter that can stand at once; then it follows as a learner."""
    stage = demoted()
    stage.change(1, ChangeStep.DEMOTE, 1)
    stage.run(1.0)
    if len(stage.leaders()) != 1 or stage.leaders() == [1]:
        raise Violation(f"{stage.leaders()} lead after 1 lost its vote")
    stage.produce(stage.leaders()[0], 2)
    stage.run(1.0)
    assert stage.group(1).removed is None and learners(stage, 1) == [1]
    stage.settle()


@schedule
def a_demoted_leader_from_whom_nobody_takes_over_stops() -> None:
    """It takes nothing new, and leads no longer than it may wait; then it follows the next one."""
    stage = demoted()
    stage.hold(lambda sender, receiver, message: isinstance(message, TimeoutNow))
    stage.change(1, ChangeStep.DEMOTE, 1)
    assert stage.leaders() == [1]
    with suppress(ChangeRefusedError):
        stage.propose(1, ChangeStep.PROMOTE, 1)
        raise Violation("1 gives itself its vote back")
    lost = stage.send(1, stage.batch())
    stage.run(4.0)
    if lost.kind is Kind.APPENDED or stage.leaders():
        raise Violation(f"{stage.leaders()} lead, though 1 has no vote and nobody took over")
    if stage.group(1).removed is not None:
        raise Violation("1 has gone, and is a learner")
    stage.settle()
    assert stage.leaders() != [1] and learners(stage, 1) == [1]


@schedule
def a_demoted_leaders_callers_wait_for_the_log() -> None:
    """Its last entry reaches nobody: the next leader's takes its place, so it may be repeated."""
    stage, told = demoted(), list[Outcome]()
    group = stage.group(1)
    first = group.journal.last_index + 1

    def keep(*others: type) -> None:
        """Holds all that would make a successor, and the entries behind the first."""

        def matches(sender: int, receiver: int, message: object) -> bool:
            later = isinstance(message, Append) and message.terms and message.last_index > first
            return bool(later) or isinstance(message, (TimeoutNow, *others))

        stage.hold(matches)

    keep(AppendReply)
    stage.propose(1, ChangeStep.DEMOTE, 1)
    stage.run(0.05)
    group.propose(NO_OP, told.append, outlives_term=True)
    stage.node(1).driver.touch(GID)
    stage.run(0.05)
    assert group.journal.last_index == first + 1 and group.members.is_voter
    replies = [one for one in stage.held if isinstance(one[2], AppendReply)]
    stage.drop()
    keep()
    for sender, receiver, reply in replies:
        stage.deliver(sender, receiver, reply)
    stage.run(4.0)
    if stage.leaders() or told:
        raise Violation(f"1 follows, and has not heard the fate of its entry: {told}")
    stage.drop()
    stage.settle()
    if [isinstance(one, Abandoned) and one.lost for one in told] != [True]:
        raise Violation(f"its entry is not in the log, and 1 told {told}")


@schedule
def a_demoted_leader_does_not_rest() -> None:
    """Nobody wants anything of it, and all have everything: it stops in time nevertheless."""
    stage = demoted()
    stage.hold(lambda sender, receiver, message: isinstance(message, TimeoutNow))
    stage.change(1, ChangeStep.DEMOTE, 1)
    assert stage.leaders() == [1]
    stage.run(4.0)
    if stage.leaders():
        raise Violation(f"{stage.leaders()} lead at rest, though 1 has no vote")
    stage.settle()


# -- those left must work --------------------------------------------------------------------------


@schedule
def who_votes_on_is_a_majority_that_answers() -> None:
    """{1,2,3} and 2 is dead: without the vote of 3 nothing is committed until 2 is back."""
    stage = demoted(founding=3)
    stage.crash(2)
    stage.run(3.0)
    with suppress(ChangeRefusedError):
        stage.propose(1, ChangeStep.DEMOTE, 3)
    stage.run(0.5)
    sent = stage.send(1, stage.batch())
    stage.run(2.0)
    if sent.kind is not Kind.APPENDED:
        raise Violation("3 was demoted, and the other voters commit nothing")
    # The other way about: a silent voter's place is taken by a learner, then it loses its vote.
    stage.learn(1, 4)
    stage.change(1, ChangeStep.PROMOTE, 4)
    stage.change(1, ChangeStep.DEMOTE, 2)
    assert stage.group(1).members.majority == 2
    stage.produce(1)
    stage.settle(gone=(2,))


@schedule
def a_learner_takes_the_place_of_one_of_two() -> None:
    """{1,2} and the learner 3: 2 is lost for good, 1 goes on alone, and 3 gets its vote."""
    stage = demoted(3, founding=3, smallest_majority=1)
    stage.change(1, ChangeStep.CONFIRM, 1)
    stage.produce(1, 2)
    stage.run(1.0)
    stage.crash(2)
    stage.run(3.0)
    for node in (1, 3):
        told(stage, node, {(2, 0)})
    if stage.leaders() != [1]:
        raise Violation(f"{stage.leaders()} lead: 1 has everything, and 3 no vote")
    for step in (ChangeStep.DEMOTE, ChangeStep.REMOVE):
        with suppress(ChangeRefusedError):
            stage.propose(1, step, 1)
            raise Violation("1 leaves the decision to 2, which is lost")
    stage.remove(1, 2)
    stage.change(1, ChangeStep.PROMOTE, 3)
    stage.produce(1)
    assert stage.members() == [1, 3]
    stage.settle(gone=(2,))


# -- rest -----------------------------------------------------------------------------------------


@schedule
def a_group_with_learners_rests() -> None:
    """Learners that have all are rows as voters are, and wake it once they lack something."""
    stage = demoted(4, 5)
    stage.run(3.0)
    if not stage.group(1).is_quiescent:
        raise Violation("learners that have everything keep the group awake")
    term = stage.group(1).term
    stage.crash(5)
    stage.produce(1)
    stage.run(3.0)
    if not stage.group(1).is_quiescent:
        raise Violation("a learner that is down keeps the group awake")
    stage.start(5)
    stage.run(3.0)
    holds_all(stage, 4, 5)
    assert stage.group(1).is_quiescent and stage.group(1).term == term
    stage.settle()


@schedule
def a_group_does_not_rest_with_a_learner_behind() -> None:
    """5 hears nothing of the newest entry, and nobody notices that; it gets it later."""
    stage = demoted(4, 5)
    stage.hold(lambda sender, receiver, message: receiver == 5)
    stage.produce(1)
    stage.run(5.0)
    stage.drop()
    stage.run(3.0)
    holds_all(stage, 4, 5)
    stage.settle()


@schedule
def a_learner_at_rest_can_get_its_vote() -> None:
    """4 answers for all entries before it applies the last one, a configuration."""
    stage = demoted(founding=3)
    stage.learn(1, 4)
    slow = stage.group(4)
    slow._apply = lambda: None  # type: ignore[method-assign]
    stage.change(1, ChangeStep.DEMOTE, 3)
    stage.run(3.0)
    del slow._apply
    stage.node(4).driver.touch(GID)
    stage.run(3.0)
    assert stage.group(4).members.version == 2 and stage.group(1).is_quiescent
    stage.change(1, ChangeStep.PROMOTE, 4)
    stage.settle()


@schedule
def a_learner_that_falls_silent_wakes_its_group() -> None:
    """Its row is answered by nobody; it restarts unnoticed, and is not promoted on old answers."""
    stage = demoted(4, 5)
    stage.run(3.0)
    assert stage.group(1).is_quiescent and stage.group(1).is_responsive(5)
    stage.isolate(5)
    stage.run(3.0)
    if stage.group(1).is_quiescent or stage.group(1).is_responsive(5):
        raise Violation("a learner that answers nothing is taken for a living one")
    with suppress(ChangeRefusedError):
        stage.propose(1, ChangeStep.PROMOTE, 5)
    stage.run(0.5)
    assert learners(stage, 1) == [4, 5]
    stage.drop()
    stage.run(3.0)
    assert stage.group(1).is_quiescent and stage.group(1).is_responsive(5)
    stage.settle()
