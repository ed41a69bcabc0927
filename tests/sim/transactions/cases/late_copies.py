"""Cases 1 to 13: late copies, repeats, leaders that go."""

from __future__ import annotations

from cluster.entries import MARKER
from tests.sim.transactions.cases.registry import case, opened, same, staged
from tests.sim.transactions.clients import command
from tests.sim.transactions.stage import NOT_YET, Stage
from tests.sim.transactions.world import METADATA, Call


@case
def c01_staged_batch_after_the_abort_marker() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    other = stage.begin("q", opened(stage, "q", (1,)))  # keeps open_low down
    same(stage.put(1, holder, number, 0, 1), "STAGED")
    stage.abort(number, holder)
    for again in (lambda: None, lambda: stage.elect(1), lambda: stage.group(1).restart(0)):
        again()
        same(stage.put(1, holder, number, 0, 1), "TRANSACTION_ABORTED")
        same(stage.put(1, holder, number, 2, 3), "TRANSACTION_ABORTED")
    stage.group(1).install(1 - stage.group(1).lead)
    stage.elect(1)
    same(stage.put(1, holder, number, 0, 1), "TRANSACTION_ABORTED")
    same(stage.readable(1), [])
    assert other > number
    stage.finish()


@case
def c01_staged_batch_proposed_behind_the_marker() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    stage.begin("q", opened(stage, "q", (1,)))
    number = stage.begin("p", holder)
    same(stage.put(1, holder, number, 0, 1), "STAGED")
    stage.send(command("abort", transaction_id=number, holder=holder, reason="owner"))
    stage.step_until_pending(METADATA)
    stage.group(METADATA).commit()
    stage.step_until_pending(1)
    late = stage.send(stage.batch(1, holder, number, 2, 3))
    stage.step_until_pending(1, 2)
    stage.world.settle()
    same(late.kind, "TRANSACTION_ABORTED")
    stage.finish()


@case
def c02_staged_batch_where_nobody_remembers_the_transaction() -> None:
    stage = Stage(2)
    holder = opened(stage)
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.abort(number, holder)
    stage.begin("p", holder)
    assert stage.coordinator.get(number) is None
    same(stage.put(2, holder, number, 0, 1), "TRANSACTION_ENDED")
    stage.finish()


@case
def c03_commit_delayed_until_the_next_transaction() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    first = stage.begin("p", holder)
    stage.put(1, holder, first, 0, 1)
    late = stage.commit_call(first, holder, (1, 2, 1))
    stage.abort(first, holder)
    second = stage.begin("p", holder)
    stage.put(1, holder, second, 0, 1)
    assert stage.ask(late).answer[0] in ("TRANSACTION_ABORTED", "UNKNOWN_TRANSACTION")
    row = stage.coordinator.get(second)
    assert row is not None
    same(row.state.name, "OPEN")
    same(stage.readable(1), [])
    stage.commit(second, holder, (1, 2, 1))
    same(stage.readable(1), [(0, second), (1, second)])
    stage.finish()


@case
def c04_abort_delayed_until_after_the_commit() -> None:
    stage, holder, number = staged()
    stage.commit(number, holder, (1, 2, 1))
    same(stage.abort(number, holder).kind, "TRANSACTION_COMMITTED")
    same(len(stage.readable(1)), 2)
    stage.finish()


@case
def c05_commit_repeated_over_leader_changes() -> None:
    stage = Stage(2)
    holder = opened(stage)
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.put(2, holder, number, 0, 4)
    answers = []
    for _ in range(100):
        answers.append(stage.commit(number, holder, (1, 2, 1), (2, 5, 4)).answer)
        stage.elect(METADATA)
    assert all(answer == answers[0] for answer in answers), answers
    same(answers[0][1][2][1][0].records, 5)
    same((len(stage.readable(1)), len(stage.readable(2))), (2, 5))
    stage.finish()


