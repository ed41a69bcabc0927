"""Lists in `send_batch`: values are encoded at once, anything else one by one."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

from oncelog import errors
from oncelog._engine.arguments import (
    _encode_each,
    as_commits,
    as_int,
    as_partition,
    encode_list,
    rising_sequences,
)
from oncelog.errors import InvalidRequestError
from oncelog.types import Record
from oncelog.wire.batch import decode_payload

NOW = 1_700_000_000_000_123


@pytest.mark.parametrize(
    "items",
    [
        [b"a", b"", b"ccc"],
        [b"a", None, b"c"],
        [None],
        (b"a", b"b"),
        [b"a", bytearray(b"b"), memoryview(b"c")],
        [b"a", "text", b"c"],
        ["text", None],
        [(b"k", b"v"), (None, None), ("k", "v")],
        [b"a", (b"k", b"v")],
        [(b"k", b"v"), b"a"],
        [Record(b"v", b"k", [("h", b"1")], 5), Record(b"w")],
        [b"a", Record(b"w", timestamp_us=NOW + 1)],
        [memoryview(array("i", [1, 2])), b"c"],
    ],
    ids=repr,
)
def test_a_list_is_encoded_as_its_records_are_one_by_one(items: Any) -> None:
    payload, count, highest = encode_list(items, NOW)
    assert (payload, count, highest) == _encode_each(items, NOW)
    assert len(decode_payload(payload, count).check()) == len(items)


def test_any_iterable_will_do() -> None:
    payload, count, _ = encode_list((b"%d" % n for n in range(3)), NOW)
    assert decode_payload(payload).values() == [b"0", b"1", b"2"]
    assert (count, decode_payload(payload).timestamps_us()) == (3, [NOW] * 3)


@pytest.mark.parametrize("items", [[b"a", 5], [5], [b"a", [b"b"]], [(b"k", 5)]], ids=repr)
def test_what_is_no_record_is_an_error(items: list[Any]) -> None:
    with pytest.raises(TypeError, match="value must be bytes, str or None, got"):
        encode_list(items, NOW)


def test_no_records_are_an_error() -> None:
    with pytest.raises(errors.InvalidBatchError, match="at least one record"):
        encode_list([], NOW)


@pytest.mark.parametrize("number", [5, np.int64(5), np.int8(5), np.uint64(5)])
def test_integers_of_any_kind_become_pythons(number: Any):
    found = as_int("sequence", number, 0, 9)
    assert (found, type(found)) == (5, int)
    (tp,) = as_commits({("t", number): number})
    assert type(tp.partition) is int
    assert rising_sequences(np.array([1, 5]), 2) == [1, 5]


@pytest.mark.parametrize("value", [True, 5.0, np.float64(5), np.bool_(True), "5", None])
def test_what_is_no_integer_is_refused_by_its_type(value: Any):
    kind = type(value).__name__
    for call in (lambda: as_int("sequence", value, 0, 9), lambda: as_partition(("t", value))):
        with pytest.raises(
            InvalidRequestError, match=f"must be an integer.*, got .* of type {kind}"
        ):
            call()
