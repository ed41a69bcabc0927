"""Task of a read: the range of offsets that a plan's partition stands for.

Place in the flow: Spark calls it through the readers of `data_source` and `stream`, in a worker.
Only then is the client imported: the data source's name does not need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oncelog.spark.source.offsets import OffsetRange
from oncelog.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


def read_partition(
    options: SourceOptions, partition: InputPartition, columns: tuple[str, ...]
) -> Iterator[Any]:
    """Read a plan's partition; Spark makes one of None if there is none."""
    if partition.value is None:
        return iter(())
    *place, topic_id = partition.value
    if options.table:
        from oncelog.spark.source.history import read_both

        return read_both(options, OffsetRange(*place), topic_id, columns)
    from oncelog.spark.source.reading import read_range

    return read_range(options, OffsetRange(*place), columns)
