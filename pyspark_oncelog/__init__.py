"""Entry point for Spark, which looks for DefaultSource in all packages named pyspark_*."""

from oncelog.spark.sink.data_source import OncelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
