"""Lag of a streaming query, from its own progress reports.

Place in the flow: the stream reader puts both the end of a trigger and the end of each partition
into Spark's progress; this takes the difference. Spark's Python API has no place for metrics of a
source, where the Kafka connector reports its lag.
"""

from __future__ import annotations

import json
from typing import Any

from oncelog.spark.source.offsets import IDS, Offsets, StreamPosition


def lag(progress: Any) -> Offsets:
    """Return, by partition, how many records the query had not read when it reported.

    `progress`: a StreamingQueryProgress, as of `query.lastProgress`. Sources of other formats are
    left out; so is everything before the first trigger has ended.
    """
    behind: Offsets = {}
    for source in progress.sources:
        end, latest = _place(source.endOffset), _place(source.latestOffset)
        if end is None or latest is None:
            continue
        for tp, at in latest.offsets.items():
            behind[tp] = behind.get(tp, 0) + max(0, at - end.offsets.get(tp, 0))
    return behind


def _place(text: str | None) -> StreamPosition | None:
    try:
        parsed = json.loads(text or "")
    except ValueError:
        return None
    return StreamPosition.from_json(parsed) if isinstance(parsed, dict) and IDS in parsed else None
