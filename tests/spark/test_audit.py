"""The audit finds each kind of fault where one was planted, and none where there is none."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer, Record
from oncelog.errors import ConfigError
from oncelog.spark import audit
from oncelog.spark.auditing import checks as audit_checks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHO = "split(cast(value as string), ':')[0]"
NUMBER = "get(split(cast(value as string), ':'), 1)"
NUMBERED: dict[str, Any] = {
    "identity": ["cast(value as string)"],
    "producer": WHO,
    "sequence": NUMBER,
}


def write(producer: Producer, topic: str, *partitions: Sequence[str]) -> None:
    """ "value" or "value|key" or "value|key|header"; a value always has the same timestamp."""
    for number, texts in enumerate(partitions):
        records = []
        for text in texts:
            value, key, header = (*text.split("|"), "", "")[:3]
            headers = [("h", header.encode())] if header else []
            stamp = 1_700_000_000_000_000 + 1000 * sum(value.encode())
            records.append(Record(value.encode(), key.encode() or None, headers, stamp))
        producer.send_batch(topic, number, records).result(20)


def places(spark: SparkSession, path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """kind -> (partition, offset, sequence, amount) of its findings."""
    found = defaultdict(list)
    for row in spark.read.parquet(str(path / "findings")).collect():
        found[row.kind].append((row.partition, row.offset, row.sequence, row.amount))
    return {kind: sorted(rows, key=str) for kind, rows in found.items()}


def test_each_kind_is_found_where_it_was_planted(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, producer: Producer,
    topic: str, tmp_path: Path,
) -> None:  # fmt: skip
    copy = f"{topic}-copy"
    for name in (topic, copy):
        admin.create_topic(name, 2, 3)
    write(
        producer, topic,
        ["a:0|k", "a:1|k", "a:2|k", "a:4|k", "a:3|k", "a:2|k", "junk"],
        ["b:0|x", "b:1|x", "b:5|x", "b:3|y", "b:9|x"],
    )  # fmt: skip
    write(
        producer, copy,
        ["a:0|k", "a:1|k|other", "a:4|k", "a:2|k", "a:3|k", "a:2|k", "a:2|k", "b:3|y"],
        ["b:0|x", "b:1|x", "b:5|x", "b:9|x", "z:1|x"],
    )  # fmt: skip
    path = tmp_path / "audit"
    report = audit(
        spark, topic, path=str(path), copy=copy, bootstrap_servers=cluster.bootstrap, **NUMBERED
    )
    assert (report.records, report.distinct, report.copy_records) == (12, 11, 13)
    assert not report.clean
    assert places(spark, path) == {
        "duplicate": [(0, 5, 2, 1)],
        "gap": [(None, None, 2, 1), (None, None, 4, 1), (None, None, 6, 3)],
        "order": [(0, 4, 3, 1), (1, 3, 3, 1)],
        "key_order": [(0, 4, 3, 1)],
        "unreadable": [(0, 6, None, 1)],
        "missing": [(0, 6, None, 1)],
        "extra": [(1, 4, 1, 1)],
        "twice": [(0, 6, 2, 1)],
        "changed": [(0, 1, 1, 1)],
        "moved": [(1, 3, 3, 1)],
        "disordered": [(0, 3, 2, 1)],
    }
    assert report.faults == {
        "duplicate": 1, "gap": 5, "order": 2, "key_order": 1, "unreadable": 1, "hole": 0,
        "missing": 1, "extra": 1, "twice": 1, "changed": 1, "moved": 1, "disordered": 1,
    }  # fmt: skip
    assert "gap: 5" in str(report)
    assert json.loads((path / "summary.json").read_text())["faults"] == report.faults
    page = (path / "index.html").read_text()
    assert "5 gap" in page and "behind a later number of its producer" in page
    assert "http" not in page.replace("http-equiv", "")  # nothing from elsewhere
    producers = {row.producer: row for row in spark.read.parquet(str(path / "producers")).collect()}
    assert (producers["b"].records, producers["b"].gap, producers["a"].duplicate) == (5, 5, 1)
    times = spark.read.parquet(str(path / "times")).collect()
    assert sum(row.records for row in times) == 12
    assert sum(row.copied for row in times) == 13
    # Records without a number show fewer faults.
    values = audit(spark, topic, path=str(tmp_path / "values"), bootstrap_servers=cluster.bootstrap)
    assert values.faults == {"duplicate": 1, "hole": 0}


def test_a_faithful_copy_is_clean(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, producer: Producer,
    topic: str, tmp_path: Path,
) -> None:  # fmt: skip
    copy = f"{topic}-copy"
    for name in (topic, copy):
        admin.create_topic(name, 2, 3)
    rows = [f"a:{n}|{n % 3}" for n in range(50)]
    write(producer, topic, rows, [f"b:{n}" for n in range(20)])
    # The records that a mirror with this transformation would have written.
    write(producer, copy, rows[10:], [f"b:{n}" for n in range(10, 20)])

    def transform(frame: DataFrame) -> DataFrame:
        return frame.where("offset >= 10")

    there: dict[str, Any] = {"copy": copy, "bootstrap_servers": cluster.bootstrap}
    path = tmp_path / "audit"
    report = audit(spark, topic, path=str(path), transform=transform, **there, **NUMBERED)
    assert report.clean, report
    assert "clean" in (path / "index.html").read_text()
    # Its first offset is 10 now: nothing is missing in between.
    assert report.records == 50
    whole = audit(spark, topic, path=str(tmp_path / "whole"), **there)
    assert whole.faults == {
        "duplicate": 0, "hole": 0, "missing": 20, "extra": 0, "twice": 0, "changed": 0,
        "moved": 0, "disordered": 0,
    }  # fmt: skip


# --- against counting by hand --------------------------------------------------------


def test_counts_equal_those_of_a_plain_loop(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random logs with holes; short stretches, so that much is carried from one to the next."""
    monkeypatch.setattr(audit_checks, "STRETCH", 8)
    rng = random.Random(11)
    topic = [
        log_row(rng, partition, offset)
        for partition in range(3)
        for offset in range(120)
        if rng.random() > 0.05
    ]
    copy = []
    for row in topic:
        for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 1, 2])):
            partition = row["partition"] if rng.random() > 0.03 else 2
            value = row["value"] if rng.random() > 0.03 else row["value"] + b"x"
            place = row["offset"] + (rng.randrange(4) if rng.random() < 0.1 else 0)
            copy.append((partition, place, rng.random(), {**row, "value": value}))
            if rng.random() < 0.02:
                copy.append((partition, place, rng.random(), {**row, "value": b"p9:%d" % place}))
    copied: list[dict[str, Any]] = []
    for partition, _, _, row in sorted(copy, key=lambda one: one[:3]):
        offset = sum(one["partition"] == partition for one in copied)
        copied.append({**row, "partition": partition, "offset": offset})
    schema = "key binary, value binary, partition int, offset long, timestamp timestamp"
    sides = [
        spark.createDataFrame([tuple(row.values()) for row in rows], schema)
        for rows in (topic, copied)
    ]
    numbered = {**NUMBERED, "identity": ["split(cast(value as string), 'x')[0]"]}
    numbered["sequence"] = "split(split(cast(value as string), ':')[1], 'x')[0]"
    report = audit(spark, sides[0], copy=sides[1], path=str(tmp_path / "audit"), **numbered)
    assert report.faults == {**alone(topic), **compared(topic, copied)}
    assert all(count for kind, count in report.faults.items() if kind != "unreadable")


