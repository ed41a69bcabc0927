"""Checks of a mirror's transformation, from Spark's plan, before the start.

Place in the flow: `mirror` applies the user's function to the source's DataFrame and has the result
checked here, before anything is changed in the target.

A mirror has one task for each source partition, and each sends its rows in their order. So the
analysed plan between the source and the result may only hold operators that keep each row in its
task and in its place. The list below has all operators known to do so; all others are rejected,
including shuffles, limits and joins. `partition` and `offset` must be the very columns of the
source, identified by their expression ids. After `mapInArrow` and `mapInPandas` the columns are new
ones; there the writer checks the rows themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oncelog.errors import ConfigError
from oncelog.spark.mirroring.writer import COLUMNS
from oncelog.spark.source.schema import COLUMNS as SOURCE_COLUMNS
from oncelog.spark.source.schema import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = "StreamingRelationV2"
# One row in, one row out.
_ROW_BY_ROW = frozenset({"Project", "SubqueryAlias", "View", "ResolvedHint"})
_DROPS_ROWS = frozenset({"Filter", "TypedFilter"})
_RUNS_CODE = frozenset({"MapInArrow", "MapInPandas"})
_WHY = {
    "Aggregate": "groupBy, agg and distinct move rows between tasks",
    "Deduplicate": "dropDuplicates moves rows between tasks",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark moves rows between tasks",
    "Generate": "explode makes several records of one, and they would share its sequence",
    "GlobalLimit": "limit moves rows between tasks",
    "Join": "a join moves rows between tasks, or makes several records of one",
    "Repartition": "repartition and coalesce move rows between tasks",
    "RepartitionByExpression": "repartition by columns moves rows between tasks",
    "RebalancePartitions": "a rebalance moves rows between tasks",
    "Sort": "orderBy and sort change the order of rows",
    "Union": "union brings rows of other tasks",
    "Window": "window functions move rows between tasks",
}
_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "timestamp": (SOURCE_COLUMNS["timestamp"],),
    "headers": (HEADERS["headers"],),
    "partition": (SOURCE_COLUMNS["partition"],),
    "offset": (SOURCE_COLUMNS["offset"],),
}


def check_transformed(source: DataFrame, result: object) -> bool:
    """Check the result of a transformation; tell whether it keeps every row.

    Raises ConfigError that names the operator or the column.
    """
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame):
        raise _refused(f"it returned {type(result).__name__}, not a DataFrame")
    names = _check_operators(_analysed(source), _analysed(result))
    _check_columns(source, result, bool(names & _RUNS_CODE))
    return not names & (_DROPS_ROWS | _RUNS_CODE)


def _analysed(frame: DataFrame) -> Any:
    try:
        return frame._jdf.queryExecution().analyzed()
    except AttributeError:
        raise ConfigError(
            "spark: the plan of this session cannot be looked at (Spark Connect): start the "
            "mirror in a classic session",
            "spark",
        ) from None


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


def _check_operators(source: Any, result: Any) -> set[str]:
    names: set[str] = set()
    for node in _nodes(result):
        name = node.nodeName()
        if not node.subqueries().isEmpty():
            raise _refused(f"{name}: a subquery reads other rows than those of its task")
        if name == _SOURCE:
            if not node.sameResult(source):
                raise _refused("it reads another stream than the one that it was given")
        elif name not in _ROW_BY_ROW | _DROPS_ROWS | _RUNS_CODE:
            why = _WHY.get(name, "it is not known to keep each row in its task and place")
            raise _refused(
                f"{name}: {why}. A mirror has one task for each source partition, which sends "
                "its rows in their order: select, withColumn, filter, mapInArrow and mapInPandas "
                "keep to that. For anything else write to a topic with another query"
            )
        names.add(name)
    if _SOURCE not in names:
        raise _refused("it reads no stream: return a DataFrame made of the given one")
    return names


def _check_columns(source: DataFrame, result: DataFrame, runs_code: bool) -> None:
    found = result.schema.fieldNames()
    given = set(source.schema.fieldNames())
    for name in COLUMNS:
        if found.count(name) != 1:
            what = "is missing" if name not in found else f"is there {found.count(name)} times"
            raise _refused(f"the column {name} {what} in its result")
        kind = result.schema[name].dataType.simpleString()
        if kind not in _TYPES[name]:
            raise _refused(f"the column {name} is {kind}, and must be {' or '.join(_TYPES[name])}")
    if extra := [name for name in found if name not in given]:
        raise _refused(f"a record has no place for the column {extra[0]}: drop it")
    before, after = _expression_ids(source), _expression_ids(result)
    for name in ("partition", "offset"):
        if not runs_code and before[name] != after[name]:
            raise _refused(
                f"the column {name} was changed: partition and offset identify a record of the "
                "source"
            )


def _expression_ids(frame: DataFrame) -> dict[str, int]:
    output = _analysed(frame).output()
    attributes = [output.apply(i) for i in range(output.size())]
    return {one.name(): one.exprId().id() for one in attributes}


def _refused(why: str) -> ConfigError:
    return ConfigError(f"transform: {why}", "transform")
