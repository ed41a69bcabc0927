"""Sharded key-value store over Oncelog, with any number of writers and no lost update.

    python examples/kv_store.py put colour blue
    python examples/kv_store.py get colour
    python examples/kv_store.py increment visits --times 1000     # in two terminals at once

How it works, as KIP-27 describes it:

- A shard is a partition. Its log holds changes: the key, and the new value (None: deleted). The
  table in memory is the result of replaying that log. The topic is compacted: of changes that are
  older than KEPT_MS only the newest of each key is left, so the log is about as long as the table.
- A writer starts by replaying the log (`catch_up`). It then knows the table and the next offset.
- Each change is sent with `expected_offset`: store it only if it gets exactly that offset.
  If that succeeds, no other writer has written since our read, so the change is based on the
  present state. If it fails with OffsetMismatchError, another writer was faster: catch up,
  compute the change again, and retry.

There is no leader election and no lock. Two writers that both believe to be alone merely slow each
other down. The topic is created with `expected_offsets=required`, so a program that forgets the
condition is rejected.
"""

from __future__ import annotations

import argparse
import uuid
import zlib
from collections.abc import Callable

from oncelog import (
    Admin,
    CleanupPolicy,
    Consumer,
    DeliveryTimeoutError,
    ExpectedOffsets,
    OffsetMismatchError,
    Producer,
    TopicAlreadyExistsError,
    TopicConfig,
    TopicPartition,
)

# Every change stays for so long: longer than any writer waits for an answer (delivery_timeout_ms).
KEPT_MS = 3_600_000
NEVER = 2**62  # an offset that no record gets
Change = Callable[[bytes | None], bytes | None]


class Shard:
    """One partition: its table, and its next offset."""

    def __init__(self, producer: Producer, consumer: Consumer, place: TopicPartition) -> None:
        self.table: dict[bytes, bytes] = {}
        self.next_offset = 0
        self._producer = producer
        self._consumer = consumer
        self._place = place

    def catch_up(self, look_for: bytes = b"") -> bool:
        """Apply the log's new changes to the table.

        Returns whether the change with the id `look_for` was among them.
        """
        found, end = False, self._end()
        self._consumer.assign([self._place])
        self._consumer.seek(self._place, self.next_offset)
        while self.next_offset < end:
            for record in self._consumer.getmany(timeout_ms=1000).get(self._place, []):
                assert record.key is not None, "every change has a key"
                self._apply(record.key, record.value)
                found = found or dict(record.headers).get("id") == look_for
            # Behind the last record, too, if compaction has removed those that followed.
            self.next_offset = self._consumer.position(self._place)
        return found

    def _end(self) -> int:
        """Return the next offset, from a leader that is sure to lead.

        `Consumer.end_offsets` costs the leader nothing, and a leader that was replaced a moment ago
        and does not know it yet may answer. A condition that cannot hold is turned away only after
        a majority has confirmed the leader.
        """
        place = self._place
        future = self._producer.send(
            place.topic, None, b"", partition=place.partition, expected_offset=NEVER
        )
        error = future.exception()
        if not isinstance(error, OffsetMismatchError):
            raise error or AssertionError("no log is so long")
        return error.next_offset

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.table.pop(key, None)
        else:
            self.table[key] = value

    def update(self, key: bytes, change: Change) -> bytes | None:
        """Replace the key's value by `change(value)`, atomically; returns the new value."""
        change_id = uuid.uuid4().bytes
        while True:
            value = change(self.table.get(key))
            future = self._producer.send(
                self._place.topic,
                value,
                key,
                partition=self._place.partition,
                headers={"id": change_id},
                expected_offset=self.next_offset,
            )
            try:
                stored = future.result()
            except (OffsetMismatchError, DeliveryTimeoutError):
                # Another writer was faster, or the outcome is not known yet. A retry is safe: both
                # attempts demand the same offset, so at most one is stored. An earlier one may be
                # stored only now, and turn this one away. The id tells: a change that is so young
                # is not compacted.
                if self.catch_up(look_for=change_id):
                    return value
            else:
                self._apply(key, value)
                self.next_offset = stored.offset + 1
                return value


class Store:
    """All shards. A shard is replayed on first use."""

    def __init__(self, bootstrap: str, topic: str, shards: int = 4) -> None:
        with Admin(bootstrap_servers=bootstrap) as admin:
            try:
                config = TopicConfig(
                    expected_offsets=ExpectedOffsets.REQUIRED,
                    cleanup_policy=CleanupPolicy.COMPACT,
                    min_compaction_lag_ms=KEPT_MS,
                )
                admin.create_topic(topic, partitions=shards, config=config)
            except TopicAlreadyExistsError:
                pass
            self._count = admin.describe_topic(topic).partition_count
        self._topic = topic
        self._shards: dict[int, Shard] = {}
        # No linger: a change is sent alone, and the next one needs its offset.
        self._producer = Producer(bootstrap_servers=bootstrap, linger_ms=0)
        self._consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none")

    def _shard(self, key: bytes) -> Shard:
        number = zlib.crc32(key) % self._count
        shard = self._shards.get(number)
        if shard is None:
            place = TopicPartition(self._topic, number)
            shard = self._shards[number] = Shard(self._producer, self._consumer, place)
            shard.catch_up()
        return shard

    def get(self, key: bytes) -> bytes | None:
        """Return the present value, with all changes acknowledged before this call."""
        shard = self._shard(key)
        shard.catch_up()
        return shard.table.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        self._shard(key).update(key, lambda _: value)

    def increment(self, key: bytes) -> int:
        """Count up by one, from 0; returns the new count."""
        value = self._shard(key).update(key, lambda old: b"%d" % (int(old or 0) + 1))
        return int(value or 0)

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="A key-value store over Oncelog.")
    parser.add_argument("--bootstrap", default="127.0.0.1:7001")
    parser.add_argument("--topic", default="kv")
    parser.add_argument("--shards", type=int, default=4, help="when the topic is made")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("get").add_argument("key")
    put = commands.add_parser("put")
    put.add_argument("key")
    put.add_argument("value")
    commands.add_parser("delete").add_argument("key")
    increment = commands.add_parser("increment")
    increment.add_argument("key")
    increment.add_argument("--times", type=int, default=1)
    wanted = parser.parse_args()

    key = wanted.key.encode()
    store = Store(wanted.bootstrap, wanted.topic, wanted.shards)
    try:
        if wanted.command == "get":
            value = store.get(key)
            if value is None:
                print(f"no value for {wanted.key}")
                return 1
            print(value.decode(errors="backslashreplace"))
        elif wanted.command == "increment":
            for _ in range(wanted.times):
                print(store.increment(key), flush=True)
        else:
            store.put(key, wanted.value.encode() if wanted.command == "put" else None)
    finally:
        store.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
