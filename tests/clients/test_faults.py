"""Clients under faults: each replica's records are compared with the client's reports."""

from __future__ import annotations

from typing import Any

import pytest

from harness.audit import Ledger, audit_all
from harness.local_cluster import LocalCluster
from oncelog import Admin
from tests.clients.driver import Driver
from tests.clients.languages import CHOSEN, every, first
from tests.integration.background import Background
from tests.integration.conftest import STEADY, MakeCluster
from tests.integration.records import read_all
from tests.integration.waiting import eventually

PARTITIONS, KEYS = 3, 7


def ledger_of(results: dict[str, Any]) -> Ledger:
    """The client's report on each record; the tag is its row. All must be stored."""
    ledger = Ledger.of(len(results))
    failed = {tag: result for tag, result in results.items() if "ok" not in result}
    assert failed == {}
    for tag, result in results.items():
        ledger.acknowledge(int(tag), result["ok"]["partition"], result["ok"]["offset"])
    return ledger


class Sending(Background):
    """Sends rows 0, 1, 2, ... by a driver, on a thread of its own, until told to stop."""

    def __init__(self, driver: Driver, topic: str) -> None:
        super().__init__()
        self._driver = driver
        self._topic = topic
        self.rows = 0

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


def audit_clean(cluster: LocalCluster, topic: str, ledger: Ledger) -> None:
    rows = len(ledger.offsets)

    def level() -> bool:
        """True if each replica holds as much as the leaders: all are then read to the same end."""
        return all(
            sum(
                cluster.api(node).offset(topic, partition, "latest", any_replica=True)
                for partition in range(PARTITIONS)
            )
            >= rows
            for node in cluster.running
        )

    eventually(level, "all replicas to be level")
    copies = {node: [cluster.api(node)] * PARTITIONS for node in cluster.running}
    audits, identical = audit_all(copies, topic, ledger, int)
    for one in audits:
        assert one.clean, one.examples
        assert one.records == rows
    assert identical
    assert len(audits) == 3


@every()
def test_killed_leaders_lose_nothing_and_repeat_nothing(
    make_cluster: MakeCluster, driver: Driver, topic: str, language: str
) -> None:
    kills = 4 if language == CHOSEN[0] else 2
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
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
        for turn in range(kills):
            leader = cluster.leader(topic, turn % PARTITIONS)
            cluster.kill([leader])
            more()
            cluster.start_nodes([leader])
            more()
    audit_clean(cluster, topic, ledger_of(sending.results()))


@every()
def test_a_consumer_reads_on_while_leaders_are_killed(
    make_cluster: MakeCluster, driver: Driver, topic: str
) -> None:
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
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
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                assert admin.transfer_leadership(topic, 0) != leader
        pass_on(20)
    assert read == sent
    assert offsets == list(range(len(sent)))


@first()
def test_nobody_waits_for_a_leader_that_hangs(
    make_cluster: MakeCluster, driver: Driver, topic: str
) -> None:
    """Its connections stay, so the client would await its answer until the request's timeout."""
    cluster = make_cluster(settings=STEADY)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    servers = {"bootstrap_servers": cluster.bootstrap.split(",")}
    driver.ask(
        "open_producer",
        "p",
        config={**servers, "request_timeout_ms": 600_000, "delivery_timeout_ms": 700_000},
    )
    driver.ask(
        "open_consumer",
        "c",
        config={**servers, "request_timeout_ms": 600_000, "auto_offset_reset": "earliest"},
    )
    driver.ask("subscribe", "c", topics=[topic])

    def pass_on(tag: str) -> None:
        driver.ask("send", "p", tag=tag, topic=topic, value=tag.encode().hex())
        assert "ok" in driver.ask("await", "p", tags=[tag], timeout_ms=60_000)["results"][tag]
        (record,) = driver.ask("poll", "c", timeout_ms=60_000)["records"]
        assert bytes.fromhex(record["value"]) == tag.encode()

    pass_on("before")
    leader = cluster.leader(topic, 0)
    cluster.pause(leader)
    try:
        pass_on("behind")
    finally:
        cluster.resume(leader)


@first()
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_lost_acknowledgement(
    make_cluster: MakeCluster, driver: Driver, topic: str, idempotent: bool
) -> None:
    """The fault bites: without idempotence the very same loss stores records twice."""
    # A frozen client connection must not look like a dead leader: only clients are cut off.
    cluster = make_cluster(settings=STEADY, proxied=True)
    assert cluster.proxy is not None
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    driver.ask(
        "open_producer",
        "p",
        config={
            "bootstrap_servers": cluster.bootstrap.split(","),
            "enable_idempotence": idempotent,
            "linger_ms": 0,
            "request_timeout_ms": 5000,
        },
    )
    send = {"topic": topic, "partition": 0}
    driver.ask("send", "p", tag="before", value=b"before".hex(), **send)
    assert "ok" in driver.ask("await", "p", timeout_ms=30_000)["results"]["before"]
    leader = cluster.leader(topic, 0)
    other = next(node for node in cluster.running if node != leader)
    cluster.proxy.ask("freeze", f"client-{leader}", direction="down")
    try:
        for n in range(5):
            records = [{"value": (b"%d" % n).hex()}]
            driver.ask("send_batch", "p", tag=str(n), records=records, **send)
        api = cluster.api(other)
        eventually(lambda: api.offset(topic, 0, "latest", any_replica=True) == 6, "all are stored")
        results = driver.ask("await", "p", timeout_ms=0)["results"]
        assert all(results[str(n)] == {"pending": True} for n in range(5))
    finally:
        cluster.proxy.ask("reset", f"client-{leader}")
        cluster.proxy.ask("heal", f"client-{leader}")
    results = driver.ask("await", "p", timeout_ms=60_000)["results"]
    found = [record.value for record in read_all(cluster, topic)]
    once = [b"before", *(b"%d" % n for n in range(5))]
    if idempotent:
        assert found == once
        assert [results[str(n)]["ok"]["offset"] for n in range(5)] == [1, 2, 3, 4, 5]
        assert all(results[str(n)]["ok"]["duplicate"] for n in range(5))
    else:
        assert found == [*once, *once[1:]], "a plain retry stores a second copy"


@first()
def test_of_two_with_one_name_the_later_one_writes(
    make_cluster: MakeCluster, driver: Driver, topic: str
) -> None:
    cluster = make_cluster()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3)
    config = {"bootstrap_servers": cluster.bootstrap.split(","), "producer_name": "one"}

    def send(handle: str, tag: str) -> Any:
        driver.ask("send", handle, tag=tag, topic=topic, partition=0, value=tag.encode().hex())
        return driver.ask("await", handle, timeout_ms=30_000)["results"][tag]

    driver.ask("open_producer", "old", config=config)
    first = send("old", "a")["ok"]
    driver.ask("open_producer", "new", config=config)
    second = send("new", "b")["ok"]
    assert second["producer_id"] == first["producer_id"]
    assert (second["epoch"], second["sequence"]) == (first["epoch"] + 1, first["sequence"] + 1)
    assert send("old", "c")["error"]["reason"] == "FENCED"
    assert "ok" in send("new", "d")
    assert [record.value for record in read_all(cluster, topic)] == [b"a", b"b", b"d"]
