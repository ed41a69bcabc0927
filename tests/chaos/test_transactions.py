"""The list-append checker: it notices each anomaly; and a short run under faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.local_cluster import QUICK, LocalCluster
from tests.chaos import transactions
from tests.chaos.transaction_checker import NO, UNKNOWN, YES, History, Id, Seen, Txn, check


def good() -> History:
    """Builds three transactions of two workers in two partitions, on two nodes; one was aborted."""
    first = Txn(0, 0, [0, 1, 0], YES, {0: (0, 2), 1: (0, 1)}, [0, 0, 1])
    aborted = Txn(0, 1, [0, 1], NO)
    second = Txn(1, 0, [1, 0, 1], UNKNOWN)
    third = Txn(0, 2, [1], YES, {1: (3, 1)}, [3])
    logs = {
        0: [Id(0, 0, 0).value, Id(0, 0, 2).value, Id(1, 0, 1).value],
        1: [Id(0, 0, 1).value, Id(1, 0, 0).value, Id(1, 0, 2).value, Id(0, 2, 0).value],
    }
    seen = {partition: Seen() for partition in logs}
    for partition, values in logs.items():
        seen[partition].note(0, values[:1], 0)
        seen[partition].note(0, values, len(values))
    copies = {(node, p): list(values) for node in (1, 2) for p, values in logs.items()}
    return History([first, aborted, second, third], seen, copies)


def broken(history: History) -> set[str]:
    return {one.name for one in check(history) if not one.holds}


def test_a_good_history_holds() -> None:
    assert broken(good()) == set()


def in_all_logs(history: History, change: Callable[[list[bytes]], object], partition: int) -> None:
    for (_, where), values in history.logs.items():
        if where == partition:
            change(values)  # type: ignore[arg-type]


def lose_a_record(history: History) -> None:
    in_all_logs(history, lambda values: values.pop(), 1)


def tear_an_unknown_one(history: History) -> None:
    in_all_logs(history, lambda values: values.pop(), 0)


def store_twice(history: History) -> None:
    in_all_logs(history, lambda values: values.append(values[0]), 0)


def store_what_nobody_sent(history: History) -> None:
    in_all_logs(history, lambda values: values.append(b"7:0:0"), 0)


def read_an_aborted_record(history: History) -> None:
    history.seen[0].note(3, [Id(0, 1, 0).value], 4)


def publish_an_aborted_record(history: History) -> None:
    in_all_logs(history, lambda values: values.append(Id(0, 1, 0).value), 0)


def end_within_a_transaction(history: History) -> None:
    history.seen[0].note(0, [], 1)


def put_a_stranger_between(history: History) -> None:
    in_all_logs(history, lambda values: values.insert(1, values.pop()), 0)


def read_something_else_later(history: History) -> None:
    history.seen[0].note(0, [b"1:0:1"], 3)


def answer_another_place(history: History) -> None:
    history.txns[0].places[0] = (1, 2)


def tell_a_future_another_offset(history: History) -> None:
    history.txns[0].offsets[2] = 0


def swap_a_workers_transactions(history: History) -> None:
    in_all_logs(history, lambda values: values.insert(0, values.pop()), 1)


def change_one_copy(history: History) -> None:
    history.logs = {**history.logs, (2, 0): history.logs[2, 0][:-1]}


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (lose_a_record, "lost"),
        (tear_an_unknown_one, "torn"),
        (store_twice, "duplicate"),
        (store_what_nobody_sent, "misplaced"),
        (read_an_aborted_record, "G1a"),
        (publish_an_aborted_record, "G1a"),
        (end_within_a_transaction, "G1b"),
        (put_a_stranger_between, "apart"),
        (read_something_else_later, "vanished"),
        (answer_another_place, "answers"),
        (tell_a_future_another_offset, "answers"),
        (swap_a_workers_transactions, "order"),
        (change_one_copy, "replicas"),
    ],
)
def test_each_anomaly_is_noticed(plant: Callable[[History], None], name: str) -> None:
    history = good()
    plant(history)
    assert name in broken(history)


def appended(folder: Path, *, unprotected: bool) -> transactions.Result:
    load = transactions.Load("appends", partitions=3, workers=3, unprotected=unprotected)
    with LocalCluster(folder, settings=QUICK) as cluster:
        return transactions.run(
            cluster, seconds=4, faults=["kill-leader"], seed=1, load=load, say=print
        )


def test_a_short_run(tmp_path: Path) -> None:
    result = appended(tmp_path / "cluster", unprotected=False)
    assert result.good, transactions.lines(result)
    assert result.counts[YES] > 5 and result.counts[NO] > 0


@pytest.mark.slow
def test_without_transactions_the_same_load_breaks_the_checks(tmp_path: Path) -> None:
    """The fault bites: only the transaction protects from it."""
    result = appended(tmp_path / "cluster", unprotected=True)
    assert {"G1a", "G1b", "apart"} <= {one.name for one in result.checks if not one.holds}
