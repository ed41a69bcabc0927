"""How Spark finds the data source by itself: it looks for DefaultSource in all pyspark_*."""

from oncelog.spark.sink.data_source import OncelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
