"""The experiment's verifier against one that goes record by record, and single findings."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiment.plan import Found, Outcome, Plan
from tests.experiment.verify import Tally, integers_of

pytestmark = pytest.mark.unit
RECORDS = 12

Stored = list[tuple[int, list[int]]]  # batches: partition, integers


def plainly(stored: Stored, acks: bytearray) -> Found:
    """Counts the same, written for reading."""
    found = Found()
    seen: set[int] = set()
    highest = {0: -1, 1: -1}
    for partition, integers in stored:
        for integer in integers:
            found.stored += 1
            if not 0 <= integer < RECORDS:
                found.unknown += 1
            elif integer in seen:
                found.duplicates += 1
            else:
                found.disordered += integer < highest[partition]
                highest[partition] = max(highest[partition], integer)
                seen.add(integer)
    acknowledged = {number for number, byte in enumerate(acks) if byte}
    found.lost, found.unconfirmed = len(acknowledged - seen), len(seen - acknowledged)
    return found


def tallied(stored: Stored, acks: bytearray) -> Found:
    tally = Tally(RECORDS)
    ends = {0: 0, 1: 0}
    for partition, integers in stored:
        tally.add(partition, ends[partition], np.array(integers, np.int64))
        ends[partition] += len(integers)
    return tally.close(acks)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(-1, RECORDS), min_size=1))),
    st.binary(min_size=RECORDS, max_size=RECORDS).map(lambda raw: bytearray(b & 1 for b in raw)),
)
def test_the_same_as_record_by_record(stored: Stored, acks: bytearray) -> None:
    assert asdict(tallied(stored, acks)) == asdict(plainly(stored, acks))


def test_a_clean_log() -> None:
    found = tallied([(0, [0, 1, 4, 5]), (1, [2, 3]), (1, [6])], bytearray(b"\1" * 7 + b"\0" * 5))
    assert asdict(found) == asdict(Found(stored=7))


def test_holes() -> None:
    tally = Tally(RECORDS)
    tally.add(0, 1, np.array([0, 1], np.int64))  # the head is missing
    tally.add(0, 3, np.array([2], np.int64))
    tally.add(0, 3, np.array([3], np.int64))  # an offset twice
    assert tally.found.holes == 2


def test_values() -> None:
    values = [(7).to_bytes(8, "big"), (2**40).to_bytes(8, "big")]
    column = pa.array([b"x" * 8, *values, b"x" * 8], pa.binary())
    assert integers_of(column.slice(1, 2)).tolist() == [7, 2**40]
    mixed = pa.array([*values, b"", None, b"1234567"], pa.binary())
    assert integers_of(mixed).tolist() == [7, 2**40, -1, -1, -1]


@pytest.mark.parametrize(
    ("idempotent", "found", "text"),
    [
        (True, Found(duplicates=1), "1 duplicates"),
        (True, Found(disordered=2), "2 out of order"),
        (False, Found(duplicates=1, lost=3), "3 lost"),
        (False, Found(duplicates=1, unknown=3), "3 never sent"),
        (False, Found(), "no duplicates"),
    ],
)
def test_what_fails_the_experiment(idempotent: bool, found: Found, text: str) -> None:
    plan = Plan(0, idempotent, records=10)
    (fault,) = Outcome(plan, 10, 1.0, found, [], 0, 0).faults()
    assert text in fault
    (fault,) = Outcome(plan, 9, 1.0, Found(duplicates=not idempotent), [], 0, 0).faults()
    assert "1 not acknowledged" in fault
    assert not Outcome(plan, 10, 1.0, Found(duplicates=not idempotent), [], 0, 0).faults()
