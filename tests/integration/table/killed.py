"""Program of one archiver that kills itself at a step; the arguments are JSON.

`unprotected`: it begins at the group's offsets, as readers without a position in the table do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from oncelog.table.files import TablePartition, TopicTable
from oncelog.table.run import Archiver, TableSettings

if TYPE_CHECKING:
    from tests.integration.table.conftest import Tables


def run_until(step: str, tables: Tables, topic: str, **options: object) -> int:
    """Run an archiver that kills itself at the first `step`, if it comes; the exit code."""
    given = {
        "topic": topic,
        "to": tables.to,
        "bootstrap": tables.bootstrap,
        "step": step,
        # A group of its own: a killed member would keep its partitions until its session ends.
        "group": f"{topic}-{step}",
        "times": 1,
        "merge_below": 0,
        "unprotected": False,
        "table_format": tables.table_format,
        **options,
    }
    program = [sys.executable, "-m", "tests.integration.table.killed", json.dumps(given)]
    return subprocess.run(program, check=False, timeout=180).returncode


def main() -> None:
    given = json.loads(sys.argv[1])
    left = given["times"]

    def step(name: str) -> None:
        nonlocal left
        left -= name == given["step"]
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    archiver = Archiver(
        [given["topic"]],
        given["to"],
        bootstrap_servers=given["bootstrap"],
        table_format=given["table_format"],
        group_id=given["group"],
        settings=TableSettings(merge_below=given["merge_below"]),
        step=step,
    )
    if given["unprotected"]:

        def position(table: TopicTable, place: TablePartition) -> int | None:
            found = archiver._consumer.committed((given["topic"], place.partition))
            return None if found is None else found.offset

        def commit_group(self: Archiver, table: TopicTable, parts: dict[Any, Any]) -> None:
            self._consumer.commit({tp: part.next for tp, part in parts.items()})

        setattr(TopicTable, "position", position)  # noqa: B010
        setattr(Archiver, "_commit_group", commit_group)  # noqa: B010
    archiver.run(exit_at_end=True)


if __name__ == "__main__":
    main()
