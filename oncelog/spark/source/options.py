"""Options of the data source, with Kafka's names: read once, rejected if they make no sense.

Place in the flow: `data_source` reads them when `.load()` is called, so that a wrong value is an
AnalysisException there. Rules for batch or for streaming queries only are checked when Spark asks
for one of them. docs/spark.md has the table.

Every error is a ConfigError; its message begins with the option and gives the allowed values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from oncelog.config import MAX_INT32, MAX_INT64, parse_bootstrap
from oncelog.errors import ConfigError
from oncelog.spark.source.offsets import (
    EARLIEST,
    LATEST,
    StreamPosition,
    parse_object,
    parse_partition,
    parse_place,
)
from oncelog.types import TopicPartition

Strategy = Literal["error", "latest"]

SELECTING = ("subscribe", "assign", "subscribePattern")
STARTING = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
NAMES = (
    "bootstrap.servers",
    *SELECTING,
    *STARTING,
    "startingOffsetsByTimestampStrategy",
    *ENDING,
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "pollTimeoutMs",
    "table",
    "tls",
    "tls.ca.file",
    "tls.cert.file",
    "tls.key.file",
    "token.file",
)
SECURITY = NAMES[-5:]
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
MAX_PARTITIONS = 100_000
REQUEST_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected partitions: exactly one of the three is set."""

    option: str
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str = ""

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Bound:
    """Start or end, as given by the user.

    A number is an offset (or EARLIEST, LATEST), with `by_time` milliseconds since 1970.
    `everywhere` holds for all partitions; without it `each` names every partition.
    """

    option: str
    everywhere: int | None = None
    each: StreamPosition | None = None
    by_time: bool = False


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of one query, checked."""

    bootstrap_servers: tuple[str, ...]
    selection: Selection
    starting: Bound | None = None  # None: earliest for a batch, latest for a stream
    ending: Bound | None = None  # None: latest
    unmatched_time: Strategy = "error"
    max_offsets_per_trigger: int | None = None
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    include_headers: bool = False
    # Longest wait for a missing leader, or for the next record of a range.
    poll_timeout_ms: int = 120_000
    table: str = ""  # URL of the topic's table, which has its older records
    # Of the clients, by their names there; each machine that runs a task reads the files.
    security: tuple[tuple[str, str | bool], ...] = ()

    @property
    def client_settings(self) -> dict[str, Any]:
        """Settings of each client of the query."""
        return {"request_timeout_ms": self.request_timeout_ms, **dict(self.security)}

    @property
    def request_timeout_ms(self) -> int:
        """Limit of one request before another node is asked."""
        return min(self.poll_timeout_ms, REQUEST_TIMEOUT_MS)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Read Spark's options; names in any case. Raises ConfigError."""
        options = by_name(given)
        if "bootstrap.servers" not in options:
            raise ConfigError(
                "bootstrap.servers is missing: name at least one node as host:port",
                "bootstrap.servers",
            )
        starting = _bound(options, STARTING)
        strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
        if strategy not in ("error", "latest"):
            raise ConfigError(
                f"startingOffsetsByTimestampStrategy must be error or latest, got {strategy!r}",
                "startingOffsetsByTimestampStrategy",
            )
        return cls(
            bootstrap_servers=servers(options["bootstrap.servers"]),
            selection=_selection(options),
            starting=starting,
            ending=_bound(options, ENDING),
            unmatched_time="latest" if strategy == "latest" else "error",
            max_offsets_per_trigger=integer(options, "maxOffsetsPerTrigger", 1, MAX_INT64),
            min_partitions=integer(options, "minPartitions", 1, MAX_PARTITIONS) or 0,
            fail_on_data_loss=_flag(options, "failOnDataLoss", True),
            include_headers=_flag(options, "includeHeaders", False),
            poll_timeout_ms=integer(options, "pollTimeoutMs", 1000, MAX_INT32) or 120_000,
            table=_table(options),
            security=security(options),
        )

    @property
    def start_moves(self) -> bool:
        """True if a stream that is begun again with these options begins elsewhere."""
        start = self.starting
        if start is None:
            return True
        if start.by_time:
            return self.unmatched_time == "latest"
        return _uses(start, LATEST)

    def for_batch(self) -> None:
        """Raises ConfigError for options of streams only."""
        if self.max_offsets_per_trigger is not None:
            raise ConfigError(
                "maxOffsetsPerTrigger is for streaming queries; a batch query ends at "
                "endingOffsets",
                "maxOffsetsPerTrigger",
            )
        start = self.starting
        if start is not None and not start.by_time and _uses(start, LATEST):
            raise ConfigError(
                f"{start.option}: a batch query cannot start at latest (-1): nothing is there "
                "yet; use earliest (-2), an offset or a time",
                start.option,
            )

    def for_stream(self) -> None:
        """Raises ConfigError for options of batch queries only."""
        if self.ending is not None:
            raise ConfigError(
                f"{self.ending.option} is for batch queries; a stream has no end, and "
                "trigger(availableNow=True) stops at the present end",
                self.ending.option,
            )


