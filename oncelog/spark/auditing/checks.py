"""Checks of an audit, as Spark queries over its table of small rows.

Place in the flow: `run` hands over the rows of the topic and of its copy, and writes the
results. Each fault becomes one row of a table of findings. Counts are counts of those rows, except
for gaps, where a row stands for a range of numbers.

No query has a task that grows with the topic. Checks in the order of a partition or of a producer
are cut into stretches of about a million rows. Each stretch is checked by itself, and a small table
carries values from one stretch to the next (`_highest_before`).

This is one of three checkers of the project, and shares nothing with the other two (those of the
tests of the cluster): neither code nor the way it looks at a record.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STRETCH = 1 << 20
# kind -> its meaning, in the order of a report
TOPIC_KINDS = {
    "duplicate": "the same identity again",
    "gap": "numbers of a producer that are nowhere",
    "order": "behind a later number of its producer in the partition",
    "key_order": "the same, with the same key",
    "unreadable": "no producer or sequence can be read from it",
    "hole": "offsets that are missing in the partition",
}
COPY_KINDS = {
    "missing": "in the topic, not in the copy",
    "extra": "in the copy, not in the topic",
    "twice": "in the copy more often than in the topic",
    "changed": "the same identity with other content",
    "moved": "in another partition of the copy",
    "disordered": "in the copy behind a record that comes later in the topic",
}
# Their partition and offset are the copy's; all others' are the topic's.
PLACED_IN_COPY = ("extra", "twice", "disordered")
_NEEDS_NUMBERS = ("gap", "order", "key_order", "unreadable")


def kinds(numbered: bool, compared: bool) -> dict[str, str]:
    """Return the kinds of faults to look for, with their meanings."""
    found = {k: v for k, v in TOPIC_KINDS.items() if numbered or k not in _NEEDS_NUMBERS}
    return {**found, **COPY_KINDS} if compared else found


def ranked(rows: DataFrame) -> DataFrame:
    """Add `nth`, the position of a row among those of its identity on its side, and `known`:
    whether the identity is in the topic at all. `rows` are those of both sides, with `side`."""
    again = Window.partitionBy("identity", "side").orderBy("partition", "offset")
    known = f.max(f.col("side") == "topic").over(Window.partitionBy("identity"))
    return rows.withColumn("nth", f.row_number().over(again)).withColumn("known", known)


def pairs(ranks: DataFrame) -> DataFrame:
    """Pair the n-th record of an identity in the topic (`t`) with that of the copy (`c`)."""
    one = f.struct("partition", "offset", "timestamp", "producer", "sequence", "content")
    return ranks.groupBy("identity", "nth").agg(
        f.first(f.when(f.col("side") == "topic", one), ignorenulls=True).alias("t"),
        f.first(f.when(f.col("side") == "copy", one), ignorenulls=True).alias("c"),
        f.first("known").alias("known"),
    )


def findings(ranks: DataFrame, paired: DataFrame | None, numbered: bool) -> DataFrame:
    """Return all faults: kind, partition, offset, timestamp, producer, sequence, amount, detail.

    `ranks`, `paired`: results of `ranked` and `pairs`. `numbered`: the rows have a producer and a
    sequence. `amount` is 1, or for a gap or a hole the count of missing numbers.
    """
    topic = ranks.where("side = 'topic'")
    found = [
        _rows(topic.where("nth > 1"), "duplicate", f.concat(f.lit("number "), "nth")),
        _holes(topic),
    ]
    if numbered:
        readable = f.col("producer").isNotNull() & f.col("sequence").isNotNull()
        found.append(_rows(topic.where(~readable), "unreadable"))
        # A repeated record counts as a duplicate, not as out of order.
        once = topic.where(readable & (f.col("nth") == 1))
        found += [_order(once, ["partition", "producer"], "order"), _gaps(once)]
        keyed = once.where(f.col("key").isNotNull())
        found.append(_order(keyed, ["partition", "producer", "key"], "key_order"))
    if paired is not None:
        found += _compared(paired)
    return reduce(lambda a, b: a.unionByName(b), found)


def _rows(frame: DataFrame, kind: str, detail: Column | None = None) -> DataFrame:
    return frame.select(
        f.lit(kind).alias("kind"),
        *("partition", "offset", "timestamp", "producer", "sequence"),
        f.lit(1).cast("bigint").alias("amount"),
        (f.lit(None) if detail is None else detail).cast("string").alias("detail"),
    )


# --- one topic -----------------------------------------------------------------------


def _order(once: DataFrame, group: list[str], kind: str) -> DataFrame:
    before = _highest_before(once, group, f.col("sequence"))
    late = before.where(f.col("sequence") < f.col("before"))
    return _rows(late, kind, f.concat(f.lit("behind "), "before"))


def _gaps(once: DataFrame) -> DataFrame:
    """Return numbers between a producer's lowest and highest that no record has."""
    numbers = once.select("producer", "sequence").distinct()
    return _steps(numbers, "producer", "sequence").select(
        f.lit("gap").alias("kind"),
        f.lit(None).cast("int").alias("partition"),
        f.lit(None).cast("bigint").alias("offset"),
        f.lit(None).cast("timestamp").alias("timestamp"),
        "producer",
        f.col("after").alias("sequence"),
        (f.col("sequence") - f.col("after")).alias("amount"),
        f.concat(f.lit("to "), f.col("sequence") - 1).alias("detail"),
    )


