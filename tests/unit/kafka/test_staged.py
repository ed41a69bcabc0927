"""Offset that the answer to a staged batch tells."""

from __future__ import annotations

import pytest

from cluster.kafka.staged import UNKNOWN_OFFSET, staged_offset

MAX_SEQUENCE = 2**31 - 1


@pytest.mark.parametrize("software", ["kgo", "librdkafka", "confluent-kafka-python"])
def test_offsets_rise_for_clients_that_count_on(software: str) -> None:
    """A batch of 3 records behind one of 5: none of them has a real offset."""
    first, second = staged_offset(software, 0), staged_offset(software, 5)
    assert second == first + 5
    assert staged_offset(software, MAX_SEQUENCE) + MAX_SEQUENCE < UNKNOWN_OFFSET


def test_other_clients_are_told_that_it_is_unknown() -> None:
    assert {staged_offset("apache-kafka-java", one) for one in (0, 5)} == {UNKNOWN_OFFSET}
    assert staged_offset("", 7) == UNKNOWN_OFFSET
