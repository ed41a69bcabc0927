"""Measurements as JSON lines: one line for each, with the limits of its own run beside it.

A file collects several runs: a later measurement replaces an earlier run's measurement of the
same thing, so that `--only` can repeat a part. Repeated measurements within one run (`--rounds`)
count by their medians. A failure is a line too, with its reason.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Case of a row with the reason that a system has no more rows in a section.
ALL_CASES = "-"
Key = tuple[str, str, str, str]  # section, system, client, case


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement of one system, or the reason for its absence.

    case: the workload ("100 B, 6 partitions"). figures: names with their units in them (mb_per_s,
    p99_ms). detail: other facts worth keeping, such as settings.
    """

    section: str
    system: str
    case: str
    client: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    run: str = ""
    at: str = ""
    load: float = 0.0  # the machine's one-minute load average

    @property
    def key(self) -> Key:
        return (self.section, self.system, self.client, self.case)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Row:
        return cls(**json.loads(line))


def median_of(rows: Sequence[Row]) -> Row:
    """Combines rows of one measurement: each figure's median, and the rest of the last row."""
    names = dict.fromkeys(name for row in rows for name in row.figures)
    figures = {
        name: statistics.median(row.figures[name] for row in rows if name in row.figures)
        for name in names
    }
    return replace(rows[-1], figures=figures)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Results:
    """Rows of a file, in the order in which each was first measured.

    A failure does not replace an earlier run's measurement: it stays in `failures` until the same
    is measured again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._measured: dict[Key, list[Row]] = {}  # of the last run that measured it
        self._errors: dict[Key, Row] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                if line.strip():
                    self._put(Row.from_json(line))

    def _put(self, row: Row) -> None:
        if row.error:
            self._errors[row.key] = row
            return
        measured = self._measured.get(row.key, [])
        if measured and measured[0].run != row.run:
            measured = []
        self._measured[row.key] = [*measured, row]
        self._errors.pop(row.key, None)
        # A section's failure as a whole is obsolete once the section is measured.
        self._errors.pop((row.section, row.system, "", ALL_CASES), None)

    def add(self, row: Row) -> None:
        """Keeps the row and appends it to the file at once: a run may be cut short."""
        self._put(row)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(row.to_json() + "\n")
                file.flush()
                os.fsync(file.fileno())

    @property
    def rounds(self) -> int:
        """Largest number of repetitions of a measurement."""
        return max(map(len, self._measured.values()), default=0)

    def failures(self) -> list[Row]:
        return list(self._errors.values())

    def __iter__(self) -> Iterator[Row]:
        """Yields measurements, then failures without any measurement."""
        missing = [row for key, row in self._errors.items() if key not in self._measured]
        return iter([*map(median_of, self._measured.values()), *missing])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def section(self, name: str) -> list[Row]:
        return [row for row in self if row.section == name]

    def find(
        self, section: str, case: str = "", *, system: str = "", client: str = ""
    ) -> list[Row]:
        """Rows without an error; an empty argument matches all."""
        return [
            row
            for row in self.section(section)
            if not row.error
            and case in ("", row.case)
            and system in ("", row.system)
            and client in ("", row.client)
        ]

    def figure(self, section: str, case: str, name: str, *, system: str, client: str = "") -> float:
        """Value of a figure; 0.0 if it was not measured."""
        rows = self.find(section, case, system=system, client=client)
        return float(rows[-1].figures.get(name, 0.0)) if rows else 0.0


__all__ = ["ALL_CASES", "Results", "Row", "now"]