def _holes(topic: DataFrame) -> DataFrame:
    """Return offsets between a partition's first and last that no record has, or several have."""
    places = topic.select("partition", "offset").distinct()
    return _steps(places, "partition", "offset").select(
        f.lit("hole").alias("kind"),
        "partition",
        f.col("after").alias("offset"),
        f.lit(None).cast("timestamp").alias("timestamp"),
        f.lit(None).cast("string").alias("producer"),
        f.lit(None).cast("bigint").alias("sequence"),
        (f.col("offset") - f.col("after")).alias("amount"),
        f.concat(f.lit("to "), f.col("offset") - 1).alias("detail"),
    )


def _steps(frame: DataFrame, group: str, number: str) -> DataFrame:
    """Return rows whose number does not follow the last in its group, which is `after`."""
    stretch = f.floor(f.col(number) / STRETCH)
    rows = frame.withColumn("stretch", stretch)
    inside = Window.partitionBy(group, "stretch").orderBy(number)
    steps = rows.withColumn("last", f.lag(number).over(inside))
    # The first of each stretch follows the last of the one before.
    ends = rows.groupBy(group, "stretch").agg(f.max(number).alias("end"))
    along = Window.partitionBy(group).orderBy("stretch")
    ends = ends.select(group, "stretch", f.lag("end").over(along).alias("carried"))
    joined = steps.join(ends, [group, "stretch"])
    after = f.coalesce("last", "carried") + 1
    return joined.withColumn("after", after).where(f.col(number) > f.col("after"))


def _highest_before(frame: DataFrame, group: list[str], value: Column) -> DataFrame:
    """Add `before`: the highest value in the group at lower offsets; null: there is none."""
    rows = frame.withColumn("stretch", f.floor(f.col("offset") / STRETCH))
    rows = rows.withColumn("value", value)
    inside = Window.partitionBy(*group, "stretch").orderBy("offset")
    near = f.max("value").over(inside.rowsBetween(Window.unboundedPreceding, -1))
    ends = rows.groupBy(*group, "stretch").agg(f.max("value").alias("end"))
    along = Window.partitionBy(*group).orderBy("stretch")
    carried = f.max("end").over(along.rowsBetween(Window.unboundedPreceding, -1))
    ends = ends.select(*group, "stretch", carried.alias("carried"))
    joined = rows.withColumn("near", near).join(ends, [*group, "stretch"])
    return joined.withColumn("before", f.greatest("near", "carried"))


# --- topic and copy ------------------------------------------------------------------


def _compared(paired: DataFrame) -> list[DataFrame]:
    lone = paired.where(f.col("t").isNull())
    matched = paired.where(f.col("t").isNotNull() & f.col("c").isNotNull())
    stayed = matched.where(f.col("t.partition") == f.col("c.partition"))
    in_copy = stayed.select("c.*", f.col("t.offset").alias("origin"))
    late = _highest_before(in_copy, ["partition"], f.col("origin"))
    place = f.concat(f.lit("copy "), "c.partition", f.lit("@"), "c.offset")
    return [
        _rows(paired.where(f.col("c").isNull()).select("t.*"), "missing"),
        _rows(lone.where("not known").select("c.*"), "extra"),
        _rows(lone.where("known").select("c.*"), "twice"),
        _rows(
            matched.where("t.content != c.content").select("t.*", place.alias("place")),
            "changed",
            f.col("place"),
        ),
        _rows(
            matched.where("t.partition != c.partition").select("t.*", place.alias("place")),
            "moved",
            f.col("place"),
        ),
        _rows(
            late.where("origin < before"),
            "disordered",
            f.concat(f.lit("offset "), "origin", f.lit(" behind "), "before"),
        ),
    ]
