"""Driver of the small client: `python -m conformance.drivers.small_driver [--fault NAME]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from conformance.drivers.small_client import FAULTS, ClientError, Producer, Reader, Record

RETRIABLE = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "THROTTLED"})
SETTINGS = frozenset(
    {
        "bootstrap_servers",
        "request_timeout_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
        "delivery_timeout_ms",
        "linger_ms",
        "auto_offset_reset",
        "fetch_max_wait_ms",
    }
)


class Driver:
    """Carries out one command at a time."""

    def __init__(self, faults: frozenset[str]) -> None:
        self._faults = faults
        self._clients: dict[str, Producer | Reader] = {}
        self._sent: dict[str, dict[str, Record]] = {}

    def answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        verb = getattr(self, f"_{command['verb']}", None)
        if verb is None:
            return {"error": {"reason": "NOT_OFFERED", "message": command["verb"]}}
        try:
            return {"ok": verb(command)}
        except ClientError as error:
            return {"error": described(error)}
        except (ValueError, LookupError, TypeError, ArithmeticError) as error:
            return {"error": {"reason": "DRIVER_FAULT", "message": repr(error)}}

    def _hello(self, _: Mapping[str, Any]) -> dict[str, Any]:
        features = ["read"]
        return {"client": "small", "version": "1", "protocol": 1, "features": features}

    def _reset(self, _: Mapping[str, Any]) -> dict[str, Any]:
        for client in self._clients.values():
            if isinstance(client, Producer):
                client.close()
        self._clients.clear()
        self._sent.clear()
        return {}

    def _config(self, command: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(command["config"]) - SETTINGS)
        if unknown or command["config"].get("auto_offset_reset", "earliest") != "earliest":
            raise ClientError("NOT_OFFERED", f"settings {unknown}")
        return dict(command["config"])

    def _open_producer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self._clients[command["handle"]] = Producer(self._config(command), self._faults)
        self._sent[command["handle"]] = {}
        return {}

    def _send(self, command: Mapping[str, Any]) -> dict[str, Any]:
        offered = {"id", "verb", "handle", "tag", "topic", "partition", "key", "value"}
        if set(command) - offered or command["value"] is None:
            raise ClientError("NOT_OFFERED", "more than key and value")
        producer = self._clients[command["handle"]]
        assert isinstance(producer, Producer)
        key = bytes.fromhex(command.get("key") or "")
        value = bytes.fromhex(command["value"])
        record = producer.send(command["topic"], command.get("partition"), key, value)
        self._sent[command["handle"]][command["tag"]] = record
        return {}

    def _await(self, command: Mapping[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + command["timeout_ms"] / 1000
        sent = self._sent[command["handle"]]
        results = {}
        for tag in command.get("tags") or sent:
            record = sent[tag]
            record.done.wait(max(0.0, deadline - time.monotonic()))
            result = record.result
            error = result.get("error")
            results[tag] = result if error is None else {"error": described(error)}
        return {"results": results}

    def _close(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self._await({"handle": command["handle"], "timeout_ms": command.get("timeout_ms", 20_000)})
        client = self._clients[command["handle"]]
        assert isinstance(client, Producer)
        client.close()
        return {}

    def _open_consumer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self._clients[command["handle"]] = Reader(self._config(command), self._faults)
        return {}

    def _reader(self, command: Mapping[str, Any]) -> Reader:
        reader = self._clients[command["handle"]]
        assert isinstance(reader, Reader)
        return reader

    def _assign(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if len(command["partitions"]) != 1:
            raise ClientError("NOT_OFFERED", "more than one partition")
        self._reader(command).assign(*command["partitions"][0])
        return {}

    def _poll(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if "max_records" in command:
            raise ClientError("NOT_OFFERED", "max_records")
        return {"records": self._reader(command).poll(command["timeout_ms"] / 1000)}

    def _seek(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(command["offset"], int):
            raise ClientError("NOT_OFFERED", "beginning, end")
        self._reader(command).seek(command["offset"])
        return {}

    def _position(self, command: Mapping[str, Any]) -> dict[str, Any]:
        return {"offset": self._reader(command).position}


def described(error: ClientError) -> dict[str, Any]:
    return {
        "reason": error.reason,
        "retriable": error.reason in RETRIABLE,
        "message": str(error),
        "outcome": error.outcome,
        "details": error.details,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", action="append", default=[], choices=sorted(FAULTS))
    driver = Driver(frozenset(parser.parse_args().fault))
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps({"id": command["id"], **driver.answer(command)}), flush=True)


if __name__ == "__main__":
    main()
