"""Driver of the Python client: `python -m conformance.drivers.python_driver`.

standard input --line--> Driver --> Producer, Consumer, Admin of oncelog
standard output <-line--'
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any

import oncelog
from conformance.drivers.administration import AdminVerbs
from conformance.drivers.sinks import SinkVerbs
from oncelog import (
    Admin,
    BatchMetadata,
    Consumer,
    OffsetCommit,
    OncelogError,
    Producer,
    ProducerIdentity,
    Record,
    RecordMetadata,
    TopicConfig,
    TopicPartition,
    errors,
)
from oncelog.config import ConsumerConfig, ProducerConfig

_TOPIC_SETTINGS = (
    "max_batch_bytes", "cleanup_policy", "min_compaction_lag_ms", "max_compaction_lag_ms",
    "delete_retention_ms", "min_cleanable_dirty_ratio",
)  # fmt: skip
FEATURES = (
    "no_idempotence",
    "send_batch",
    "names",
    "resume_from",
    "own_sequences",
    "expected_offset",
    "resolve",
    "read",
    "any_replica",
    "rack",
    "offsets",
    "admin",
    "transactions",
    "members",
    "sinks",
    "tls",
    "tokens",
    "flush_at_exit",
    "warnings",
)
NOT_SHARED = (
    "bootstrap_servers",
    "client_id",
    "partitioner",
    "resume_from",
    "acks",
    "retries",
    "compression_level",
)
# Settings of group members that other languages lack.
MEMBERS = (
    "membership",
    "group_instance_id",
    "assignor",
    "session_timeout_ms",
    "revoke_timeout_ms",
    "processing_timeout_ms",
    "enable_auto_commit",
    "auto_commit_interval_ms",
)
CALLBACKS = ("on_assigned", "on_revoked", "on_lost")
NOT_SHARED_READING = ("isolation_level", "consumer_timeout_ms", *MEMBERS, *CALLBACKS)

Fields = Mapping[str, Any]
Sent = Future[RecordMetadata] | Future[BatchMetadata] | Any  # Any: an Acknowledgement


class NotOfferedError(Exception):
    """The client has no such verb, field or setting."""


class GivenUpError(Exception):
    """The caller has stopped waiting for the call."""


class Warnings(logging.Handler):
    """Keeps the client's log messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Driver:
    """Carries out one command at a time."""

    client = "oncelog-python"
    features: tuple[str, ...] = FEATURES

    def __init__(self) -> None:
        # Any: asyncio twins of these classes are awaited behind the same names.
        self._clients: dict[str, Any] = {}
        self._sent: dict[str, dict[str, Sent]] = {}
        self._transactions: dict[str, Any] = {}
        self._told: dict[str, list[str]] = {}  # by the handle of a member
        self._sinks = SinkVerbs()
        self._warnings = Warnings()
        logging.getLogger("oncelog").addHandler(self._warnings)
        self._verbs: dict[str, Callable[[Fields], Fields]] = {
            "hello": self._hello,
            "defaults": self._defaults,
            "reset": self._reset,
            "warnings": lambda _: {"warnings": list(self._warnings.texts)},
            "exit": lambda _: {},
            "open_producer": self._open_producer,
            "send": self._send,
            "send_batch": self._send_batch,
            "await": self._await,
            "flush": self._flush,
            "last_sequence": self._last_sequence,
            "resolve": self._resolve,
            "begin": self._begin,
            "commit_transaction": self._commit_transaction,
            "abort_transaction": self._abort_transaction,
            "send_offsets": self._send_offsets,
            "close": self._close,
            "open_consumer": self._open_consumer,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "subscription": self._subscription,
            "assign": self._assign,
            "assignment": self._assignment,
            "pause": self._pause,
            "resume": self._resume,
            "paused": self._paused,
            "poll": self._poll,
            "seek": self._seek,
            "position": self._position,
            "lag": self._lag,
            "list_offset": self._list_offset,
            "commit": self._commit,
            "committed": self._committed,
            "told": lambda fields: {"calls": self._told[fields["handle"]]},
            "abandon": self._abandon,
            "open_admin": self._open_admin,
            "create_topic": self._create_topic,
            "delete_topic": self._delete_topic,
            "describe_topic": self._describe_topic,
            "describe_cluster": self._describe_cluster,
            "fence_producer": self._fence_producer,
            "resize_topic": self._resize_topic,
            "list_transactions": self._list_transactions,
            "describe_transaction": self._describe_transaction,
            "end_transaction": self._end_transaction,
            **AdminVerbs(self._clients).verbs,
            **self._sinks.verbs,
        }

    def make_producer(self, settings: dict[str, Any]) -> Any:
        return Producer(**settings)

    def make_consumer(self, settings: dict[str, Any]) -> Any:
        return Consumer(**settings)

    def make_admin(self, settings: dict[str, Any]) -> Any:
        return Admin(**settings)

    def answer(self, command: Fields) -> Fields:
        """Carries out a command; returns `ok` or `error`."""
        verb = self._verbs.get(command["verb"])
        try:
            if verb is None:
                raise NotOfferedError(f"the verb {command['verb']}")
            self.give_up_after(command.get("give_up_ms"))
            return {"ok": verb(command)}
        except GivenUpError:
            return {"error": {"reason": "CANCELLED", "retriable": False, "message": "given up"}}
        except NotOfferedError as missing:
            return {"error": {"reason": "NOT_OFFERED", "retriable": False, "message": str(missing)}}
        except OncelogError as error:
            return {"error": described(error)}
        except Exception as error:  # noqa: BLE001  # the kit must see every failure
            text = f"{type(error).__name__}: {error}"
            return {"error": {"reason": "DRIVER_FAULT", "retriable": False, "message": text}}

    def give_up_after(self, limit_ms: int | None) -> None:
        """Limits the next call to `limit_ms`; None: no limit."""
        if limit_ms is not None:
            raise NotOfferedError("giving up a call")

    # --- the driver ------------------------------------------------------------------

    def _hello(self, _: Fields) -> Fields:
        codecs = {"zstd": "zstandard", "lz4": "lz4"}
        there = [name for name, module in codecs.items() if importlib.util.find_spec(module)]
        return {
            "client": self.client,
            "version": oncelog.__version__,
            "protocol": 1,
            "features": [*self.features, *there],
        }

    def _defaults(self, _: Fields) -> Fields:
        producer = ProducerConfig(bootstrap_servers=("127.0.0.1:1",))
        consumer = dataclasses.asdict(ConsumerConfig(bootstrap_servers=("127.0.0.1:1",)))
        return {
            "producer": _shared(dataclasses.asdict(producer)),
            "consumer": _shared(consumer),
            "member": {name: consumer[name] for name in MEMBERS},
        }

    def _reset(self, _: Fields) -> Fields:
        for handle in self._clients:
            self._end(handle, timeout_ms=0)
        self._clients.clear()
        self._sent.clear()
        self._warnings.texts.clear()
        self._sinks.reset()
        return {}

    # --- producers -------------------------------------------------------------------

    def _open_producer(self, fields: Fields) -> Fields:
        settings = _settings(fields, ProducerConfig)
        given = settings.pop("resume_from", None)
        if given is not None:
            settings["resume_from"] = ProducerIdentity(
                given["producer_id"],
                given.get("epoch", 0),
                {
                    TopicPartition(one["topic"], one["partition"]): one["sequence"]
                    for one in given.get("next_sequences", ())
                },
                bytes.fromhex(given.get("lease_token", "")),
            )
        self._clients[fields["handle"]] = self.make_producer(settings)
        self._sent[fields["handle"]] = {}
        return {}

    def _send(self, fields: Fields) -> Fields:
        producer = self._clients[fields["handle"]]
        self._sent[fields["handle"]][fields["tag"]] = producer.send(
            fields["topic"],
            _bytes(fields.get("value")),
            _bytes(fields.get("key")),
            headers=_headers(fields),
            partition=fields.get("partition"),
            timestamp_ms=fields.get("timestamp_ms"),
            sequence=fields.get("sequence"),
            expected_offset=fields.get("expected_offset"),
        )
        return {}

    def _send_batch(self, fields: Fields) -> Fields:
        records = [
            Record(
                _bytes(record["value"]),
                _bytes(record.get("key")),
                _headers(record),
                record["timestamp_us"],
            )
            for record in fields["records"]
        ]
        producer = self._clients[fields["handle"]]
        self._sent[fields["handle"]][fields["tag"]] = producer.send_batch(
            fields["topic"],
            fields["partition"],
            records,
            sequences=fields.get("sequences"),
            expected_offset=fields.get("expected_offset"),
        )
        return {}

    def _await(self, fields: Fields) -> Fields:
        sent = self._sent[fields["handle"]]
        tags = fields.get("tags")
        if tags is None:
            self._flush(fields)
            tags = list(sent)
        waiting: list[Future[Any]] = [future_of(sent[tag]) for tag in tags]
        wait(waiting, fields["timeout_ms"] / 1000)
        return {"results": {tag: result(future_of(sent[tag])) for tag in tags}}

    def _flush(self, fields: Fields) -> Fields:
        producer = self._clients[fields["handle"]]
        try:
            producer.flush(timeout_ms=fields["timeout_ms"])
        except errors.RequestTimeoutError:
            return {"settled": False}
        except (errors.UndeliveredRecordsError, errors.ClientClosedError):
            pass  # the records' own results show it
        return {"settled": True}

    def _last_sequence(self, fields: Fields) -> Fields:
        producer = self._clients[fields["handle"]]
        return {"last_sequence": producer.position(fields["topic"], fields["partition"])}

    def _resolve(self, fields: Fields) -> Fields:
        producer = self._clients[fields["handle"]]
        found = producer.resolve(self._sent[fields["handle"]][fields["tag"]])
        return {"resolution": found.resolution.value, "offset": found.offset}

    def _begin(self, fields: Fields) -> Fields:
        times = {
            name: fields[name]
            for name in ("idle_timeout_ms", "total_timeout_ms")
            if fields.get(name) is not None
        }
        transaction = self.make_transaction(self._clients[fields["handle"]], times)
        transaction.begin()
        self._transactions[fields["handle"]] = transaction
        return {"transaction_id": transaction.transaction_id}

    def make_transaction(self, producer: Any, times: dict[str, int]) -> Any:
        return producer.transaction(**times)

    def _commit_transaction(self, fields: Fields) -> Fields:
        done = self._transactions[fields["handle"]].commit()
        runs = [
            {
                "topic": place.topic,
                "partition": place.partition,
                "base_offset": run.base_offset,
                "record_count": run.record_count,
            }
            for place, run in sorted(done.runs.items())
        ]
        return {"transaction_id": done.transaction_id, "runs": runs}

    def _abort_transaction(self, fields: Fields) -> Fields:
        self._transactions[fields["handle"]].abort()
        return {}

    def _send_offsets(self, fields: Fields) -> Fields:
        consumer = self._clients[fields["consumer"]]
        transaction = self._transactions[fields["handle"]]
        transaction.commit_offsets(getattr(consumer, "plain", consumer))
        return {}

    def _close(self, fields: Fields) -> Fields:
        self._end(fields["handle"], fields.get("timeout_ms"))
        return {}

    def _end(self, handle: str, timeout_ms: int | None) -> None:
        client = self._clients[handle]
        if handle not in self._sent:
            client.close()
            return
        try:
            client.close(timeout_ms=timeout_ms)
        except errors.UndeliveredRecordsError:
            pass  # the records' own results show it

    # --- consumers -------------------------------------------------------------------

    def _open_consumer(self, fields: Fields) -> Fields:
        settings = _settings(fields, ConsumerConfig)
        if settings.setdefault("membership", "manual") == "assigned":
            settings |= self._callbacks(fields["handle"], fields.get("failing"))
        self._clients[fields["handle"]] = self.make_consumer(settings)
        return {}

    def _callbacks(self, handle: str, failing: str | None) -> dict[str, Callable[..., None]]:
        calls = self._told[handle] = []

        def callback(word: str) -> Callable[..., None]:
            def note(*_: Any) -> None:
                is_first = word not in calls
                calls.append(word)
                if is_first and word == failing:
                    raise RuntimeError(f"the callback for what is {word} fails")

            return note

        return {name: callback(name.removeprefix("on_")) for name in CALLBACKS}

    def _abandon(self, fields: Fields) -> Fields:
        """Closes the client as a `with` block does after an exception."""
        error = RuntimeError("the work on the records has failed")
        self.end_block(self._clients[fields["handle"]], error)
        return {}

    def end_block(self, consumer: Any, error: Exception) -> None:
        consumer.__exit__(type(error), error, None)

    def _subscribe(self, fields: Fields) -> Fields:
        self._clients[fields["handle"]].subscribe(fields["topics"])
        return {}

    def _assign(self, fields: Fields) -> Fields:
        partitions = [(topic, number) for topic, number in fields["partitions"]]
        self._clients[fields["handle"]].assign(partitions)
        return {}

    def _unsubscribe(self, fields: Fields) -> Fields:
        self._clients[fields["handle"]].unsubscribe()
        return {}

    def _subscription(self, fields: Fields) -> Fields:
        return {"topics": sorted(self._clients[fields["handle"]].subscription())}

    def _assignment(self, fields: Fields) -> Fields:
        return {"partitions": _pairs(self._clients[fields["handle"]].assignment())}

    def _pause(self, fields: Fields) -> Fields:
        self._clients[fields["handle"]].pause((fields["topic"], fields["partition"]))
        return {}

    def _resume(self, fields: Fields) -> Fields:
        self._clients[fields["handle"]].resume((fields["topic"], fields["partition"]))
        return {}

    def _paused(self, fields: Fields) -> Fields:
        return {"partitions": _pairs(self._clients[fields["handle"]].paused())}

    def _poll(self, fields: Fields) -> Fields:
        consumer = self._clients[fields["handle"]]
        found = consumer.getmany(
            timeout_ms=fields["timeout_ms"], max_records=fields.get("max_records")
        )
        return {"records": [_record(record) for records in found.values() for record in records]}

    def _seek(self, fields: Fields) -> Fields:
        consumer, offset = self._clients[fields["handle"]], fields["offset"]
        partition = (fields["topic"], fields["partition"])
        if offset == "beginning":
            consumer.seek_to_beginning(partition)
        elif offset == "end":
            consumer.seek_to_end(partition)
        else:
            consumer.seek(partition, offset)
        return {}

    def _position(self, fields: Fields) -> Fields:
        consumer = self._clients[fields["handle"]]
        return {"offset": consumer.position((fields["topic"], fields["partition"]))}

    def _lag(self, fields: Fields) -> Fields:
        consumer = self._clients[fields["handle"]]
        return {"lag": consumer.lag((fields["topic"], fields["partition"]))}

    def _list_offset(self, fields: Fields) -> Fields:
        consumer, at = self._clients[fields["handle"]], fields["at"]
        partition = TopicPartition(fields["topic"], fields["partition"])
        if at == "earliest":
            found = consumer.beginning_offsets([partition])
        elif at == "latest":
            found = consumer.end_offsets([partition])
        else:
            found = consumer.offsets_for_times({partition: at})
        return {"offset": found[partition]}

    def _commit(self, fields: Fields) -> Fields:
        consumer = self._clients[fields["handle"]]
        given = fields.get("offsets")
        if given is None:
            consumer.commit()
            return {}
        offsets: dict[tuple[str, int], int | OffsetCommit] = {
            (one["topic"], one["partition"]): OffsetCommit(
                one["offset"],
                one.get("metadata", ""),
                one.get("producer_id", 0),
                one.get("epoch", 0),
                one.get("sequence", 0),
            )
            for one in given
        }
        consumer.commit(offsets)
        return {}

    def _committed(self, fields: Fields) -> Fields:
        consumer = self._clients[fields["handle"]]
        found = consumer.committed((fields["topic"], fields["partition"]))
        if found is None:
            return {"offset": None}
        return {
            "offset": found.offset,
            "metadata": found.metadata,
            "producer_id": found.producer_id,
            "epoch": found.epoch,
            "sequence": found.sequence,
        }

    # --- admin -----------------------------------------------------------------------

    def _open_admin(self, fields: Fields) -> Fields:
        config = dict(fields["config"])
        self._clients[fields["handle"]] = self.make_admin(config)
        return {}

    def _create_topic(self, fields: Fields) -> Fields:
        settings = {name: fields[name] for name in _TOPIC_SETTINGS if name in fields}
        config = TopicConfig(**settings) if settings else None
        self._clients[fields["handle"]].create_topic(
            fields["topic"],
            fields.get("partitions", 0),
            fields.get("replicas", 0),
            config,
            timeout_ms=fields.get("timeout_ms", 30_000),
        )
        return {}

    def _delete_topic(self, fields: Fields) -> Fields:
        self._clients[fields["handle"]].delete_topic(fields["topic"])
        return {}

    def _describe_topic(self, fields: Fields) -> Fields:
        topic = self._clients[fields["handle"]].describe_topic(fields["topic"])
        partitions = [
            {"partition": one.partition, "leader_id": one.leader_id, "term": one.term}
            for one in topic.partitions
        ]
        return {
            "topic_id": topic.topic_id,
            **{name: getattr(topic.config, name) for name in _TOPIC_SETTINGS},
            "partitions": partitions,
        }

    def _describe_cluster(self, fields: Fields) -> Fields:
        found = self._clients[fields["handle"]].describe_cluster()
        nodes = [
            {
                "node_id": node.node_id,
                "address": node.address,
                "alive": node.alive,
                "clock_disagrees": node.clock_disagrees,
                "release": node.release,
                "insecure": node.insecure,
            }
            for node in found.nodes
        ]
        return {
            "cluster_id": found.cluster_id,
            "controller_id": found.controller_id,
            "nodes": nodes,
            "upgrade": {
                "cluster_version": found.upgrade.cluster_version,
                "target_version": found.upgrade.target_version,
            },
            "damaged_replicas": found.damaged_replicas,
            "founding": found.founding,
        }

    def _fence_producer(self, fields: Fields) -> Fields:
        fenced = self._clients[fields["handle"]].fence_producer(fields["producer_name"])
        return dataclasses.asdict(fenced)

    def _resize_topic(self, fields: Fields) -> Fields:
        found = self._clients[fields["handle"]].resize_topic(
            fields["topic"], partitions=fields["partitions"], dry_run=fields.get("dry_run", False)
        )
        return {"partitions": found.topic.partition_count, "moves": found.count}

    def _list_transactions(self, fields: Fields) -> Fields:
        found = self._clients[fields["handle"]].list_transactions(fields.get("producer_name", ""))
        return {"transactions": [transaction(one) for one in found]}

    def _describe_transaction(self, fields: Fields) -> Fields:
        admin = self._clients[fields["handle"]]
        return transaction(admin.describe_transaction(fields["transaction_id"]))

    def _end_transaction(self, fields: Fields) -> Fields:
        self._clients[fields["handle"]].abort_transaction(fields["transaction_id"])
        return {}


