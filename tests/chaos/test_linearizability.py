"""Porcupine finds planted breaches; a short run under a fault is linearizable. Needs Go."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.local_cluster import QUICK, LocalCluster
from tests.chaos.linearizability import Load, Operation, judge, run

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Porcupine is written in Go")


def append(
    client: int, at: int, value: str, expected: int, result: str = "ok", following: int = 0
) -> Operation:
    return {
        "model": "log", "client": client, "call": at, "return": at + 5, "op": "append",
        "result": result, "expected": expected, "offset": expected, "next": following,
        "value": value,
    }  # fmt: skip


def kv(client: int, at: int, op: str, value: str | None, key: str = "a") -> Operation:
    return {
        "model": "kv", "client": client, "call": at, "return": at + 5, "op": op,
        "result": "ok", "key": key, "value": value,
    }  # fmt: skip


def history() -> list[Operation]:
    """Builds a history: racers, refused and unanswered; two clients of a store."""
    final: dict[str, Any] = {"op": "final", "model": "log", "client": 9, "call": 90, "return": 91}
    unknown = append(1, 20, "1:1", 2, "unknown")
    return [
        append(0, 0, "0:0", 0),
        append(1, 2, "1:0", 0, "mismatch", 1),
        append(0, 10, "0:1", 1),
        {**unknown, "return": -1},
        append(0, 40, "0:2", 2, "mismatch", 3),
        {**final, "values": ["0:0", "0:1", "1:1"]},
        kv(0, 0, "put", "5"),
        kv(1, 2, "get", None),
        kv(1, 10, "increment", "6"),
        kv(0, 20, "get", "6"),
        kv(0, 30, "increment", "1", key="b"),
    ]


def test_a_history_that_is_right(tmp_path: Path) -> None:
    assert judge(history(), tmp_path)[0]


def lost(history: list[Operation]) -> None:
    history[5]["values"].pop(1)


def twice(history: list[Operation]) -> None:
    history[5]["values"].insert(1, "0:0")


def swapped(history: list[Operation]) -> None:
    history[5]["values"][:2] = reversed(history[5]["values"][:2])


def two_at_one_offset(history: list[Operation]) -> None:
    history[4].update(result="ok")


def refused_in_vain(history: list[Operation]) -> None:
    history[1]["next"] = 0


def stale_read(history: list[Operation]) -> None:
    history[9]["value"] = "5"


def lost_update(history: list[Operation]) -> None:
    history.append(kv(1, 40, "increment", "6"))


@pytest.mark.parametrize(
    "plant",
    [lost, twice, swapped, two_at_one_offset, refused_in_vain, stale_read, lost_update],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_breach_is_found(
    plant: Callable[[list[Operation]], None], tmp_path: Path
) -> None:
    wrong = history()
    plant(wrong)
    good, said = judge(wrong, tmp_path)
    assert not good and "Illegal" in said
    assert (tmp_path / "history.html").exists()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("linearizability") / "cluster"
    with LocalCluster(root, settings=QUICK) as made:
        yield made


def test_a_run_whose_leader_is_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    result = run(cluster, seconds=3, faults=["kill-leader"], seed=1, say=print, out=tmp_path)
    assert result.good, result.said
    assert {one["model"] for one in result.operations} == {"log", "kv"}


def test_conditions_that_a_node_does_not_check_are_found(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Finds the breach by Porcupine and by our own checker, on real nodes."""
    load = Load("unchecked", "kv2", ignored=True)
    result = run(cluster, seconds=1, faults=[], seed=1, say=print, out=tmp_path, load=load)
    assert not result.linearizable and "log: Illegal" in result.said
    assert "kv: Ok" in result.said
    assert not all(one.holds for one in result.checks)
