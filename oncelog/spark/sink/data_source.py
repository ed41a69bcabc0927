"""Complete data source `format("oncelog")`: reading, from `source`, and writing.

Place in the flow: Spark's planner finds this class through `pyspark_oncelog`, for every session
that uses any Python data source; the writers are imported on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.source.data_source import OncelogDataSource as OncelogSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType


class OncelogDataSource(OncelogSource):
    """Topics as tables and streams, and as the output of queries and jobs."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from oncelog.spark.sink.writers import JobSink, refuse_overwrite

        refuse_overwrite(overwrite)
        options = SinkOptions.parse(self.options)
        options.for_batch()
        return JobSink(options, schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        from oncelog.spark.sink.writers import StreamSink, refuse_overwrite

        refuse_overwrite(overwrite)
        options = SinkOptions.parse(self.options)
        options.for_stream()
        return StreamSink(options, schema)
