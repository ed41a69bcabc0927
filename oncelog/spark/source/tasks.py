"""What a task reads: the range of offsets that a plan's partition stands for.

Place in the flow: Spark calls it through the readers of `data_source` and `stream`, in a
worker. The client is imported there only: to say the data source's name needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oncelog.spark.source.offsets import Range
from oncelog.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


def read_partition(
    options: SourceOptions, partition: InputPartition, columns: tuple[str, ...]
) -> Iterator[Any]:
    """Read what a plan's partition stands for; Spark makes one of None where there is none."""
    if partition.value is None:
        return iter(())
    from oncelog.spark.source.reading import read_range

    return read_range(options, Range(*partition.value), columns)


__all__ = ["read_partition"]