@case
def c05_commit_that_begins_the_next_one_is_repeated() -> None:
    """A commit's answer was lost; only its owner's doubt keeps the first transaction in mind."""
    stage = Stage(2)
    holder = opened(stage)
    number = stage.begin("p", holder, nonce=1)
    stage.put(1, holder, number, 0, 1)
    answers = []
    for again in (lambda: None, lambda: stage.elect(METADATA), lambda: stage.group(0).restart(0)):
        again()
        answers.append(stage.commit(number, holder, (1, 2, 1), next_nonce=2).answer)
    assert answers[0] == answers[1] == answers[2], answers
    following = answers[0][3]
    same(following, stage.begin("p", holder, nonce=2))
    same(stage.put(1, holder, following, 2, 4), "STAGED")
    third = stage.commit(following, holder, (1, 3, 4), next_nonce=3).answer[3]
    assert stage.coordinator.get(number) is None, "its owner knows by now"
    assert stage.coordinator.get(following) is not None
    stage.abort(third, holder)
    same(len(stage.readable(1)), 5)
    stage.finish()


@case
def c05_next_one_that_cannot_begin() -> None:
    """The commit stands."""
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder, nonce=1)
    stage.put(1, holder, number, 0, 1)
    stage.lease("p")
    same(stage.commit(number, holder, (1, 2, 1), next_nonce=2).kind, "TRANSACTION_ABORTED")
    assert stage.coordinator.open_of("p") is None
    other = opened(stage, "q", (1,))
    number = stage.begin("q", other, nonce=5)
    answer = stage.commit(number, other, next_nonce=4).answer
    same((answer[0], answer[3]), ("VISIBLE", 0))
    stage.finish()


@case
def c06_leader_of_a_partition_goes_at_each_step() -> None:
    for step in range(4):
        stage = Stage(1)
        holder = opened(stage, groups=(1,))
        number = stage.begin("p", holder)
        call = stage.batch(1, holder, number, 0, 1)
        asked = stage.send(call)
        if step == 0:  # registered, nothing proposed
            stage.hold("propose_metadata")
            stage.world.settle()
        else:
            stage.group(METADATA).commit(9)
            stage.step_until_pending(METADATA)
            stage.group(METADATA).commit(9)
            stage.step_until_pending(1)
        stage.elect(1, survivors=1 if step == 2 else 0)
        stage.release()
        answer = asked.answer
        while answer is NOT_YET or not hasattr(answer, "kind"):
            answer = stage.ask(call).answer
        assert answer.kind.name in ("STAGED", "STAGED_DUPLICATE"), answer
        commit = stage.send(stage.commit_call(number, holder, (1, 2, 1)))
        stage.world.hold = lambda c: c.method == "write_markers"
        stage.world.settle()
        stage.elect(1, survivors=step % 2)
        stage.release()
        same(commit.answer[0], "VISIBLE")
        same(len(stage.readable(1)), 2)
        stage.finish()


@case
def c07_metadata_leader_goes_around_the_decision() -> None:
    for survivors in (0, 1):
        stage, holder, number = staged(2)
        call = stage.commit_call(number, holder, (1, 2, 1), (2, 2, 1))
        stage.send(call)
        stage.step_until_pending(METADATA)
        stage.elect(METADATA, survivors)
        same(len(stage.readable(1)), 2 * survivors)
        same(len(stage.readable(2)), 2 * survivors)
        same(stage.ask(call).answer[0], "VISIBLE")
        stage.finish()


@case
def c07_metadata_leader_goes_after_one_marker_of_many() -> None:
    stage = Stage(40)
    groups = tuple(stage.parts)
    holder = opened(stage, groups=groups)
    number = stage.begin("p", holder)
    for group in groups:
        stage.put(group, holder, number, 0, 0)
    marked = []

    def all_but_one(call: Call) -> bool:
        if call.method == "write_markers":
            marked.append(call.group)
        return call.method == "write_markers" and len(marked) > 1

    stage.world.hold = all_but_one
    call = stage.commit_call(number, holder, *((group, 1, 0) for group in groups))
    stage.ask(call)
    same(sum(len(stage.readable(group)) for group in groups), 1)
    stage.world.held.clear()
    stage.world.hold = lambda call: False
    stage.elect(METADATA)
    same([len(stage.readable(group)) for group in groups], [1] * 40)
    stage.finish()


