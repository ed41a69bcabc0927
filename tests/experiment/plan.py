"""Plan and outcome of one run of the experiment. Data only.

plan -> client (sends) + faults (kill) -> verify (reads back) -> outcome -> report
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

PUBLISHED_RECORDS = 6_723_843
PARTITIONS = 3
ONCELOG, LIBRDKAFKA = CLIENTS = ("oncelog", "librdkafka")
CONNECTIONS, BROKER = "connections", "broker"  # targets of a kill


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Times in seconds except `linger_ms`.

    seconds: the records are spread over at least so long, so that kills hit a small number of them
    too; with many the cluster's speed decides. lose_acknowledgements: before connections are
    killed, the nodes' answers are held back until something has been stored whose acknowledgement
    is then surely lost.
    """

    linger_ms: int
    idempotent: bool
    records: int = PUBLISHED_RECORDS
    seconds: float = 60.0
    connections_every: float = 2.0
    brokers_every: float = 20.0
    lose_acknowledgements: bool = False
    seed: int = 1
    client: str = ONCELOG

    @property
    def name(self) -> str:
        return f"linger {self.linger_ms} ms, idempotence {self.switch}"

    @property
    def switch(self) -> str:
        return "on" if self.idempotent else "off"

    @property
    def topic(self) -> str:
        return f"integers-{self.client}-linger-{self.linger_ms}-{self.switch}"


@dataclass(frozen=True, slots=True)
class Kill:
    """at: seconds since the first record. hit: connections that were reset, or the node."""

    at: float
    what: str
    hit: int


@dataclass(slots=True)
class Found:
    """Contents of the log, as read back. Counts are of records."""

    stored: int = 0
    duplicates: int = 0  # copies beyond the first
    disordered: int = 0  # first copies that come after a later record of their partition
    unknown: int = 0  # not one of the integers sent
    holes: int = 0  # places where offsets do not go on
    lost: int = 0  # acknowledged and not there
    unconfirmed: int = 0  # there, and not acknowledged


@dataclass(slots=True)
class Outcome:
    """One row of the table. samples: (seconds since the first record, acknowledged by then)."""

    plan: Plan
    acknowledged: int
    seconds: float  # first record sent to last acknowledgement
    found: Found
    kills: list[Kill]
    # Batches sent again, and recognised by a node as stored; 0 for librdkafka, which does not tell.
    retried: int
    refused: int
    read_seconds: float = 0.0
    errors: list[str] = field(default_factory=list)  # why records were not acknowledged
    samples: list[tuple[float, int]] = field(default_factory=list)

    def count(self, what: str) -> int:
        """Counts the kills of a kind."""
        return sum(kill.what == what for kill in self.kills)

    def faults(self) -> list[str]:
        """Lists deviations from the experiment's promises; empty if there are none."""
        found, on = self.found, self.plan.idempotent
        wrong = {
            "lost": found.lost,
            "never sent": found.unknown,
            "holes in the offsets": found.holes,
            "not acknowledged": self.plan.records - self.acknowledged,
        }
        if on:
            wrong |= {"duplicates": found.duplicates, "out of order": found.disordered}
        texts = [f"{self.plan.name}: {count:,} {what}" for what, count in wrong.items() if count]
        if not on and not found.duplicates:
            texts.append(
                f"{self.plan.name}: no duplicates, so the kills did not bite: "
                "send more records, or lose acknowledgements"
            )
        return texts

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "kills": [[round(kill.at, 3), kill.what, kill.hit] for kill in self.kills],
            "samples": [[round(at, 2), count] for at, count in self.samples],
            "connection_kills": self.count(CONNECTIONS),
            "broker_kills": self.count(BROKER),
            "records_per_second": round(self.acknowledged / self.seconds),
            "faults": self.faults(),
        }
