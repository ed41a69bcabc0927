"""Offsets in Spark: their JSON, shares of a trigger's limit, splits. Pure.

Place in the flow: `options` parses the user's offsets with it, `stream` writes the checkpoint
and the query's progress, both readers plan their tasks with it.

The JSON is that of Spark's Kafka connector: {"orders": {"0": 23, "1": 42}}. Ours has one more key,
which is no valid topic name: {"@id": {"orders": "7-1760000000000"}} identifies the topic of that
name. Without it a recreated topic would be read on at the old one's offsets, and the skipped
records would go unnoticed. The key "@new" marks a beginning that has to be written down first (see
`stream`).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from oncelog.config import MAX_INT64
from oncelog.errors import ConfigError
from oncelog.types import TopicPartition

Offsets = dict[TopicPartition, int]
LATEST, EARLIEST = -1, -2  # Kafka's numbers in JSON
IDS = "@id"
NEW = "@new"


class OffsetRange(NamedTuple):
    """The records of one partition from `start` to before `end`."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Position of a stream: the next offset of each partition, and the topics' ids."""

    offsets: Offsets
    ids: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for Spark; equal places give equal text, in any order."""
        result: dict[str, Any] = {IDS: dict(sorted(self.ids.items()))}
        for tp, offset in sorted(self.offsets.items()):
            result.setdefault(tp.topic, {})[str(tp.partition)] = offset
        return result

    @classmethod
    def from_json(cls, parsed: Mapping[str, Any]) -> StreamPosition:
        """Parse the result of `to_json`."""
        offsets = {
            TopicPartition(topic, int(partition)): offset
            for topic, each in parsed.items()
            if topic not in (IDS, NEW)
            for partition, offset in each.items()
        }
        return cls(offsets, dict(parsed.get(IDS, {})))


# --- what the user wrote ---------------------------------------------------------------


def parse_place(option: str, text: str, lowest: int) -> StreamPosition:
    """Parse `{"topic": {"partition": number}}` into numbers, none of them below `lowest`.

    Raises ConfigError that names the option.
    """
    parsed = parse_object(option, text, '{"orders": {"0": 23, "1": 42}}')
    ids: dict[str, str] = {}
    offsets: Offsets = {}
    for topic, each in parsed.items():
        if not isinstance(each, dict):
            raise ConfigError(
                f'{option}: the value of {topic!r} must be {{"partition": number}}, got {each!r}',
                option,
            )
        if topic == NEW:
            continue
        if topic == IDS:
            ids = {name: str(one) for name, one in each.items()}
            continue
        for key, number in each.items():
            partition = parse_partition(option, topic, key)
            offsets[partition] = _number(option, str(partition), number, lowest)
    return StreamPosition(offsets, ids)


def parse_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"{option} is no JSON ({error}), got {text!r}; such as {example}", option
        ) from None
    if not isinstance(parsed, dict) or not parsed:
        raise ConfigError(f"{option} must be JSON such as {example}, got {text!r}", option)
    return parsed


def parse_partition(option: str, topic: str, partition: object) -> TopicPartition:
    number = partition if isinstance(partition, int | str) else ""
    if isinstance(number, bool) or not str(number).isascii() or not str(number).isdigit():
        raise ConfigError(
            f"{option}: {partition!r} is no partition number of {topic!r}: 0, 1, ...", option
        )
    return TopicPartition(topic, int(number))


def _number(option: str, what: str, number: object, lowest: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number <= MAX_INT64:
        raise ConfigError(
            f"{option}: {what} must be an integer from {lowest} to {MAX_INT64}, got {number!r}",
            option,
        )
    return number


# --- planning --------------------------------------------------------------------------


def admit(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """Return the end of a trigger: about `limit` records behind `start`, at most `end`.

    Each partition gets a share in proportion to its backlog, and at least one record, so that a
    small one never starves; only that can exceed the limit.
    """
    backlog = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(backlog.values())
    if total <= limit:
        return dict(end)
    shares = {tp: max(1, limit * size // total) for tp, size in backlog.items()}
    # The rest from rounding down goes to the largest remainders of those not lifted to 1.
    left = max(0, limit - sum(shares.values()))
    whole = [tp for tp, size in backlog.items() if limit * size >= total]
    for tp in sorted(whole, key=lambda tp: (-(limit * backlog[tp] % total), tp))[:left]:
        shares[tp] += 1
    return {tp: start[tp] + shares[tp] if tp in shares else at for tp, at in end.items()}


def split(ranges: Iterable[OffsetRange], at_least: int) -> list[OffsetRange]:
    """Cut ranges so that there are at least so many, if the records suffice.

    The next cut always goes into the range with the largest pieces. Empty ranges are dropped.
    """
    whole = [one for one in ranges if one.size > 0]
    pieces = [1] * len(whole)
    heap = [(-float(one.size), i) for i, one in enumerate(whole)]
    heapq.heapify(heap)
    for _ in range(at_least - len(whole)):
        if not heap or heap[0][0] >= -1:
            break
        i = heap[0][1]
        pieces[i] += 1
        heapq.heapreplace(heap, (-whole[i].size / pieces[i], i))
    return [part for one, count in zip(whole, pieces, strict=True) for part in _cut(one, count)]


def _cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [one.start + one.size * i // count for i in range(count + 1)]
    return [OffsetRange(one.tp, a, b) for a, b in pairwise(edges)]
