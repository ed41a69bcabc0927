"""The checker finds each anomaly that is planted, and nothing in a good history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.checker import Check, check
from tests.chaos.history import Contest, History, Read, Replica, value_of, write_of

NODES = (1, 2, 3)
Values = tuple[bytes, ...]


def value(number: int, worker: int = 0) -> bytes:
    return value_of(worker, number, 5)


class Run:
    """A run: worker 0 wrote 0..5 to partition 0, all acknowledged and on three replicas."""

    def __init__(self) -> None:
        self.history = History()
        writes = self.history.of(0)
        for number in range(6):
            writes.sent(0)
            writes.acknowledged(number, 0, number)
        batches = ((0, tuple(value(n) for n in (0, 1, 2))), (3, tuple(value(n) for n in (3, 4, 5))))
        self.replicas = [
            Replica(node, 0, 0, 6, batches, "same", {7: "epoch 0, last 5"}) for node in NODES
        ]
        self.history.reads.append(Read(0, 1, 0, 1, 0, 3, True, batches[0][1]))
        self.history.reads.append(Read(0, 2, 0, 3, 3, 6, True, batches[1][1]))

    def change(self, **fields: object) -> None:
        """Changes all replicas alike, so that only the intended breach is there."""
        self.replicas = [replace(one, **fields) for one in self.replicas]  # type: ignore[arg-type]

    def check(self) -> dict[str, Check]:
        return {
            one.name: one
            for one in check(self.history, self.replicas, [(node, 0) for node in NODES])
        }


def log(*values: bytes) -> tuple[tuple[int, Values], ...]:
    return ((0, values),)


def lost(run: Run) -> None:
    run.change(batches=log(*(value(n) for n in range(5))), high_watermark=5)
    run.history.reads.clear()


def duplicate(run: Run) -> None:
    run.change(batches=log(*(value(n) for n in (0, 1, 2, 3, 4, 5, 2))), high_watermark=7)


def aborted(run: Run) -> None:
    run.history.of(0).refused(5)


def reordered(run: Run) -> None:
    run.change(batches=log(*(value(n) for n in (0, 1, 2, 3, 5, 4))))
    run.history.of(0).acknowledged(4, 0, 5)
    run.history.of(0).acknowledged(5, 0, 4)
    run.history.reads.clear()


def misplaced(run: Run) -> None:
    run.history.of(0).acknowledged(5, 0, 4)


def unknown_number(run: Run) -> None:
    run.change(batches=log(*(value(n) for n in (0, 1, 2, 3, 4, 5, 6))), high_watermark=7)


def unknown_text(run: Run) -> None:
    run.change(batches=log(*(value(n) for n in range(6)), b"noise"), high_watermark=7)


def hole(run: Run) -> None:
    batches = run.replicas[0].batches
    run.change(batches=(batches[0], (4, batches[1][1])), high_watermark=7)
    for number in (3, 4, 5):
        run.history.of(0).acknowledged(number, 0, number + 1)
    run.history.reads.clear()


def short(run: Run) -> None:
    run.change(high_watermark=7)


def differing_log(run: Run) -> None:
    run.replicas[1] = replace(run.replicas[1], digest="other")


def differing_end(run: Run) -> None:
    writes = run.history.of(0)
    writes.outcomes[5] = 0  # unknown: may be there or not, but the same everywhere
    run.history.reads.clear()
    shorter = log(*(value(n) for n in range(5)))
    run.replicas[2] = replace(run.replicas[2], batches=shorter, high_watermark=5)


def differing_map(run: Run) -> None:
    run.replicas[2] = replace(run.replicas[2], last_seen={7: "epoch 0, last 4"})


def map_lacks_one(run: Run) -> None:
    run.replicas[2] = replace(run.replicas[2], last_seen={})


def read_above(run: Run) -> None:
    run.history.reads.append(Read(1, 3, 0, 3, 3, 5, False, (value(3), value(4), value(5))))


def falling(run: Run) -> None:
    run.history.reads.append(Read(0, 3, 0, 4, 4, 5, True, ()))


def gap(run: Run) -> None:
    run.history.reads.append(Read(1, 3, 0, 2, 3, 6, False, (value(3),)))


def changed(run: Run) -> None:
    run.history.reads.append(Read(1, 3, 0, 4, 4, 6, False, (value(9),)))


def vanished(run: Run) -> None:
    run.history.reads.append(Read(1, 3, 0, 6, 6, 7, False, (value(6),)))


def another_offset(run: Run) -> None:
    run.history.of(0).expected[5] = 4


def two_winners(run: Run) -> None:
    run.history.of(0).expected[4] = run.history.of(0).expected[5] = 5


def refused_in_vain(run: Run) -> None:
    run.history.of(0).refused(run.history.of(0).sent(0, 6))


def instances(run: Run, *epochs: int, ids: tuple[int, int] = (7, 7)) -> None:
    """Gives workers 8 and 9 the name, with these epochs; the log ends with a record of each."""
    for worker, epoch, pid in zip((8, 9), epochs, ids, strict=True):
        writes = run.history.of(worker, "named")
        writes.producer_id, writes.epoch = pid, epoch
        writes.sent(0)
        writes.acknowledged(0, 0, worker - 2)
    values = (*(value(n) for n in range(6)), value(0, 8), value(0, 9))
    run.change(batches=log(*values), high_watermark=8)


def zombie(run: Run) -> None:
    instances(run, 4, 3)


def ended(run: Run, first: str, second: str) -> None:
    run.history.contests.append(Contest((8, 9), (first, second)))


def nobody_goes_on(run: Run) -> None:
    instances(run, 3, 4)
    ended(run, "fenced", "fenced")


def both_go_on(run: Run) -> None:
    instances(run, 3, 4)
    ended(run, "went on", "went on")


def one_epoch_for_two(run: Run) -> None:
    instances(run, 3, 3)
    ended(run, "fenced", "went on")


def two_ids_for_a_name(run: Run) -> None:
    instances(run, 3, 4, ids=(7, 8))
    ended(run, "fenced", "went on")


PLANTED: list[tuple[Callable[[Run], None], str]] = [
    (lost, "lost"),
    (duplicate, "duplicate"),
    (aborted, "aborted read"),
    (reordered, "reordered"),
    (misplaced, "misplaced"),
    (unknown_number, "unknown"),
    (unknown_text, "unknown"),
    (hole, "holes"),
    (short, "holes"),
    (differing_log, "differing replicas"),
    (differing_end, "differing replicas"),
    (differing_map, "differing last-seen maps"),
    (map_lacks_one, "differing last-seen maps"),
    (read_above, "above the high watermark"),
    (falling, "non-monotonic"),
    (gap, "gap in a read"),
    (changed, "changed"),
    (vanished, "changed"),
    (another_offset, "condition ignored"),
    (two_winners, "condition ignored"),
    (refused_in_vain, "refused in vain"),
    (zombie, "zombie"),
    (nobody_goes_on, "not one goes on"),
    (both_go_on, "not one goes on"),
    (one_epoch_for_two, "not one goes on"),
    (two_ids_for_a_name, "not one goes on"),
]


def test_a_good_history_passes() -> None:
    assert {name: one.holds for name, one in Run().check().items() if not one.holds} == {}


@pytest.mark.parametrize(
    ("plant", "name"), PLANTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_what_is_planted_is_found_and_nothing_else(plant: Callable[[Run], None], name: str) -> None:
    run = Run()
    plant(run)
    failed = {check.name for check in run.check().values() if check.holds is False}
    assert failed == {name}


def test_every_check_is_planted() -> None:
    assert {name for _, name in PLANTED} == set(Run().check())


def test_an_unknown_outcome_may_be_there_or_not() -> None:
    run = Run()
    run.history.of(0).sent(0)  # number 6, never answered
    assert all(one.holds for one in run.check().values())
    run.change(batches=log(*(value(n) for n in range(7))), high_watermark=7)
    assert all(one.holds for one in run.check().values())


def test_a_takeover_and_a_lost_race_are_as_they_should_be() -> None:
    run = Run()
    instances(run, 3, 4)
    ended(run, "fenced", "went on")
    ended(run, "unknown", "unknown")
    writes = run.history.of(0)
    writes.expected[5] = 5
    writes.refused(writes.sent(0, 5))
    assert {name: one.holds for name, one in run.check().items() if not one.holds} == {}


def test_a_replica_that_was_not_read_leaves_it_open() -> None:
    run = Run()
    del run.replicas[1]
    assert all(one.holds is None for one in run.check().values())
    run.replicas[1] = replace(run.replicas[1], digest="other")
    assert run.check()["differing replicas"].holds is False, "what was found stays found"


def test_values_name_their_write() -> None:
    assert write_of(value_of(3, 12345, 0)) == (3, 12345)
    with pytest.raises(ValueError, match="not enough values"):
        write_of(b"noise")