def log_row(rng: random.Random, partition: int, offset: int) -> dict[str, Any]:
    number = max(0, offset + rng.choice([0, 0, 0, 0, 0, 0, -3, 5]))
    return {
        "key": rng.choice([None, b"k", b"l"]),
        "value": b"p%d:%d" % (rng.randrange(2), 3 * number + partition),
        "partition": partition,
        "offset": offset,
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number),
    }


def identity(row: dict[str, Any]) -> bytes:
    return bytes(row["value"]).split(b"x")[0]


def alone(topic: list[dict[str, Any]]) -> dict[str, int]:
    found = dict.fromkeys(("duplicate", "gap", "order", "key_order", "unreadable", "hole"), 0)
    seen: set[bytes] = set()
    highest: dict[tuple[Any, ...], int] = {}
    numbers: dict[bytes, set[int]] = defaultdict(set)
    last: dict[int, int] = {}
    for row in sorted(topic, key=lambda one: (one["partition"], one["offset"])):
        partition = row["partition"]
        found["hole"] += row["offset"] - last.get(partition, row["offset"] - 1) - 1
        last[partition] = row["offset"]
        if identity(row) in seen:
            found["duplicate"] += 1
            continue
        seen.add(identity(row))
        who, number = identity(row).split(b":")
        numbers[who].add(int(number))
        groups: list[tuple[str, tuple[Any, ...]]] = [("order", (partition, who))]
        if row["key"] is not None:
            groups.append(("key_order", (partition, who, row["key"])))
        for kind, group in groups:
            found[kind] += int(number) < highest.get(group, -1)
            highest[group] = max(highest.get(group, -1), int(number))
    found["gap"] = sum(max(own) - min(own) + 1 - len(own) for own in numbers.values())
    return found


