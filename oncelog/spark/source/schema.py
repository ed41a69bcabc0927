"""Schema of a topic in Spark, and the columns that a query asks for.

Place in the flow: `data_source` tells Spark the columns; the readers pass the names to `reading`,
which picks them out of each Arrow batch. Spark's Python API prunes no columns itself, but
`.schema("value binary")` before `.load()` does: fewer bytes then cross from Python to the JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
}
HEADERS = {"headers": "array<struct<key:string,value:binary>>"}


def columns_as_types(include_headers: bool) -> StructType:
    """Return the schema as types: in DDL text "timestamp" follows spark.sql.timestampType."""
    from pyspark.sql import types

    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    known = (
        types.BinaryType(),
        types.StringType(),
        types.IntegerType(),
        types.LongType(),
        types.TimestampType(),
        types.ArrayType(header),
    )
    kinds: dict[str, types.DataType] = {kind.simpleString(): kind for kind in known}
    columns = {**COLUMNS, **HEADERS} if include_headers else COLUMNS
    fields = [types.StructField(name, kinds[kind]) for name, kind in columns.items()]
    return types.StructType(fields)


def _ddl() -> str:
    return ", ".join(f"{name} {kind}" for name, kind in {**COLUMNS, **HEADERS}.items())


def wanted_columns(schema: StructType, include_headers: bool) -> tuple[str, ...]:
    """Return the names of a schema's columns, in its order.

    Raises ConfigError if a column is unknown, of another type, or may not be null.
    """
    allowed = {**COLUMNS, **HEADERS}
    problems: list[str] = []
    for one in schema.fields:
        kind = one.dataType.simpleString()
        if one.name not in allowed:
            problems.append(f"there is no column {one.name}")
        elif kind != allowed[one.name]:
            problems.append(f"{one.name} is {allowed[one.name]}, not {kind}")
        elif not one.nullable:
            problems.append(f"{one.name} may be null")
        elif one.name in HEADERS and not include_headers:
            problems.append("the column headers needs includeHeaders=true")
    names = schema.fieldNames()
    problems += [f"{name} is there twice" for name in sorted(set(names)) if names.count(name) > 1]
    if problems or not names:
        raise ConfigError(
            f"schema: {'; '.join(problems) or 'it has no column'}. It may have any of: {_ddl()}",
            "schema",
        )
    return tuple(names)
