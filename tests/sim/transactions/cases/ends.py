"""Cases 14 to 32: successors, time, deleted topics, limits."""

from __future__ import annotations

from cluster.dedup.verdict import ResolutionKind
from tests.sim.transactions.cases.registry import case, decided, opened, same, staged
from tests.sim.transactions.stage import NOT_YET, Stage
from tests.sim.transactions.world import METADATA, Call


@case
def c14_successor_comes_while_it_is_open() -> None:
    stage, holder, number = staged()
    successor = stage.lease("p")
    same(stage.open(1, successor).answer.last_sequence, -1)
    same(stage.commit(number, holder, (1, 2, 1)).kind, "TRANSACTION_ABORTED")
    same(stage.readable(1), [])
    stage.finish()


@case
def c14_c38_successor_comes_while_it_is_being_published() -> None:
    """The zombie writes after its marker and the open, and again behind its successor."""
    stage, holder, _ = decided()
    successor = stage.lease("p")
    opening = stage.open(1, successor)
    same(opening.answer, NOT_YET)
    stage.release()
    same((opening.kind, opening.answer.last_sequence), ("APPENDED", 1))
    same(stage.put(1, holder, 0, 2, 3), "FENCED")
    same(stage.put(1, successor, 0, 2, 3), "APPENDED")
    same(stage.put(1, holder, 0, 2, 3), "FENCED")
    stage.finish()


@case
def c14_what_is_being_published_is_not_never() -> None:
    """The successor's open is applied: the last-seen map knows no sequence of that epoch."""
    stage, holder, _ = decided()
    stage.open(1, stage.lease("p"))
    same(stage.resolve(1, holder, 1), ResolutionKind.NOT_YET)
    same(stage.resolve(1, holder, 2), ResolutionKind.NEVER)
    stage.release()
    same(stage.resolve(1, holder, 1), ResolutionKind.COMMITTED)
    stage.finish()


@case
def c14_what_is_being_aborted_is_never_once_it_is_over() -> None:
    stage, holder, _ = staged()
    stage.hold("write_markers")
    stage.open(1, stage.lease("p"))
    same(stage.resolve(1, holder, 1), ResolutionKind.NOT_YET)
    stage.release()
    same(stage.resolve(1, holder, 1), ResolutionKind.NEVER)
    stage.finish()


@case
def c14_successor_comes_while_it_is_being_aborted() -> None:
    stage, holder, number = staged()
    stage.hold("write_markers")
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
    stage.world.now += 1801.0
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
        stage, holder, number = staged()
        if first == "expire":
            stage.world.now += 1801.0
        asked = stage.send(stage.commit_call(number, holder, (1, 2, 1)))
        stage.step_until_pending(METADATA, 1 + (first == "expire"))
        if first == "commit":
            stage.world.now += 1801.0
        stage.world.settle()
        same(asked.answer[0], "VISIBLE" if first == "commit" else "TRANSACTION_ABORTED")
        same(len(stage.readable(1)), 2 if first == "commit" else 0)
        stage.finish()


@case
def c16_keep_alive_renews_up_to_the_total() -> None:
    stage = Stage(1)
    number = stage.begin("p", opened(stage, groups=(1,)))
    row = stage.coordinator.get(number)
    assert row is not None
    for seconds in (0.0, 1700.0, 3400.0, 3610.0):
        same(row.state.name, "OPEN")
        stage.world.now = max(seconds, stage.world.now)
        stage.ask(Call(METADATA, "keep_alive", {"transaction_id": number}))
    same(row.state.name, "ABORTED")
    stage.finish()


@case
def c17_c49_wall_clock_of_the_metadata_jumps() -> None:
    stage = Stage(1)
    holders = {name: opened(stage, name, (1,)) for name in "pq"}
    number = stage.begin("p", holders["p"])
    stage.world.wall_ms = 10**12
    stage.begin("q", holders["q"], nonce=99)
    stage.elect(METADATA)
    row = stage.coordinator.get(number)
    assert row is not None
    same(row.state.name, "OPEN")
    stage.finish()


@case
def c18_topic_deleted_before_the_commit() -> None:
    stage, holder, number = staged(2)
    stage.drop(2)
    refused = stage.commit(number, holder, (1, 2, 1), (2, 2, 1)).answer
    same(refused[0], "TRANSACTION_ABORTED")
    assert "topic gone" in refused[1], refused
    same(stage.readable(1), [])
    stage.finish()


@case
def c18_topic_deleted_between_decision_and_marker() -> None:
    stage, holder, number = staged(2)
    stage.world.hold = lambda call: call.method == "write_markers" and call.group == 2
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
    stage, holder, number = staged()
    stage.drop(1)
    stage.abort(number, holder)
    row = stage.coordinator.get(number)
    assert row is not None
    same(row.state.name, "ABORTED")
    stage.finish()


@case
def c21_many_partitions_and_everybody_is_killed() -> None:
    stage, holder, number = staged(200)
    groups = tuple(stage.parts)
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
    for machine in stage.group(METADATA).machines:
        machine.state.coordinator._max_open = 50
    for name in range(50):
        stage.begin(f"p{name}", stage.lease(f"p{name}"))
    refused = stage.begin("more", stage.lease("more"))
    same(refused[0], "THROTTLED")
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
    stage, holder, number = staged()
    same([row.transaction_id for row in stage.coordinator.unfinished()], [number])
    same(stage.abort(number, None, "operator").answer[1], "operator")
    same(stage.abort(number, None, "operator").kind, "ABORTED")
    second = stage.begin("p", holder)
    stage.put(1, holder, second, 0, 1)
    stage.commit(second, holder, (1, 2, 1))
    same(stage.abort(second, None, "operator").kind, "TRANSACTION_COMMITTED")
    same(list(stage.coordinator.unfinished()), [])
    stage.finish()
