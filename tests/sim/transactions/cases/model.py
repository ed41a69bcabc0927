"""Cases 33 to 49: findings of a model."""

from __future__ import annotations

from cluster.entries import METADATA as METADATA_ENTRY
from cluster.transactions.types import Holder
from cluster.v1 import metadata_pb2 as pb
from tests.sim.transactions.cases.registry import case, decided, opened, same, staged
from tests.sim.transactions.clients import command
from tests.sim.transactions.commands import command_of
from tests.sim.transactions.stage import NOT_YET, Stage
from tests.sim.transactions.world import LOST, METADATA


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
    assert stage.group(1).machine.machine.runs.open_low > committed
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
    stage, holder, number = decided()
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
    register = command_of("register", {"transaction_id": number, "holder": holder, "group": 2})
    entry = bytes((METADATA_ENTRY,)) + register.SerializeToString()
    metadata.pending.insert(0, (entry, lambda result: None))
    metadata.commit(2)
    same(pb.MetadataResult.FromString(metadata.results[-1]).error, "CHECK_AGAIN")
    stage.world.settle()
    same(asked.answer[0], "VISIBLE")
    stage.finish()


@case
def c35_commit_that_names_less_than_is_there() -> None:
    stage, holder, number = staged(2)
    same(stage.commit(number, holder, (1, 2, 1)).kind, "COMMIT_INCOMPLETE")
    same(stage.commit(number, holder, (1, 2, 1), (2, 2, 1)).kind, "VISIBLE")
    stage.finish()


@case
def c36_two_commits_that_name_other_runs() -> None:
    stage, holder, number = staged()
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
    stage.hold("write_markers")
    stage.ask(stage.commit_call(number, holder, (1, 2, 3)))
    same(stage.put(1, holder, 0, 4, 5), "TRANSACTION_CONFLICT")
    same(stage.put(1, holder, 0, 0, 1), "DUPLICATE")
    stage.release()
    same(stage.put(1, holder, 0, 4, 5), "APPENDED")
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
    same(stage.begin("p", holder, nonce=101)[0], "INVALID_REQUEST")
    same(stage.begin("p", holder, nonce=102), second)
    same(list(stage.coordinator.unfinished()), [])
    stage.finish()


@case
def c41_empty_transaction_ends_before_the_one_before() -> None:
    stage = Stage(1)
    holder = opened(stage, groups=(1,))
    first = stage.begin("p", holder)
    stage.put(1, holder, first, 0, 1)
    stage.hold("write_markers")
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
    stage.hold("write_markers")
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
    stage.world.hold = lambda call: call.method == "write_markers" and call.group == 2
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
    stage, holder, number = staged()
    stage.send(stage.batch(1, holder, number, 2, 3))
    stage.step_until_pending(1)
    commit = stage.send(stage.commit_call(number, holder, (1, 4, 3)))
    for _ in range(4):
        stage.world.deliver_one()
    stage.group(METADATA).commit(9)
    stage.elect(1, survivors=0)
    same(commit.answer, LOST)
    same(stage.commit(number, holder, (1, 4, 3)).kind, "COMMIT_INCOMPLETE")
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
