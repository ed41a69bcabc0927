"""Data source for Spark: its name, its columns, its readers.

Place in the flow: Spark's planner finds `OncelogDataSource` through `pyspark_oncelog`, in a process
of its own, for every session that uses any Python data source. So this module imports only the code
for its name. `.load()` makes one and asks for the columns, an action asks for a reader, and each
task calls the reader's `read`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from oncelog.errors import NotSupportedError
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.schema import columns_as_types, wanted_columns
from oncelog.spark.source.tasks import read_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


class OncelogDataSource(DataSource):
    """`format("oncelog")`: topics as a table or a stream. docs/spark.md has the options.

    Every method that Spark calls raises ConfigError for a wrong option; Spark turns it into an
    AnalysisException.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = options

    @cached_property
    def _parsed(self) -> SourceOptions:
        """Parsed on demand: a write has other options."""
        return SourceOptions.parse(self._given)

    @classmethod
    def name(cls) -> str:
        return "oncelog"

    def schema(self) -> StructType:
        return columns_as_types(self._parsed.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._parsed.for_batch()
        return OncelogReader(self._parsed, wanted_columns(schema, self._parsed.include_headers))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            from oncelog.spark.source.stream import OncelogStreamReader
        except ImportError as error:
            raise NotSupportedError(
                f"streaming from Oncelog needs PySpark 4.2 or later ({error})"
            ) from None
        return OncelogStreamReader(self._parsed, schema)


class OncelogReader(DataSourceReader):
    """A batch query: plans ranges on the driver, reads each of them in a task."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        from oncelog.spark.source.planning import Planner, id_of

        with Planner(self._options) as planner:
            ranges = planner.batch()
            ids = planner.look().ids if self._options.table else {}
            return [InputPartition((*one, id_of(ids.get(one.tp.topic, "0")))) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, partition, self._columns)
