"""The Go client under faults, judged replica by replica against what it was told."""

from __future__ import annotations

import threading
from typing import Any

from harness.audit import Ledger, audit_all
from harness.local_cluster import LocalCluster
from oncelog import Admin
from tests.clients.driver import Driver
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

PARTITIONS, KEYS = 3, 7


def ledger_of(results: dict[str, Any]) -> Ledger:
    """What the client said of each record; the tag is its row. All must be stored."""
    ledger = Ledger.of(len(results))
    failed = {tag: result for tag, result in results.items() if "ok" not in result}
    assert failed == {}
    for tag, result in results.items():
        ledger.acknowledge(int(tag), result["ok"]["partition"], result["ok"]["offset"])
    return ledger


class Sending:
    """Sends rows 0, 1, 2, ... by a driver, on a thread of its own, until told to stop."""

    def __init__(self, driver: Driver, topic: str) -> None:
        self._driver = driver
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rows = 0

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            row = self.rows
            self._driver.ask(
                "send",
                "p",
                tag=str(row),
                topic=self._topic,
                value=(b"%d" % row).hex(),
                partition=row % PARTITIONS,
            )
            self.rows += 1
            if row % 20 == 19:
                self._stop.wait(0.002)  # some thousand records a second, for as long as it takes

    def results(self) -> dict[str, Any]:
        results: dict[str, Any] = self._driver.ask("await", "p", timeout_ms=60_000)["results"]
        assert len(results) == self.rows
        return results


def stored(cluster: LocalCluster, topic: str) -> int:
    """How many records all leaders know to be committed."""
    return sum(
        cluster.api(cluster.leader(topic, partition)).offset(topic, partition, "latest")
        for partition in range(PARTITIONS)
    )


def audit_clean(cluster: LocalCluster, topic: str, ledger: Ledger) -> None:
    rows = len(ledger.offsets)

    def level() -> bool:
        """Each replica holds what the leaders do, so that all are read to the same end."""
        return all(
            sum(
                cluster.api(node).offset(topic, partition, "latest", any_replica=True)
                for partition in range(PARTITIONS)
            )
            >= rows
            for node in cluster.running
        )

    eventually(level, "all replicas to be level")
    apis = {node: cluster.api(node) for node in cluster.running}
    audits, identical = audit_all(apis, topic, PARTITIONS, ledger, int)
    for one in audits:
        assert one.clean, one.examples
        assert one.records == rows
    assert identical
    assert len(audits) == 3


def test_killed_leaders_lose_nothing_and_repeat_nothing(
    make_cluster: MakeCluster, driver: Driver, topic: str
) -> None:
    cluster = make_cluster()
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 3)
    config = {
        "bootstrap_servers": cluster.bootstrap.split(","),
        "batch_size": 1024,
        "linger_ms": 1,
        "buffer_memory": 262_144,
    }
    driver.ask("open_producer", "p", config=config)

    with Sending(driver, topic) as sending:

        def more() -> None:
            target = sending.rows + 500
            eventually(lambda: sending.rows >= target, "records to be sent")

        more()
        for turn in range(4):
            leader = cluster.leader(topic, turn % PARTITIONS)
            cluster.kill([leader])
            more()
            cluster.start_nodes([leader])
            more()
    audit_clean(cluster, topic, ledger_of(sending.results()))


def test_a_consumer_reads_on_while_leaders_are_killed(
    make_cluster: MakeCluster, driver: Driver, topic: str
) -> None:
    cluster = make_cluster()
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    servers = {"bootstrap_servers": cluster.bootstrap.split(",")}
    driver.ask("open_producer", "p", config={**servers, "linger_ms": 0})
    driver.ask("open_consumer", "c", config={**servers, "auto_offset_reset": "earliest"})
    driver.ask("subscribe", "c", topics=[topic])
    sent: list[str] = []
    read: list[str] = []
    offsets: list[int] = []

    def pass_on(count: int) -> None:
        for _ in range(count):
            sent.append((b"%d" % len(sent)).hex())
            driver.ask("send", "p", tag=sent[-1], topic=topic, value=sent[-1])
        while len(read) < len(sent):
            records = driver.ask("poll", "c", timeout_ms=30_000)["records"]
            assert records, f"{len(read)} of {len(sent)} records came"
            read.extend(record["value"] for record in records)
            offsets.extend(record["offset"] for record in records)

    pass_on(20)
    for how in ("kill", "move"):
        leader = cluster.leader(topic, 0)
        if how == "kill":
            cluster.kill([leader])
            pass_on(20)
            cluster.start_nodes([leader])
        else:
            with Admin(cluster.bootstrap) as admin:
                assert admin.transfer_leadership(topic, 0) != leader
        pass_on(20)
    assert read == sent
    assert offsets == list(range(len(sent)))
