"""Result of an audit, as a value.

Place in the flow: `run` makes it, `page` shows it, the user reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of an audit. `faults`: kind -> number of records (of a gap: numbers) concerned."""

    path: str
    topic: str
    copy: str | None
    records: int
    distinct: int
    copy_records: int
    producers: int
    faults: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not any(self.faults.values())

    def __str__(self) -> str:
        found = ", ".join(f"{kind}: {count}" for kind, count in self.faults.items() if count)
        against = f" against {self.copy} ({self.copy_records})" if self.copy else ""
        return (
            f"{self.topic}: {self.records} records, {self.distinct} distinct{against}: "
            f"{found or 'clean'}; see {self.path}/index.html"
        )
