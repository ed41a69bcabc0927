"""Producer ids of Kafka clients: each proves itself, to one principal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.kafka.ids import made, proves

SECRET = bytes(range(32))
NAMES = st.sampled_from(["", "alice", "bob"])


@given(issued=st.integers(1, (1 << 42) - 1), name=NAMES, other=NAMES)
def test_an_id_is_good_for_its_principal(issued: int, name: str, other: str) -> None:
    producer_id = made(SECRET, issued, name)
    assert 1 << 62 < producer_id < 1 << 63
    assert producer_id >> 20 & (1 << 42) - 1 == issued
    assert proves(SECRET, producer_id, name)
    assert not proves(b"", producer_id, name), "a node that knows no secret yet"
    if other != name:  # 20 bits can agree by chance
        assert proves(SECRET, producer_id, other) == (made(SECRET, issued, other) == producer_id)


def test_ids_rise_with_what_is_issued() -> None:
    ids = [made(SECRET, issued, "a") for issued in range(1, 1000)]
    assert ids == sorted(set(ids))


def test_guesses_are_refused() -> None:
    producer_id = made(SECRET, 7, "alice")
    guesses = [producer_id ^ 1 << bit for bit in range(63)]
    guesses += [0, -1, 7, 1 << 62, producer_id + (1 << 63), producer_id - (1 << 63)]
    assert not any(proves(SECRET, guess, "alice") for guess in guesses)
    assert not proves(b"x" * 32, producer_id, "alice")


@pytest.mark.parametrize("issued", [0, -1, 1 << 42])
def test_a_number_that_does_not_fit_is_refused(issued: int) -> None:
    with pytest.raises(OverflowError, match="producer id"):
        made(SECRET, issued)
