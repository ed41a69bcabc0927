"""Small rows of a topic: the data that an audit keeps of each record.

Place in the flow: `run` reads each side once, through this, into Parquet; everything else is
computed from there. A row has some 60 bytes for a record of any size: values that are only compared
are digests of 128 bits (MD5; nobody forges records to fool an audit).

    partition, offset, timestamp, bytes    where, when, how large (key and value)
    key                                    digest of the key; null without one
    identity                               digest of the columns that identify the record
    content                                digest of key, value, timestamp and headers
    producer, sequence                     results of the caller's expressions; else null
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from oncelog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEEDED = ("partition", "offset", "timestamp")
CONTENT = ("key", "value", "timestamp", "headers")


def small_rows(
    frame: DataFrame, identity: Sequence[str], producer: str | None, sequence: str | None
) -> DataFrame:
    """Return the table; `identity`, `producer` and `sequence` are SQL expressions.

    Raises ConfigError that names the argument.
    """
    names = frame.schema.fieldNames()
    for name in NEEDED:
        if name not in names:
            raise ConfigError(f"topic: the DataFrame has no column {name}", "topic")
    exact = [f.col(name) for name in CONTENT if name in names]
    if "headers" in names:
        # No headers may be null or an empty list, depending on the rest of the stored batch.
        exact[-1] = f.when(f.size("headers") > 0, f.col("headers"))
    return frame.select(
        f.col("partition").cast("int").alias("partition"),
        f.col("offset").cast("bigint").alias("offset"),
        f.col("timestamp").cast("timestamp").alias("timestamp"),
        _size(names).alias("bytes"),
        (f.unhex(f.md5("key")) if "key" in names else f.lit(None).cast("binary")).alias("key"),
        _digest(frame, [_expression(frame, "identity", one) for one in identity]).alias("identity"),
        _digest(frame, exact).alias("content"),
        _typed(frame, "producer", producer, "string"),
        _typed(frame, "sequence", sequence, "bigint"),
    )


def _size(names: Sequence[str]) -> Column:
    sizes = [f.coalesce(f.octet_length(n), f.lit(0)) for n in ("key", "value") if n in names]
    return sum(sizes, f.lit(0)).cast("bigint")


def _typed(frame: DataFrame, argument: str, text: str | None, kind: str) -> Column:
    if text is None:
        return f.lit(None).cast(kind).alias(argument)
    # A value that is no number is null, and counted as unreadable, rather than an error.
    return _expression(frame, argument, text).try_cast(kind).alias(argument)


def _expression(frame: DataFrame, argument: str, text: str) -> Column:
    try:
        column = f.expr(text)
        frame.select(column)
    except AnalysisException as error:
        raise ConfigError(f"{argument}: {text!r}: {error.getMessage()}", argument) from None
    return column


def _digest(frame: DataFrame, columns: Sequence[Column]) -> Column:
    """Return MD5 over the MD5s of the columns, so different lists never look equal."""
    parts = []
    for column in columns:
        kind = frame.select(column).schema[0].dataType.simpleString()
        if kind == "timestamp":
            column = f.unix_micros(column).cast("string")
        elif kind.startswith(("array", "struct", "map")):
            column = f.to_json(f.struct(column))
        elif kind != "binary":
            column = column.cast("string")
        parts.append(f.coalesce(f.md5(column), f.lit("null")))
    return f.unhex(f.md5(f.concat_ws(" ", *parts)))
