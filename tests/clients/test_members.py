"""Members of a group on a secured cluster: their processed records, judged by committed offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer, TopicPartition
from tests.clients.driver import Driver, DriverError
from tests.clients.languages import offering

PARTITIONS = 6


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """TLS on all ports, by the certificates of `oncelog certs`. A test restarts nodes it kills."""
    with LocalCluster(tmp_path_factory.mktemp("secured"), secured=True) as made:
        yield made


class Work:
    """Records that members of one driver were given, and could commit."""

    def __init__(self, driver: Driver, topic: str) -> None:
        self._driver, self._topic = driver, topic
        self.done: Counter[bytes] = Counter()
        self.ends: dict[int, int] = {}
        self.parts: dict[str, set[int]] = {}

    def turn(self, member: str) -> None:
        """One poll, and a commit of each partition. Records of a refused commit go to another
        member.
        """
        by_partition: dict[int, list[Any]] = {}
        for record in self._driver.ask("poll", member, timeout_ms=100)["records"]:
            by_partition.setdefault(record["partition"], []).append(record)
        for partition, records in by_partition.items():
            place = {"topic": self._topic, "partition": partition}
            offset = records[-1]["offset"] + 1
            try:
                self._driver.ask("commit", member, offsets=[{**place, "offset": offset}])
            except DriverError as refused:
                if refused.error["reason"] != "FENCED_MEMBER":
                    raise
                continue
            self.done.update(bytes.fromhex(record["value"]) for record in records)
            self.ends[partition] = offset
            self.parts.setdefault(member, set()).add(partition)

    def until(self, count: int, *members: str) -> None:
        self.parts.clear()
        for _ in range(400):
            if len(self.done) >= count:
                return
            for member in members:
                self.turn(member)
        raise AssertionError(f"{len(self.done)} of {count} records were processed")


@offering("go", "java", "node", "rust")
def test_two_share_six_partitions_one_leaves_and_a_leader_is_killed(
    secured: LocalCluster, driver: Driver, topic: str
) -> None:
    files = secured.client_files
    servers = {"bootstrap_servers": secured.bootstrap.split(",")}
    member = {
        **servers, **files,
        "group_id": topic, "membership": "assigned", "auto_offset_reset": "earliest",
    }  # fmt: skip
    work = Work(driver, topic)
    with (
        Admin(bootstrap_servers=secured.bootstrap, **files) as admin,
        Producer(bootstrap_servers=secured.bootstrap, **files) as producer,
    ):
        admin.create_topic(topic, PARTITIONS, 3)
        sent = 0

        def fill() -> int:
            nonlocal sent
            for _ in range(60):
                producer.send(topic, b"%d" % sent, partition=sent % PARTITIONS)
                sent += 1
            producer.flush()
            return sent

        for name in ("one", "two"):
            driver.ask("open_consumer", name, config=member)
            driver.ask("subscribe", name, topics=[topic])
        work.until(fill(), "one", "two")
        # They may have begun to share only during that read; now it is settled.
        work.until(fill(), "one", "two")
        assert {name: len(parts) for name, parts in work.parts.items()} == {"one": 3, "two": 3}

        coordinator = admin.describe_group(topic).coordinator_id
        secured.kill([coordinator])
        work.until(fill(), "one", "two")
        secured.start_nodes([coordinator])
        work.until(fill(), "one", "two")

        driver.ask("close", "one")
        work.until(fill(), "two")
        assert work.parts["two"] == set(range(PARTITIONS))
        driver.ask("close", "two")

        assert work.done == Counter(b"%d" % n for n in range(sent)), "each record once"
        committed = admin.describe_group(topic).offsets
        assert {tp: one.offset for tp, one in committed.items()} == {
            TopicPartition(topic, partition): end for partition, end in work.ends.items()
        }


@offering("go", "java", "node", "rust")
def test_who_has_no_certificate_is_refused(secured: LocalCluster, driver: Driver) -> None:
    servers = {"bootstrap_servers": secured.bootstrap.split(",")}
    driver.ask("open_admin", "mine", config={**servers, **secured.client_files})
    assert len(driver.ask("describe_cluster", "mine")["nodes"]) == 3
    ca = {"tls_ca_file": secured.client_files["tls_ca_file"]}
    for name, files in {"clear": {}, "nobody": ca}.items():
        config = {**servers, **files, "request_timeout_ms": 1000}
        driver.ask("open_admin", name, config=config)
        with pytest.raises(DriverError) as refused:
            driver.ask("describe_cluster", name)
        assert refused.value.error["retriable"], "a node that cannot be reached"