def transaction(found: oncelog.types.TransactionInfo) -> dict[str, Any]:
    """Converts a transaction to the driver protocol."""
    return {
        "transaction_id": found.transaction_id,
        "state": found.state,
        "reason": found.reason,
        "producer_name": found.producer_name,
        "partitions": [[part.topic, part.partition] for part in found.partitions],
    }


def _pairs(partitions: Iterable[TopicPartition]) -> list[list[Any]]:
    return [list(tp) for tp in sorted(partitions)]


def described(error: OncelogError) -> dict[str, Any]:
    """Converts an error to the driver protocol."""
    answer: dict[str, Any] = {
        "reason": error.reason,
        "retriable": error.retriable,
        "message": error.message,
        "details": error.details,
    }
    if isinstance(error, errors.DeliveryError):
        names = ("topic", "partition", "producer_id", "epoch", "sequence")
        answer["details"] |= {name: getattr(error, name) for name in names}
    if isinstance(error, errors.DeliveryError | errors.RetriableError) and error.outcome:
        answer["outcome"] = error.outcome
    return answer


def future_of(sent: Sent) -> Future[Any]:
    """Future of a sent record: the object itself, or the one inside it."""
    future: Future[Any] = getattr(sent, "future", sent)
    return future


def result(sent: Future[Any]) -> dict[str, Any]:
    """Result of a record or a batch."""
    if not sent.done():
        return {"pending": True}
    error = sent.exception()
    if error is not None:
        assert isinstance(error, OncelogError), error
        return {"error": described(error)}
    found = sent.result()
    if isinstance(found, RecordMetadata):
        offset, first, last = found.offset, found.sequence, found.sequence
    else:
        offset, first, last = found.base_offset, found.base_sequence, found.last_sequence
    return {
        "ok": {
            "topic": found.topic,
            "partition": found.partition,
            "offset": offset,
            "sequence": first,
            "last_sequence": last,
            "producer_id": found.producer_id,
            "epoch": found.epoch,
            "duplicate": found.duplicate,
        }
    }


def _shared(config: dict[str, Any]) -> dict[str, Any]:
    """Settings that all clients have."""
    hidden = (*NOT_SHARED, *NOT_SHARED_READING)
    return {name: value for name, value in config.items() if name not in hidden}


def _settings(fields: Fields, config: type) -> dict[str, Any]:
    settings = dict(fields["config"])
    known = {field.name for field in dataclasses.fields(config)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise NotOfferedError(f"the settings {', '.join(unknown)}")
    return settings


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _headers(fields: Fields) -> list[tuple[str, bytes | None]]:
    return [(name, _bytes(value)) for name, value in fields.get("headers") or ()]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _record(record: Record) -> Fields:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_us": record.timestamp_us,
        "key": _hex(record.key),
        "value": _hex(record.value),
        "headers": [[name, _hex(value)] for name, value in record.headers],
    }


def answer_lines(driver: Driver) -> None:
    """Answers commands until the input ends."""
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps({"id": command["id"], **driver.answer(command)}), flush=True)
        if command["verb"] == "exit":
            return


if __name__ == "__main__":
    answer_lines(Driver())