# --- one option each -----------------------------------------------------------------


def by_name(given: Mapping[str, str], names: tuple[str, ...] = NAMES) -> dict[str, str]:
    """Return the given options under their own spelling. Raises ConfigError."""
    known = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            raise ConfigError(f"{name} is no option of oncelog{_hint(name, names)}", name)
        options[known[name.lower()]] = value
    return options


def _hint(name: str, names: tuple[str, ...]) -> str:
    lower = name.lower()
    if lower == "path":
        return ": name topics with subscribe, not in load()"
    if lower == "kafka.bootstrap.servers":
        return ": Oncelog's nodes are named with bootstrap.servers"
    if lower.startswith("kafka."):
        return ": settings of Kafka's client have no meaning here"
    known = {one.lower(): one for one in names}
    near = difflib.get_close_matches(lower, known, 1)
    return f": did you mean {known[near[0]]}?" if near else f"; there are {', '.join(names)}"


def servers(text: str) -> tuple[str, ...]:
    try:
        return parse_bootstrap(text)
    except ConfigError as error:
        # The error uses the name in Python.
        message = error.message.replace("bootstrap_servers", "bootstrap.servers")
        raise ConfigError(message, "bootstrap.servers") from None


def security(options: Mapping[str, str]) -> tuple[tuple[str, str | bool], ...]:
    found: dict[str, str | bool] = {
        name.replace(".", "_"): options[name] for name in SECURITY if name in options
    }
    if "tls" in found:
        found["tls"] = _flag(options, "tls", False)
    return tuple(found.items())


def _selection(options: Mapping[str, str]) -> Selection:
    names = [name for name in SELECTING if name in options]
    if len(names) != 1:
        problem = f"{' and '.join(names)} contradict each other" if names else "no topic is named"
        raise ConfigError(f"{problem}: use exactly one of {', '.join(SELECTING)}", *SELECTING)
    name = names[0]
    text = options[name].strip()
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
        if not topics:
            raise ConfigError("subscribe is empty: name topics as orders,payments", name)
        return Selection(name, topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(
                f"subscribePattern {text!r} is no regular expression: {error}", name
            ) from None
        if not text:
            raise ConfigError("subscribePattern is empty", name)
        return Selection(name, pattern=text)
    return _assigned(name, text)


def _assigned(name: str, text: str) -> Selection:
    partitions: list[TopicPartition] = []
    for topic, numbers in parse_object(name, text, '{"orders": [0, 1]}').items():
        if not isinstance(numbers, list) or not numbers:
            raise ConfigError(
                f"{name}: the value of {topic!r} must be a list of partitions, got {numbers!r}",
                name,
            )
        partitions += [parse_partition(name, topic, number) for number in numbers]
    return Selection(name, partitions=tuple(sorted(set(partitions))))


def _bound(options: Mapping[str, str], names: tuple[str, str, str]) -> Bound | None:
    given = [name for name in names if name in options]
    if not given:
        return None
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} contradict each other: use one", *given)
    name = given[0]
    text = options[name].strip()
    if name.endswith("Timestamp") and not name.endswith("ByTimestamp"):
        return Bound(name, everywhere=integer(options, name, 0, MAX_INT64 // 1000), by_time=True)
    if name.endswith("ByTimestamp"):
        return Bound(name, each=parse_place(name, text, 0), by_time=True)
    ending = name == "endingOffsets"
    if not text.startswith("{"):
        if text.lower() not in _WORDS or (ending and text.lower() == "earliest"):
            allowed = "latest" if ending else "earliest, latest"
            raise ConfigError(
                f'{name} must be {allowed} or JSON such as {{"orders": {{"0": 23}}}}, got {text!r}',
                name,
            )
        return Bound(name, everywhere=_WORDS[text.lower()])
    # An end before the first record is useless.
    return Bound(name, each=parse_place(name, text, LATEST if ending else EARLIEST))


def _table(options: Mapping[str, str]) -> str:
    url = options.get("table", "")
    if url and len(_selection(options).topics) != 1:
        raise ConfigError("table is for one topic: name it with subscribe", "table", "subscribe")
    return url


def integer(options: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None
    if number is None or not low <= number <= high:
        raise ConfigError(f"{name} must be an integer from {low} to {high}, got {text!r}", name)
    return number


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, got {options[name]!r}", name)
    return text == "true"


def _uses(bound: Bound, number: int) -> bool:
    return bound.everywhere == number or (
        bound.each is not None and number in bound.each.offsets.values()
    )
