"""Node that notes the time of each batch at each point: `python -m bench.traced_node`.

    the node's own code, with notes at the points of `note_node` --SIGTERM--> a JSON file

The clock is CLOCK_MONOTONIC, which all processes of a machine share. A stopped node writes its
notes, with its process id, to the file that BENCH_NOTES names.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.__main__ import main
from cluster.consensus.driver import Driver
from cluster.consensus.message import Append, AppendReply
from cluster.partition.replica import Partition
from cluster.services.log.produce import Appender, ProduceCall

NOTES_VARIABLE = "BENCH_NOTES"
Notes = list[tuple[int, str]]  # (nanoseconds, point)
_Method = Callable[..., Any]


def note_calls(notes: Notes, owner: type, method: str, *, before: str = "", after: str = "",
               if_: Callable[..., bool] = lambda *_: True) -> None:  # fmt: skip
    """Makes `owner.method` note its calls and returns."""
    inner: _Method = getattr(owner, method)

    @functools.wraps(inner)
    def noted(*args: Any, **keywords: Any) -> Any:
        wanted = if_(*args)
        if before and wanted:
            notes.append((time.monotonic_ns(), before))
        result = inner(*args, **keywords)
        if after and wanted:
            notes.append((time.monotonic_ns(), after))
        return result

    setattr(owner, method, noted)


def _brings_entries(_driver: Driver, _sender: int, messages: list[Any]) -> bool:
    return any(isinstance(one, Append) and one.data for one in messages)


def _brings_reply(_driver: Driver, _sender: int, messages: list[Any]) -> bool:
    return any(isinstance(one, AppendReply) for one in messages)


def note_node(notes: Notes) -> None:
    """Notes the points of a node that `bench.own.path` knows."""
    note_calls(notes, Partition, "append", after="proposed")
    note_calls(notes, Driver, "begin", before="round begins", after="written")
    note_calls(notes, Driver, "sync", before="fsync begins", after="fsync ends")
    note_calls(notes, Driver, "receive", before="entries come", if_=_brings_entries)
    note_calls(notes, Driver, "receive", before="reply comes", if_=_brings_reply)
    note_calls(notes, ProduceCall, "_answer", before="committed")
    note_calls(notes, Appender, "result", after="answered")


def _run() -> int:
    notes: Notes = []
    note_node(notes)
    code = main()
    Path(f"{os.environ[NOTES_VARIABLE]}.{os.getpid()}").write_text(json.dumps(notes))
    return code


if __name__ == "__main__":
    sys.exit(_run())