@case
def c07_marker_is_proposed_twice() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    stage.begin("q", opened(stage, "q", (1,)))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.send(stage.commit_call(number, holder, (1, 2, 1)))
    stage.step_until_pending(METADATA)
    stage.group(METADATA).commit()
    stage.step_until_pending(1)
    stage.elect(METADATA)  # the new one sends it, too
    markers = [entry for entry in stage.group(1).log if entry[0] == MARKER]
    same(len(markers), 2)
    same(stage.readable(1), [(0, number), (1, number)])
    stage.finish()


@case
def c08_partition_cut_off_from_the_coordinator_for_long() -> None:
    stage, holder, number = staged(2)
    stage.world.hold = lambda call: call.method == "write_markers" and call.group == 2
    asked = stage.ask(stage.commit_call(number, holder, (1, 2, 1), (2, 2, 1)))
    for _ in range(3):
        stage.world.now += 5000.0
        stage.world.settle()
    same((len(stage.readable(1)), len(stage.readable(2)), asked.answer), (2, 0, NOT_YET))
    stage.release()
    same(len(stage.readable(2)), 2)
    same(asked.answer[0], "VISIBLE")
    stage.finish()


@case
def c09_aborted_sequences_are_sent_again() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    same(stage.put(1, holder, 0, 0, 4), "APPENDED")
    first = stage.begin("p", holder)
    same(stage.put(1, holder, first, 5, 9), "STAGED")
    stage.abort(first, holder)
    second = stage.begin("p", holder)
    same(stage.put(1, holder, second, 5, 9), "STAGED")
    stage.commit(second, holder, (1, 5, 9))
    same(stage.readable(1)[5:], [(n, second) for n in range(5, 10)])
    stage.finish()


@case
def c10_old_copy_beside_the_same_sequences_in_flight() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    first = stage.begin("p", holder)
    stage.put(1, holder, first, 0, 1)
    stage.abort(first, holder)
    second = stage.begin("p", holder)
    stage.ask(command("register", transaction_id=second, holder=holder, group=1))
    stage.group(1).machine.registered(second)
    new = stage.send(stage.batch(1, holder, second, 0, 1))
    stage.step_until_pending(1)
    old = stage.send(stage.batch(1, holder, first, 0, 1))
    stage.world.settle()
    same((new.kind, old.kind), ("STAGED", "TRANSACTION_ABORTED"))
    stage.finish()


@case
def c11_same_sequences_other_content_inside_a_run() -> None:
    stage, holder, number = staged()
    same(stage.put(1, holder, number, 0, 1), "STAGED_DUPLICATE")
    same(stage.ask(stage.batch(1, holder, number, 0, 1, "other")).kind, "SEQUENCE_CONFLICT")
    stage.finish()


@case
def c12_committed_batches_are_repeated_after_the_window() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    stage.begin("q", opened(stage, "q", (1,)))  # keeps open_low down
    number = stage.begin("p", holder)
    for first in range(0, 20, 2):
        stage.put(1, holder, number, first, first + 1)
    stage.commit(number, holder, (1, 20, 19))
    for first in (0, 18):
        answer = stage.ask(stage.batch(1, holder, number, first, first + 1)).answer
        same((answer.kind.name, answer.base_offset), ("DUPLICATE", first))
    same(stage.put(1, holder, number, 20, 21), "TRANSACTION_ENDED")
    same(stage.put(1, holder, 0, 20, 21), "APPENDED")
    stage.finish()


@case
def c13_commit_before_the_tail_has_arrived() -> None:
    stage, holder, number = staged()
    same(stage.commit(number, holder, (1, 4, 3)).kind, "COMMIT_INCOMPLETE")
    same(stage.put(1, holder, number, 2, 3), "STAGED")
    same(stage.commit(number, holder, (1, 4, 3)).kind, "VISIBLE")
    same(len(stage.readable(1)), 4)
    stage.finish()
