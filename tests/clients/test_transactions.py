"""Read, work, write, in transactions over a leader that is killed, judged by Python's reader."""

from __future__ import annotations

from collections import Counter
from typing import Any

from oncelog import Admin, Producer, TopicPartition
from tests.clients.driver import Driver, DriverError
from tests.clients.languages import offering
from tests.integration.conftest import MakeCluster
from tests.integration.records import read_all

PARTITIONS, RECORDS = 2, 240
SOME = 20  # records of one transaction


class Copy:
    """Reads `topic` in transactions that write the same records, and knows how far it has read."""

    def __init__(self, driver: Driver, servers: list[str], topic: str, target: str) -> None:
        self._driver, self._servers = driver, {"bootstrap_servers": servers}
        self._topic, self._target = topic, target
        self._turns = self._lives = self.committed = self.given_up = 0
        self._producer = self._consumer = ""

    def start(self) -> None:
        """A new process's part: the name's next lease, and the group's offsets."""
        self._lives += 1
        self._producer, self._consumer = f"p{self._lives}", f"c{self._lives}"
        self._driver.ask(
            "open_producer",
            self._producer,
            config={**self._servers, "producer_name": f"copy-{self._topic}"},
        )
        config = {**self._servers, "group_id": self._topic, "auto_offset_reset": "earliest"}
        self._driver.ask("open_consumer", self._consumer, config=config)
        partitions = [[self._topic, partition] for partition in range(PARTITIONS)]
        # The begin leases the name, which ends the transaction that its predecessor left open.
        self._driver.ask("begin", self._producer)
        self._driver.ask("abort_transaction", self._producer)
        self._driver.ask("assign", self._consumer, partitions=partitions)

    def _poll(self) -> list[Any]:
        asked = {"timeout_ms": 10_000, "max_records": SOME}
        records: list[Any] = self._driver.ask("poll", self._consumer, **asked)["records"]
        return records

    def _write(self, records: list[Any]) -> None:
        for record in records:
            self._turns += 1
            self._driver.ask(
                "send",
                self._producer,
                tag=str(self._turns),
                topic=self._target,
                partition=record["partition"],
                value=b"did ".hex() + record["value"],
            )
        self._driver.ask("send_offsets", self._producer, consumer=self._consumer)

    def once(self) -> None:
        records = self._poll()
        assert records, f"{self.committed} of {RECORDS} records came"
        self._driver.ask("begin", self._producer)
        try:
            self._write(records)
            self._driver.ask("commit_transaction", self._producer)
        except DriverError as error:
            if error.error.get("outcome") == "unknown":
                raise
            self.given_up += 1
            self.start()
            return
        self.committed += len(records)

    def leave_open(self) -> None:
        """Written and not committed: a successor begins where the last commit stands."""
        records = self._poll()
        self._driver.ask("begin", self._producer)
        self._write(records)
        self.given_up += 1
        self.start()


@offering("go", "java", "node", "rust")
def test_what_is_read_is_written_once_while_a_leader_is_killed(
    make_cluster: MakeCluster, driver: Driver, topic: str
) -> None:
    cluster = make_cluster()
    target = f"{topic}-done"
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 3)
        admin.create_topic(target, PARTITIONS, 3)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        copy = Copy(driver, cluster.bootstrap.split(","), topic, target)
        copy.start()
        killed = 0
        while copy.committed < RECORDS:
            if not killed and copy.committed >= RECORDS // 3:
                copy.leave_open()
                killed = cluster.leader(target, 0)
                cluster.kill([killed])
            copy.once()
        cluster.start_nodes([killed])
        offsets = admin.describe_group(topic).offsets
    assert copy.given_up, "one transaction was left open, and nothing of it is there"
    found = [record.value for record in read_all(cluster, target)]
    assert Counter(found) == Counter(b"did %d" % number for number in range(RECORDS))
    assert {tp: one.offset for tp, one in offsets.items()} == {
        TopicPartition(topic, partition): RECORDS // PARTITIONS for partition in range(PARTITIONS)
    }
