"""Views: rows, totals and warnings from the answers of an admin client."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from oncelog import (
    ClusterInfo,
    CommittedOffset,
    GroupDescription,
    GroupInfo,
    GroupLag,
    GroupMember,
    NodeInfo,
    NotReadyError,
    PartitionInfo,
    PartitionLag,
    TopicConfig,
    TopicInfo,
    TopicPartition,
)
from oncelog.views.groups import group_view
from oncelog.views.live import Look, headline, tables
from oncelog.views.tables import headings, matching
from oncelog.views.topics import summary, topic_view
from oncelog.views.words import copied, plural

A, B, C = (TopicPartition("t", number) for number in range(3))
LED = PartitionInfo(0, 1, 4, (1, 2, 3), log_start_offset=0, high_watermark=9)


def progress(members: tuple[GroupMember, ...] = ()) -> GroupLag:
    at = CommittedOffset(5, "", 0, 0, 0, 7)
    group = GroupDescription("g", True, 7, 2, {A: at, B: at}, members, 3, "range", "oncelog")
    return GroupLag(
        group,
        {
            A: PartitionLag(at, 0, 9, 4, lag_ms=1500),
            B: PartitionLag(at, error=NotReadyError("no leader answered")),
            C: PartitionLag(None, 0, 6),
        },
    )


def test_a_group_shows_all_partitions_and_tells_an_unknown_lag() -> None:
    view = group_view(progress())
    assert (view.group, view.lag, view.last_commit_ms, view.members) == ("g", 4, 7, ())
    assert (view.lag_ms, [row["lag_ms"] for row in view.offsets]) == (1500, [1500, None, None])
    assert [(row["partition"], row["offset"], row["lag"]) for row in view.offsets] == [
        (0, 5, 4),
        (1, 5, None),
        (2, None, None),
    ]
    assert view.warnings == ("t-1: its lag is not known: no leader answered",)
    assert asdict(view)["offsets"][0]["high_watermark"] == 9


def test_a_member_has_the_lag_of_its_partitions_and_they_have_its_name() -> None:
    member = GroupMember("m", "i", "host", {A: 1, C: 2}, (), 30, True)
    view = group_view(progress((member,)))
    (row,) = view.members
    assert (row["member_id"], row["owned"], row["lag"]) == ("m", 2, 4)
    assert [row["owner"] for row in view.offsets] == ["m", "", "m"]


def test_a_topic_tells_partitions_without_a_leader() -> None:
    gone = replace(LED, partition=1, leader_id=0, log_start_offset=-1, high_watermark=-1)
    info = TopicInfo("t", 1, (LED, gone), TopicConfig(), 7)
    assert summary(info)["partitions"] == 2
    view = topic_view(info)
    assert list(view.partitions[1].values()) == [1, None, 4, (1, 2, 3), None, None, None]
    assert view.problems == ("without a leader, so neither written nor read: partitions 1",)
    assert topic_view(replace(info, partitions=(LED,))).problems == ()
    assert headings(view.partitions)[-2:] == ["start", "high watermark"]
    assert headings(()) == []


def test_words_for_counts() -> None:
    assert [plural(number, "record") for number in (0, 1, 2)] == [
        "0 records", "1 record", "2 records",
    ]  # fmt: skip
    assert (copied(1, 4), copied(0, 0)) == ("1 of 4 bytes", None)


def look(at: float, high_watermark: int, **given: Any) -> Look:
    facts = ClusterInfo("c", 1, 1, (NodeInfo(1, "a:1"),), 1, 1, 0, 0, 1000)
    parts = (replace(LED, high_watermark=high_watermark, log_start_offset=4),)
    return Look(at, facts, (TopicInfo("t", 1, parts, TopicConfig(), 7),), **given)


def test_a_picture_has_rates_and_the_lag_of_groups() -> None:
    groups = (GroupInfo("g", 2, 7, 1, "oncelog"), GroupInfo("late", 2, 7))
    now = look(12.0, 29, groups=groups, lags={"g": progress()})
    found = tables(now, look(10.0, 9))
    assert found["topics"].rows == [("t", 1, 3, 25, 10, 0, 0)]
    assert [(row[0], *row[-2:]) for row in found["groups"].rows] == [
        ("g", 4, "1.5 s"), ("late", None, None),
    ]  # fmt: skip
    assert tables(now)["topics"].rows == [("t", 1, 3, 25, None, 0, 0)]
    assert tables(look(12.0, -1), now)["topics"].rows == [("t", 1, 3, None, None, 0, 0)]
    assert tables(look(14.0, 20), now)["topics"].rows[0][4] == 0, "a node that is a little behind"
    assert headline(now) == "healthy. 1 node, 1 topic, 1 partition"
    down = replace(now, cluster=replace(now.cluster, controller_id=0), refused=("no right",))
    assert headline(down) == "not healthy: no controller. 1 node, 1 topic, 1 partition. no right"


def test_names_that_match() -> None:
    assert matching(["a-1", "b-1", "a-22"], ["a-?", "b*"], str) == ["a-1", "b-1"]
    assert matching(["a"], [], str) == ["a"]
    assert matching(["a"], ["A"], str) == []
