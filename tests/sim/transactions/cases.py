"""Directed cases: each broke somebody's transactions, or a first design of ours.

The numbers are those of the list in ADR 32, which says what each is about and which of them
need more than these machines. A case is a function that plays on a Stage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.transactions.types import Holder
from tests.sim.transactions.clients import command
from tests.sim.transactions.leaders import METADATA
from tests.sim.transactions.stage import NOT_YET, Stage
from tests.sim.transactions.world import Call

CASES: dict[str, Callable[[], None]] = {}


def case(play: Callable[[], None]) -> Callable[[], None]:
    CASES[play.__name__] = play
    return play


def opened(stage: Stage, name: str = "p", groups: tuple[int, ...] = (1, 2)) -> Holder:
    """A holder that has opened the partitions."""
    holder = stage.lease(name)
    for group in groups:
        assert stage.open(group, holder).kind == "APPENDED"
    return holder


def same(found: Any, expected: Any) -> None:
    assert found == expected, f"{found!r}, expected {expected!r}"


# -- 1 to 13: late copies, repeats, leaders that go ------------------------------------------


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
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
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
def c06_leader_of_a_partition_goes_at_each_step() -> None:
    for step in range(4):
        stage = Stage(1)
        holder = opened(stage, groups=(1,))
        number = stage.begin("p", holder)
        call = stage.batch(1, holder, number, 0, 1)
        asked = stage.send(call)
        if step == 0:  # registered, nothing proposed
            stage.hold("command")
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
        stage.world.hold = lambda c: c.method == "marker"
        stage.world.settle()
        stage.elect(1, survivors=step % 2)
        stage.release()
        same(commit.answer[0], "VISIBLE")
        same(len(stage.readable(1)), 2)
        stage.finish()


@case
def c07_metadata_leader_goes_around_the_decision() -> None:
    for survivors in (0, 1):
        stage = Stage(2)
        holder = opened(stage)
        number = stage.begin("p", holder)
        stage.put(1, holder, number, 0, 1)
        stage.put(2, holder, number, 0, 1)
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
        if call.method == "marker":
            marked.append(call.group)
        return call.method == "marker" and len(marked) > 1

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
    markers = [entry for entry in stage.group(1).log if getattr(entry, "committed", False)]
    same(len(markers), 2)
    same(stage.readable(1), [(0, number), (1, number)])
    stage.finish()


@case
def c08_partition_cut_off_from_the_coordinator_for_long() -> None:
    stage = Stage(2)
    holder = opened(stage)
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.put(2, holder, number, 0, 1)
    stage.world.hold = lambda call: call.method == "marker" and call.group == 2
    asked = stage.ask(stage.commit_call(number, holder, (1, 2, 1), (2, 2, 1)))
    for _ in range(3):
        stage.world.now += 5000.0
        stage.group(METADATA).leader.expire()
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
    stage.group(1).leader.registered.add(second)
    new = stage.send(stage.batch(1, holder, second, 0, 1))
    stage.step_until_pending(1)
    old = stage.send(stage.batch(1, holder, first, 0, 1))
    stage.world.settle()
    same((new.kind, old.kind), ("STAGED", "TRANSACTION_ABORTED"))
    stage.finish()


@case
def c11_same_sequences_other_content_inside_a_run() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
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
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    same(stage.commit(number, holder, (1, 4, 3)).kind, "COMMIT_INCOMPLETE")
    same(stage.put(1, holder, number, 2, 3), "STAGED")
    same(stage.commit(number, holder, (1, 4, 3)).kind, "VISIBLE")
    same(len(stage.readable(1)), 4)
    stage.finish()


# -- 14 to 32: successors, time, deleted topics, limits ----------------------------------------


@case
def c14_successor_comes_while_it_is_open() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    successor = stage.lease("p")
    same(stage.open(1, successor).answer.last_sequence, -1)
    same(stage.commit(number, holder, (1, 2, 1)).kind, "TRANSACTION_ABORTED")
    same(stage.readable(1), [])
    stage.finish()


@case
def c14_successor_comes_while_it_is_being_published() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.hold("marker")
    stage.ask(stage.commit_call(number, holder, (1, 2, 1)))
    successor = stage.lease("p")
    opening = stage.open(1, successor)
    same(opening.answer, NOT_YET)
    stage.release()
    same(opening.answer.last_sequence, 1)
    same(stage.put(1, successor, 0, 2, 3), "APPENDED")
    same(stage.put(1, holder, 0, 2, 3), "FENCED")
    stage.finish()


@case
def c14_successor_comes_while_it_is_being_aborted() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.hold("marker")
    stage.abort(number, holder)
    opening = stage.open(1, stage.lease("p"))
    same(opening.answer, NOT_YET)
    stage.release()
    same(opening.answer.last_sequence, -1)
    same(stage.readable(1), [])
    stage.finish()


@case
def c15_zombie_wakes_after_its_time() -> None:
    stage = Stage(2)
    holder = opened(stage)
    stage.begin("q", opened(stage, "q", (1,)))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.group(METADATA).leader.expire()
    stage.world.now += 61.0
    stage.group(METADATA).leader.expire()
    stage.world.settle()
    same(stage.put(1, holder, number, 2, 3), "TRANSACTION_ABORTED")
    same(stage.put(2, holder, number, 0, 1), "TRANSACTION_ABORTED")
    refused = stage.commit(number, holder, (1, 2, 1)).answer
    same(refused[0], "TRANSACTION_ABORTED")
    assert "expired" in refused[1], refused
    kept = stage.ask(Call(METADATA, "keep_alive", {"transaction_id": number}))
    same(kept.answer, "ENDED")
    stage.finish()


@case
def c16_expiry_and_commit_at_the_same_time() -> None:
    for first in ("commit", "expire"):
        stage = Stage(1)
        holder = opened(stage, groups=(1,))
        number = stage.begin("p", holder)
        stage.put(1, holder, number, 0, 1)
        metadata = stage.group(METADATA)
        metadata.leader.expire()
        stage.world.now += 61.0
        if first == "expire":
            metadata.leader.expire()
        asked = stage.send(stage.commit_call(number, holder, (1, 2, 1)))
        stage.step_until_pending(METADATA, 1 + (first == "expire"))
        if first == "commit":
            metadata.leader.expire()
        stage.world.settle()
        same(asked.answer[0], "VISIBLE" if first == "commit" else "TRANSACTION_ABORTED")
        same(len(stage.readable(1)), 2 if first == "commit" else 0)
        stage.finish()


@case
def c16_keep_alive_renews_up_to_the_total() -> None:
    stage = Stage(1)
    number = stage.begin("p", opened(stage, groups=(1,)))
    leader = stage.group(METADATA).leader
    row = stage.coordinator.get(number)
    assert row is not None
    for minute in range(16):
        stage.world.now = 50.0 * minute
        stage.ask(Call(METADATA, "keep_alive", {"transaction_id": number}))
        leader.expire()
        stage.world.settle()
        same(row.state.name, "OPEN")
    for second in (800.0, 850.0, 900.0):
        stage.world.now = second
        leader.timers.renew(number, second)
        leader.expire()
        stage.world.settle()
    same(row.state.name, "ABORTED")
    stage.finish()


@case
def c17_c49_wall_clock_of_the_metadata_jumps() -> None:
    stage = Stage(1)
    holders = {name: opened(stage, name, (1,)) for name in "pq"}
    number = stage.begin("p", holders["p"])
    late = {"name": "q", "holder": holders["q"], "nonce": 99, "stamp_ms": 10**12}
    stage.ask(command("begin", **late))
    stage.elect(METADATA)
    stage.group(METADATA).leader.expire()
    stage.world.settle()
    row = stage.coordinator.get(number)
    assert row is not None
    same(row.state.name, "OPEN")
    stage.finish()


@case
def c18_topic_deleted_before_the_commit() -> None:
    stage = Stage(2)
    holder = opened(stage)
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.put(2, holder, number, 0, 1)
    stage.drop(2)
    refused = stage.commit(number, holder, (1, 2, 1), (2, 2, 1)).answer
    same(refused[0] in ("ABORTING", "ABORTED"), True)
    same(refused[1], "topic gone")
    same(stage.readable(1), [])
    stage.finish()


@case
def c18_topic_deleted_between_decision_and_marker() -> None:
    stage = Stage(2)
    holder = opened(stage)
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.put(2, holder, number, 0, 1)
    stage.world.hold = lambda call: call.method == "marker" and call.group == 2
    asked = stage.ask(stage.commit_call(number, holder, (1, 2, 1), (2, 2, 1)))
    stage.drop(2)
    new = stage.parts[-1] + 1
    stage.parts.append(new)
    stage.release()
    same(asked.answer[0], "VISIBLE")
    same([gone for gone, _ in asked.answer[1].values()], [False, True])
    same(len(stage.readable(1)), 2)
    stage.finish()


@case
def c18_topic_deleted_then_aborted() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.drop(1)
    stage.abort(number, holder)
    row = stage.coordinator.get(number)
    assert row is not None
    same(row.state.name, "ABORTED")
    stage.finish()


@case
def c21_many_partitions_and_everybody_is_killed() -> None:
    stage = Stage(200)
    groups = tuple(stage.parts)
    holder = opened(stage, groups=groups)
    number = stage.begin("p", holder)
    for group in groups:
        stage.put(group, holder, number, 0, 1)
    stage.send(stage.commit_call(number, holder, *((group, 2, 1) for group in groups)))
    stage.step_until_pending(METADATA)
    stage.group(METADATA).commit()
    for _ in range(150):
        stage.world.deliver_one()
    stage.world.queue.clear()
    for group in (METADATA, *groups):
        stage.group(group).restart(stage.group(group).lead)
    stage.world.settle(100_000)
    same({len(stage.readable(group)) for group in groups}, {2})
    stage.finish()


@case
def c22_too_many_are_open() -> None:
    stage = Stage(1)
    for name in range(50):
        stage.begin(f"p{name}", stage.lease(f"p{name}"))
    refused = stage.begin("more", stage.lease("more"))
    same(refused[0], "TOO_MANY_TRANSACTIONS")
    assert "50" in refused[1], refused
    stage.finish()


@case
def c24_plain_and_staged_batches_alternate() -> None:
    stage = Stage(1)
    one, other = opened(stage, "p", (1,)), opened(stage, "q", (1,))
    number = stage.begin("p", one)
    for first in range(0, 10, 2):
        same(stage.put(1, one, number, first, first + 1), "STAGED")
        same(stage.put(1, other, 0, first, first + 1), "APPENDED")
    stage.commit(number, one, (1, 10, 9))
    same([n for _, n in stage.readable(1)], [0] * 10 + [number] * 10)
    stage.finish()


@case
def c28_checkpoint_and_restart_with_many_runs() -> None:
    stage = Stage(1)
    numbers = {}
    for index in range(40):
        name = f"p{index}"
        holder = opened(stage, name, (1,))
        numbers[name] = (stage.begin(name, holder), holder)
        stage.put(1, holder, numbers[name][0], 0, index)
    for group in (METADATA, 1):
        for replica in range(2):
            stage.group(group).follow(replica)
            stage.group(group).save(replica)
            stage.group(group).restart(replica)
    stage.world.settle()
    for index, (number, holder) in enumerate(numbers.values()):
        same(stage.commit(number, holder, (1, index + 1, index)).kind, "VISIBLE")
    same(len(stage.readable(1)), sum(range(41)))
    stage.finish()


@case
def c32_operator_aborts_in_each_state() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    same([row.transaction_id for row in stage.coordinator.unfinished()], [number])
    same(stage.abort(number, None, "operator").answer[1], "operator")
    same(stage.abort(number, None, "operator").kind, "ABORTED")
    second = stage.begin("p", holder)
    stage.put(1, holder, second, 0, 1)
    stage.commit(second, holder, (1, 2, 1))
    same(stage.abort(second, None, "operator").kind, "TRANSACTION_COMMITTED")
    same(list(stage.coordinator.unfinished()), [])
    stage.finish()


# -- 33 to 49: what a model showed ---------------------------------------------------------


@case
def c33_copies_after_everybody_forgot() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    aborted = stage.begin("p", holder)
    stage.put(1, holder, aborted, 0, 1)
    stage.abort(aborted, holder)
    committed = stage.begin("p", holder)
    stage.put(1, holder, committed, 0, 1)
    stage.commit(committed, holder, (1, 2, 1))
    for _ in range(2):  # their markers carry open_low on
        number = stage.begin("p", holder)
        stage.ask(command("register", transaction_id=number, holder=holder, group=1))
        stage.abort(number, holder)
    assert stage.group(1).machine.runs.open_low > committed
    for number in (aborted, committed):
        same(stage.put(1, holder, number, 0, 1), "TRANSACTION_ENDED")
    stage.finish()


@case
def c34_tail_that_another_transaction_brought() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    stage.begin("q", opened(stage, "q", (1,)))
    first = stage.begin("p", holder)
    stage.put(1, holder, first, 0, 0)
    stage.commit(first, holder, (1, 1, 0))
    second = stage.begin("p", holder)
    stage.put(1, holder, second, 1, 1)
    stage.commit(second, holder, (1, 1, 1))
    same(stage.put(1, holder, first, 1, 1), "TRANSACTION_ENDED")
    same(stage.put(1, holder, first, 0, 0), "DUPLICATE")
    stage.finish()


@case
def c35_straggler_between_check_and_marker() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.hold("marker")
    stage.ask(stage.commit_call(number, holder, (1, 2, 1)))
    same(stage.put(1, holder, number, 2, 3), "STAGED")
    stage.release()
    same(stage.readable(1), [(0, number), (1, number)])
    same(stage.put(1, holder, 0, 2, 3), "APPENDED")
    stage.finish()


@case
def c35_partition_joins_between_check_and_decision() -> None:
    stage = Stage(2)
    holder = opened(stage)
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    asked = stage.send(stage.commit_call(number, holder, (1, 2, 1)))
    stage.step_until_pending(METADATA)
    metadata = stage.group(METADATA)
    join = ("register", {"transaction_id": number, "holder": holder, "group": 2})
    metadata.pending.insert(0, (join, lambda result: None))
    metadata.commit(2)
    same(metadata.results[-1][0], "CHECK_AGAIN")
    stage.world.settle()
    same(asked.answer[0], "VISIBLE")
    stage.finish()


@case
def c35_commit_that_names_less_than_is_there() -> None:
    stage = Stage(2)
    holder = opened(stage)
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.put(2, holder, number, 0, 1)
    same(stage.commit(number, holder, (1, 2, 1)).kind, "COMMIT_INCOMPLETE")
    same(stage.commit(number, holder, (1, 2, 1), (2, 2, 1)).kind, "VISIBLE")
    stage.finish()


@case
def c36_two_commits_that_name_other_runs() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    same(stage.commit(number, holder, (1, 2, 1)).kind, "VISIBLE")
    same(stage.commit(number, holder, (1, 4, 3)).kind, "COMMIT_DIFFERS")
    same(stage.commit(number, holder).kind, "COMMIT_DIFFERS")
    stage.finish()


@case
def c37_plain_batch_between_decision_and_marker() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    same(stage.put(1, holder, 0, 0, 1), "APPENDED")
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 2, 3)
    stage.hold("marker")
    stage.ask(stage.commit_call(number, holder, (1, 2, 3)))
    same(stage.put(1, holder, 0, 4, 5), "TRANSACTION_CONFLICT")
    same(stage.put(1, holder, 0, 0, 1), "DUPLICATE")
    stage.release()
    same(stage.put(1, holder, 0, 4, 5), "APPENDED")
    stage.finish()


@case
def c38_zombie_writes_after_its_marker_and_its_successors_open() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.hold("marker")
    stage.ask(stage.commit_call(number, holder, (1, 2, 1)))
    successor = stage.lease("p")
    opening = stage.open(1, successor)
    stage.release()
    same(stage.put(1, holder, 0, 2, 3), "FENCED")
    same((opening.kind, opening.answer.last_sequence), ("APPENDED", 1))
    same(stage.put(1, successor, 0, 2, 3), "APPENDED")
    stage.finish()


@case
def c39_staged_successor_is_aborted_and_the_zombie_writes() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    same(stage.put(1, holder, 0, 0, 1), "APPENDED")
    successor = stage.lease("p")  # does not open
    number = stage.begin("p", successor)
    first = stage.batch(1, successor, number, 0, 1)
    first.arguments["meta"] = first.arguments["meta"]._replace(prev=-1)
    same(stage.ask(first).kind, "STAGED")
    stage.abort(number, successor)
    same(stage.put(1, holder, 0, 2, 3), "FENCED")
    same(stage.readable(1), [(0, 0), (1, 0)])
    stage.finish()


@case
def c40_delayed_begin() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    first = stage.begin("p", holder, nonce=101)
    stage.abort(first, holder)
    second = stage.begin("p", holder, nonce=102)
    stage.abort(second, holder)
    same(stage.begin("p", holder, nonce=101)[0], "STALE_REQUEST")
    same(stage.begin("p", holder, nonce=102), second)
    same(list(stage.coordinator.unfinished()), [])
    stage.finish()


@case
def c41_empty_transaction_ends_before_the_one_before() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    first = stage.begin("p", holder)
    stage.put(1, holder, first, 0, 1)
    stage.hold("marker")
    asked = stage.ask(stage.commit_call(first, holder, (1, 2, 1)))
    second = stage.begin("p", holder)
    same(stage.commit(second, holder).kind, "VISIBLE")
    same(stage.commit_call(first, holder, (1, 2, 1)).arguments["transaction_id"], first)
    same(asked.answer, NOT_YET)
    stage.release()
    same(asked.answer[0], "VISIBLE")
    same(stage.commit(second, holder).kind, "VISIBLE")
    stage.finish()


@case
def c42_registered_without_a_run_beside_the_next_ones_run() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    first = stage.begin("p", holder)
    stage.ask(command("register", transaction_id=first, holder=holder, group=1))
    stage.hold("marker")
    stage.ask(stage.commit_call(first, holder))
    second = stage.begin("p", holder)
    same(stage.put(1, holder, second, 0, 1), "STAGED")
    same(stage.put(1, holder, first, 0, 1), "TRANSACTION_ENDED")
    stage.release()
    same(stage.commit(second, holder, (1, 2, 1)).kind, "VISIBLE")
    same(stage.readable(1), [(0, second), (1, second)])
    stage.finish()


@case
def c46_next_batch_of_a_sink_before_the_markers() -> None:
    stage = Stage(2)
    ticket = stage.ask(command("draw_ticket", key="s")).answer
    begin = {"key": "s", "query": "q", "run": "r", "ticket": ticket}
    first = stage.ask(command("begin_batch", **begin, batch=0)).answer
    same(stage.ask(command("begin_batch", **begin, batch=0)).answer, first)
    task = Holder(stage.ask(command("allocate")).answer, 0)
    stage.put(1, task, first, 0, 1)
    stage.put(2, task, first, 0, 1)
    stage.world.hold = lambda call: call.method == "marker" and call.group == 2
    runs = ((1, task.producer_id, 2, 1), (2, task.producer_id, 2, 1))
    asked = stage.ask(stage.commit_call(first, None, *runs))
    same(stage.ask(command("begin_batch", **begin, batch=1)).answer[0], "BUSY")
    same(stage.ask(command("begin_batch", **begin, batch=0)).answer[0], "ALREADY")
    stage.release()
    same(asked.answer[0], "VISIBLE")
    second = stage.ask(command("begin_batch", **begin, batch=1)).answer
    assert second > first
    same(stage.ask(command("begin_batch", **begin, batch=3)).answer[0], "BATCH_GAP")
    stage.finish()


@case
def c46_losers_and_replaced_runs_of_a_sink() -> None:
    stage = Stage(1)
    old = stage.ask(command("draw_ticket", key="s")).answer
    number = stage.ask(
        command("begin_batch", key="s", query="q", run="old", ticket=old, batch=0)
    ).answer
    tasks = [Holder(stage.ask(command("allocate")).answer, 0) for _ in range(3)]
    for task in tasks:
        same(stage.put(1, task, number, 0, 1), "STAGED")
    new = stage.ask(command("draw_ticket", key="s")).answer
    begin = {"key": "s", "query": "q", "run": "new", "ticket": new, "batch": 0}
    while isinstance(second := stage.ask(command("begin_batch", **begin)).answer, tuple):
        same(second[0], "BUSY")
    refused = stage.ask(stage.commit_call(number, None, (1, tasks[0].producer_id, 2, 1)))
    same(refused.answer[0] in ("TRANSACTION_ABORTED", "UNKNOWN_TRANSACTION"), True)
    late = stage.ask(command("begin_batch", key="s", query="q", run="old", ticket=old, batch=1))
    same(late.answer[0], "FENCED")
    for task in tasks:
        same(stage.put(1, task, second, 0, 1), "STAGED")
    winners = [(1, task.producer_id, 2, 1) for task in (tasks[2], tasks[0])]
    stage.ask(stage.commit_call(second, None, *winners))
    found = [record.producer_id for record in stage.checker.readable[1]]
    same(found, [tasks[2].producer_id] * 2 + [tasks[0].producer_id] * 2)
    stage.finish()


@case
def c47_check_with_entries_in_flight_that_are_lost() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    number = stage.begin("p", holder)
    stage.put(1, holder, number, 0, 1)
    stage.send(stage.batch(1, holder, number, 2, 3))
    stage.step_until_pending(1)
    commit = stage.send(stage.commit_call(number, holder, (1, 4, 3)))
    for _ in range(4):
        stage.world.deliver_one()
    stage.group(METADATA).commit(9)
    stage.elect(1, survivors=0)
    same(commit.answer[0], "COMMIT_INCOMPLETE")
    same(stage.readable(1), [])
    stage.finish()


@case
def c48_second_batch_of_a_run_comes_first() -> None:
    for groups in ((), (1,)):
        stage = Stage(1)
        holder = opened(stage, groups=groups)
        number = stage.begin("p", holder)
        assert stage.put(1, holder, number, 2, 3) in ("OUT_OF_ORDER", "UNKNOWN_PRODUCER")
        same(stage.put(1, holder, number, 0, 1), "STAGED")
        same(stage.put(1, holder, number, 2, 3), "STAGED")
        same(stage.commit(number, holder, (1, 4, 3)).kind, "VISIBLE")
        stage.finish()


@case
def c48_chain_goes_on_over_plain_and_staged() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    same(stage.put(1, holder, 0, 0, 1), "APPENDED")
    number = stage.begin("p", holder)
    same(stage.put(1, holder, number, 0, 1), "OUT_OF_ORDER")
    same(stage.put(1, holder, number, 2, 3), "STAGED")
    stage.commit(number, holder, (1, 2, 3))
    same(stage.put(1, holder, 0, 0, 1), "DUPLICATE")
    same(stage.put(1, holder, 0, 4, 5), "APPENDED")
    stage.finish()
