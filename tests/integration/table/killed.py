"""Program of one archiver that kills itself at a step; the arguments are JSON.

`unprotected`: it begins at the group's offsets, as readers without a position in the table do.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from oncelog.table.delta import DeltaTopic, TablePartition
from oncelog.table.run import Archiver, TableSettings


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
        group_id=given["group"],
        settings=TableSettings(merge_below=given["merge_below"]),
        step=step,
    )
    if given["unprotected"]:

        def position(table: DeltaTopic, place: TablePartition) -> int | None:
            found = archiver._consumer.committed((given["topic"], place.partition))
            return None if found is None else found.offset

        def commit_group(self: Archiver, table: DeltaTopic, parts: dict[Any, Any]) -> None:
            self._consumer.commit({tp: part.next for tp, part in parts.items()})

        setattr(DeltaTopic, "position", position)  # noqa: B010
        setattr(Archiver, "_commit_group", commit_group)  # noqa: B010
    archiver.run(exit_at_end=True)


if __name__ == "__main__":
    main()