def compared(topic: list[dict[str, Any]], copy: list[dict[str, Any]]) -> dict[str, int]:
    found = dict.fromkeys(("missing", "extra", "twice", "changed", "moved", "disordered"), 0)
    there: dict[bytes, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(topic, key=lambda one: (one["partition"], one["offset"])):
        there[identity(row)].append(row)
    used: dict[bytes, int] = defaultdict(int)
    highest: dict[int, int] = {}
    for row in sorted(copy, key=lambda one: (one["partition"], one["offset"])):
        nth = used[identity(row)]
        used[identity(row)] += 1
        if nth >= len(there[identity(row)]):
            found["twice" if there[identity(row)] else "extra"] += 1
            continue
        origin = there[identity(row)][nth]
        found["changed"] += any(origin[n] != row[n] for n in ("key", "value", "timestamp"))
        if origin["partition"] != row["partition"]:
            found["moved"] += 1
            continue
        found["disordered"] += origin["offset"] < highest.get(row["partition"], -1)
        highest[row["partition"]] = max(highest.get(row["partition"], -1), origin["offset"])
    found["missing"] = sum(max(0, len(rows) - used[key]) for key, rows in there.items())
    return found


# --- refusals ------------------------------------------------------------------------


def test_wrong_arguments_of_an_audit_are_named(
    spark: SparkSession, cluster: LocalCluster, admin: Admin, topic: str, tmp_path: Path
) -> None:
    admin.create_topic(topic, 1, 3)
    there: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap,
        "path": str(tmp_path / "audit"),
    }
    for arguments, name, problem in (
        ({"producer": WHO}, "sequence", "producer and sequence must be given together"),
        ({"identity": "value"}, "identity", "must be a list"),
        ({"identity": []}, "identity", "must be a list"),
        ({"identity": ["valeu"]}, "identity", "'valeu'"),
        ({"producer": "a(", "sequence": "1"}, "producer", "'a('"),
        ({"transform": lambda df: df}, "copy", "need a copy"),
        ({"bootstrap_servers": None}, "topic", "bootstrap_servers is missing"),
        ({"path": str(tmp_path)}, "path", "exists already"),
    ):
        with pytest.raises(ConfigError, match=problem.replace("(", r"\(")) as caught:
            audit(spark, topic, **{**there, **arguments})
        assert name in caught.value.settings, arguments
    with pytest.raises(ConfigError, match="no column offset"):
        audit(spark, spark.range(3).selectExpr("1 as partition"), path=str(tmp_path / "a"))
    assert not (tmp_path / "audit").exists()
