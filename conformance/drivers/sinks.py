"""Driver verbs for sinks, over the Spark sink's code for tasks and driver.

Place in the flow: `python_driver` -> `SinkVerbs` -> `oncelog.spark.sink.writing`, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Fields = Mapping[str, Any]


class SinkVerbs:
    """Runs of sinks by their handles, and their tasks' staged records."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[Any, Any]] = {}  # options, the requested batch
        self._staged: dict[tuple[str, str], Any] = {}
        self.verbs: dict[str, Callable[[Fields], Fields]] = {
            "open_sink": self._open,
            "stage_batch": self._stage,
            "end_batch": self._end,
            "abort_batch": self._abort,
        }

    def reset(self) -> None:
        self._runs.clear()
        self._staged.clear()

    def _open(self, fields: Fields) -> Fields:
        from oncelog.spark.sink.options import SinkOptions
        from oncelog.spark.sink.writing import SinkBatch, connected

        config = fields["config"]
        options = SinkOptions.parse(
            {
                "bootstrap.servers": ",".join(config["bootstrap_servers"]),
                "sinkId": fields["sink"],
                "sinkReset": fields.get("reset") or "",
                "deliveryTimeoutMs": str(config["delivery_timeout_ms"]),
            }
        )
        jobs = bool(fields.get("jobs"))
        with connected(options) as sink:
            ticket = sink.draw_ticket(options.sink_id, jobs)
        query = "" if jobs else fields["query"]
        asked = SinkBatch(options.sink_id, jobs, query, fields["handle"], ticket, 0)
        self._runs[fields["handle"]] = options, asked
        return {"ticket": ticket}

    def _stage(self, fields: Fields) -> Fields:
        import pyarrow as pa

        from oncelog.spark.sink.writing import stage_rows

        options, asked = self._runs[fields["handle"]]
        values = [bytes.fromhex(value) for value in fields["values"]]
        rows = pa.record_batch(
            {
                "value": pa.array(values, pa.binary()),
                "topic": pa.array([fields["topic"]] * len(values), pa.string()),
                "partition": pa.array([fields["partition"]] * len(values), pa.int32()),
            }
        )
        asked = asked._replace(batch=fields["batch"])
        staged = stage_rows(options, asked, fields["task"], iter([rows]))
        self._staged[fields["handle"], fields["tag"]] = staged
        return {"transaction_id": staged.transaction, "records": staged.records}

    def _of(self, fields: Fields) -> tuple[Any, list[Any]]:
        options, _ = self._runs[fields["handle"]]
        return options, [self._staged[fields["handle"], tag] for tag in fields["tags"]]

    def _end(self, fields: Fields) -> Fields:
        from oncelog.spark.sink.writing import end_batch

        return {"already": end_batch(*self._of(fields))}

    def _abort(self, fields: Fields) -> Fields:
        from oncelog.spark.sink.writing import abort_batch

        abort_batch(*self._of(fields))
        return {}
