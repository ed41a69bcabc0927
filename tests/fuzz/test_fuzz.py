"""A short run of each target. Long, coverage-guided runs: scripts/fuzz."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.mutate import attempt, mutations, run
from tests.fuzz.services import attack, secured_node
from tests.fuzz.targets import TARGETS, Target

EXECUTIONS = 1000
SERVICE_EXECUTIONS = 400
SEED = 2026

# Inputs that once led to something other than a clear error.
FOUND = {
    "a manifest of chunks of 0 bytes": (
        "stored",
        "03092001000000000000000900000000000000090000000000020003364b3fb70000040103"
        "0d0302000000000000000900000000616263",
    ),
    "a base beyond all indexes": (
        "stored",
        "0101100100000000040000040000000000000002010110028b000000000000000100000000"
        "0000000101ff0803000000000000000200000000000000040008050000000000000002656e"
        "7472790008050000000000000003656e747279",
    ),
    "an identity that is not UTF-8": ("identity", "fb22"),
    "an identity with a number without end": (
        "identity",
        b'{"format": 2, "cluster_id": "c", "node_id": Infinity}'.hex(),
    ),
    "an identity nested without end": ("identity", (b"[" * 100_000).hex()),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_random_bytes_give_an_error_with_a_reason(target: Target) -> None:
    run(target, SEED, executions=EXECUTIONS)


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_found(name: str) -> None:
    target, data = FOUND[name]
    attempt(TARGETS[target], bytes.fromhex(data))


def test_a_target_that_crashes_is_reported_with_its_input() -> None:
    def crash(data: bytes) -> None:
        if len(data) > 3:
            raise ZeroDivisionError

    target = Target("planted", crash, lambda: [b"abc"])
    with pytest.raises(ZeroDivisionError) as caught:
        run(target, SEED, executions=EXECUTIONS)
    assert "target planted, input" in caught.value.__notes__[0]


def test_mutations_are_the_same_for_the_same_seed() -> None:
    seeds = TARGETS["frames"].seeds()
    one, other = mutations(seeds, random.Random(7)), mutations(seeds, random.Random(7))
    assert [next(one) for _ in range(50)] == [next(other) for _ in range(50)]


def test_a_live_node_answers_random_requests(tmp_path: Path) -> None:
    with secured_node(tmp_path) as cluster:
        found = attack(cluster, SEED, executions=SERVICE_EXECUTIONS)
    assert found.wrong == []
    assert found.statuses["OK"] > 20
    assert found.statuses["INVALID_ARGUMENT INVALID_REQUEST"] > 20
