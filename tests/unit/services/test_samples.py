"""The lag of groups, as the metrics page shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.services.groups.metrics import _lag


def test_a_lag_counts_what_can_be_read() -> None:
    """Offset, start of the log, high watermark: behind, level, below the start, beyond the end."""
    partitions = [(3, 0, 10), (10, 0, 10), (3, 8, 10), (12, 0, 10)]
    node: Any = SimpleNamespace(
        metadata=SimpleNamespace(group_of=lambda _, number: number),
        partition=lambda number: SimpleNamespace(
            log_start_offset=partitions[number][1], high_watermark=partitions[number][2]
        ),
    )

    def lag(*numbers: int) -> dict[str, int]:
        offsets: Any = {("t", n): SimpleNamespace(offset=partitions[n][0]) for n in numbers}
        return _lag(node, offsets)

    assert [lag(number)["t"] for number in range(4)] == [7, 0, 2, 0]
    assert lag(0, 1, 2, 3) == {"t": 9}
