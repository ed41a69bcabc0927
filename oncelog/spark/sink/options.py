"""Options of the sink, with Kafka's names where possible: read once, rejected if wrong.

Place in the flow: `data_source` reads them when Spark asks for a writer. docs/spark.md has the
table. Every error is a ConfigError; its message begins with the option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncelog.config import MAX_INT32, MAX_INT64
from oncelog.errors import ConfigError
from oncelog.spark.source.options import (
    REQUEST_TIMEOUT_MS,
    SECURITY,
    by_name,
    integer,
    security,
    servers,
)
from oncelog.wire.compression import CODECS

NAMES = (
    "bootstrap.servers",
    "topic",
    "sinkId",
    "batchId",
    "sinkReset",
    "transactionTimeoutMs",
    "deliveryTimeoutMs",
    "compression",
    *SECURITY,
)
# Spark adds these to ours.
SPARKS = frozenset({"checkpointlocation", "path"})
MAX_SINK_CHARS = 255
DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of one query or job, checked."""

    bootstrap_servers: tuple[str, ...]
    topic: str = ""  # empty: taken from the column
    sink_id: str = ""
    batch_id: int = -1  # -1: not given
    reset: str = ""
    transaction_timeout_ms: int = 0  # 0: the server's default
    delivery_timeout_ms: int = 120_000
    compression: str = "none"
    security: tuple[tuple[str, str | bool], ...] = ()

    @property
    def client_settings(self) -> dict[str, Any]:
        return {"request_timeout_ms": REQUEST_TIMEOUT_MS, **dict(self.security)}

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Read Spark's options; names in any case. Raises ConfigError."""
        ours = {name: value for name, value in given.items() if name.lower() not in SPARKS}
        options = by_name(ours, NAMES)
        if "bootstrap.servers" not in options:
            raise ConfigError(
                "bootstrap.servers is missing: name at least one node as host:port",
                "bootstrap.servers",
            )
        sink_id = options.get("sinkId", "").strip()
        if "sinkId" in options and not 1 <= len(sink_id) <= MAX_SINK_CHARS:
            raise ConfigError(f"sinkId must have 1 to {MAX_SINK_CHARS} characters", "sinkId")
        compression = options.get("compression", "none").lower()
        if compression not in CODECS:
            raise ConfigError(
                f"compression must be one of {', '.join(CODECS)}, got {compression!r}",
                "compression",
            )
        batch_id = integer(options, "batchId", 0, MAX_INT64 // 2)
        return cls(
            servers(options["bootstrap.servers"]),
            options.get("topic", "").strip(),
            sink_id,
            -1 if batch_id is None else batch_id,
            options.get("sinkReset", "").strip(),
            integer(options, "transactionTimeoutMs", 1000, DAY_MS) or 0,
            integer(options, "deliveryTimeoutMs", 1000, MAX_INT32) or 120_000,
            compression,
            security(options),
        )

    def for_stream(self) -> None:
        """Raises ConfigError for options a streaming query does not support, or lacks."""
        if not self.sink_id:
            raise ConfigError(
                "sinkId is missing: give this output a name of its own and keep it. By the name "
                "the cluster recognizes written batches if the checkpoint is lost",
                "sinkId",
            )
        if self.batch_id >= 0:
            raise ConfigError("batchId is for batch jobs; Spark numbers a stream's", "batchId")

    def for_batch(self) -> None:
        """Raises ConfigError for options a batch job does not support, or lacks."""
        if self.reset:
            raise ConfigError("sinkReset is for streaming queries", "sinkReset")
        if bool(self.sink_id) != (self.batch_id >= 0):
            raise ConfigError(
                "sinkId and batchId come together: a job that runs again with both writes once",
                "sinkId",
                "batchId",
            )
