"""Kafka's own Java tools, Kafka Streams' smoke test and Kafka Connect's file connectors.

All jars are from Maven Central. The tools print JSON, the smoke test SUCCESS; the rest is compared
with the topics' high watermarks and with files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from harness.local_cluster import LocalCluster
from harness.ports import LOOPBACK, free_ports
from oncelog import Admin
from tests.integration.kafka.kafka_rig import create, done
from tests.suites.outcome import Case
from tests.suites.places import FOLDER, cluster_of, jars, require

VERSION = "4.3.1"
HOME = FOLDER / f"kafka-java-{VERSION}"
ARTIFACTS = ("kafka-tools", "kafka-streams", "kafka-streams:test", "kafka-clients:test",
             "connect-runtime", "connect-file")  # fmt: skip
LOGGER = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
TOOLS, TESTS = "org.apache.kafka.tools", "org.apache.kafka.streams.tests"
CONNECT = "org.apache.kafka.connect"
RECORDS = 20_000
COPIED = 5_000
LINES = 1_000
TIMEOUT = 600.0  # seconds for a program
LOOK_AGAIN = 0.5  # seconds; Connect has no call that waits
REPLICAS = 3
# As Kafka's system tests create them.
SMOKE_TOPICS = ("echo", "data", "fk", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw",
                "sws-suppressed", "dif", "cnt", "avg", "tagg")  # fmt: skip
SMOKE_PARTITIONS = 5
# Topics of Connect and Streams are compacted while they are used.
SETTINGS = {"retention_check_ms": "300", "cleaner_bytes_per_s": "0"}
KINDS = ("offset", "config", "status")
CONNECT_TOPICS = [f"connect-{kind}" for kind in KINDS]
CHANGELOGS = 4  # of the smoke test, that have records while it runs, at least
CANNOT: dict[str, str] = {}


def build() -> None:
    """Fetch the jars, once."""
    require("java", "mvn")
    jars(HOME / "lib", *(("org.apache.kafka", *_named(one)) for one in ARTIFACTS), LOGGER)
    (HOME / "log4j2.properties").write_text(
        "status=error\nappender.c.type=Console\nappender.c.name=c\nrootLogger.level=error\n"
        "rootLogger.appenderRef.c.ref=c\n"
    )


def _named(name: str) -> tuple[str, ...]:
    """Return a name's artifact, version and classifier, if it has one."""
    artifact, _, classifier = name.partition(":")
    return (artifact, VERSION, classifier) if classifier else (artifact, VERSION)


class Programs:
    """Java programs against one cluster. folder: of their files."""

    def __init__(self, cluster: LocalCluster, servers: str, folder: Path) -> None:
        self.cluster, self.servers, self.folder = cluster, servers, folder

    def create(self, *topics: str, partitions: int = 1) -> None:
        client = AdminClient({"bootstrap.servers": self.servers})
        for topic in topics:
            create(client, topic, partitions, REPLICAS)

    def properties(self, name: str, values: Mapping[str, object]) -> Path:
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return path

    def run(self, program: str, *words: object) -> str:
        """Run a program to its end; returns its output. Raises AssertionError if it fails."""
        done = subprocess.run(
            _command(program, words), cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=TIMEOUT,
        )  # fmt: skip
        assert not done.returncode, f"{program} ended with {done.returncode}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def running(self, program: str, *words: object) -> Iterator[Path]:
        """Run a program for the body, and end it; gives the file of its output."""
        output = self.folder / f"{program.rpartition('.')[2]}.log"
        with output.open("w") as log:
            process = subprocess.Popen(
                _command(program, words), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            yield output
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def stored(self, topic: str) -> int:
        return self.cluster.latest(topic, 0)

    def compact_soon(self, topics: Sequence[str]) -> None:
        """Has nodes compact all records of these topics."""
        soon = ConfigEntry(
            "max.compaction.lag.ms", "1", incremental_operation=AlterConfigOpType.SET
        )
        resources = [
            ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[soon])
            for topic in topics
        ]
        client = AdminClient({"bootstrap.servers": self.servers})
        done(client.incremental_alter_configs(resources))

    def compacted(self, topic: str) -> tuple[int, int]:
        """Returns how many records of a topic are compacted, and how many there are."""
        with Admin(bootstrap_servers=self.cluster.bootstrap) as client:
            partitions = client.describe_topic(topic).partitions
        ends = [self.cluster.latest(topic, one.partition) for one in partitions]
        return sum(one.cleaned_offset or 0 for one in partitions), sum(ends)


def _command(program: str, words: Sequence[object]) -> list[str]:
    return ["java", "-Xmx512m", f"-Dlog4j2.configurationFile={HOME / 'log4j2.properties'}",
            "-cp", str(HOME / "lib" / "*"), program, *map(str, words)]  # fmt: skip


def _events(output: str, name: str) -> list[dict[str, int]]:
    """Read the JSON lines of a tool that have this name; any, if it is empty."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line for line in lines if not name or line.get("name") == name]


# -- the cases ----------------------------------------------------------------------------


def verifiable_producer(java: Programs) -> None:
    java.create("verified")
    output = java.run(
        f"{TOOLS}.VerifiableProducer", "--bootstrap-server", java.servers, "--topic", "verified",
        "--max-messages", RECORDS, "--acks", -1,
    )  # fmt: skip
    (data,) = _events(output, "tool_data")
    assert (data["sent"], data["acked"]) == (RECORDS, RECORDS), data
    assert java.stored("verified") == RECORDS


def verifiable_consumer(java: Programs) -> None:
    """Runs behind VerifiableProducer, as a group."""
    output = java.run(
        f"{TOOLS}.VerifiableConsumer", "--bootstrap-server", java.servers, "--topic", "verified",
        "--group-id", "verifiers", "--max-messages", RECORDS, "--reset-policy", "earliest",
    )  # fmt: skip
    assert sum(one["count"] for one in _events(output, "records_consumed")) == RECORDS
    assert all(one["success"] for one in _events(output, "offsets_committed"))


def producer_performance(java: Programs) -> None:
    java.create("fast")
    output = java.run(
        f"{TOOLS}.ProducerPerformance", "--topic", "fast", "--num-records", RECORDS,
        "--record-size", 100, "--throughput", -1,
        "--command-property", f"bootstrap.servers={java.servers}", "acks=all",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in output, output
    assert java.stored("fast") == RECORDS


def transactional_producer_performance(java: Programs) -> None:
    java.create("fast-transactions")
    java.run(
        f"{TOOLS}.ProducerPerformance", "--topic", "fast-transactions", "--num-records", RECORDS,
        "--record-size", 100, "--throughput", 10_000, "--transaction-duration-ms", 200,
        "--transactional-id", "fast", "--command-property", f"bootstrap.servers={java.servers}",
    )  # fmt: skip
    assert java.stored("fast-transactions") == RECORDS


def transactional_message_copier(java: Programs) -> None:
    """Copies with transactions of which it aborts some; each record is there once."""
    java.create("from", "to")
    java.run(
        f"{TOOLS}.VerifiableProducer", "--bootstrap-server", java.servers, "--topic", "from",
        "--max-messages", COPIED,
    )  # fmt: skip
    output = java.run(
        f"{TOOLS}.TransactionalMessageCopier", "--broker-list", java.servers, "--input-topic",
        "from", "--input-partition", 0, "--output-topic", "to", "--transactional-id", "copier",
        "--consumer-group", "copiers", "--transaction-size", 100, "--enable-random-aborts",
        "--use-group-metadata",
    )  # fmt: skip
    assert _events(output, "")[-1]["remaining"] == 0, output
    assert java.stored("to") == COPIED


def streams_smoke_test(java: Programs) -> None:
    """Runs the application exactly once, beside the driver, which generates and compares.

    In the middle of it the application ends and loses its state, when changelogs are compacted.

    The driver is not told: it would first compare ends of partitions as a reader of uncommitted
    records sees them with those of committed ones, asked a moment later. These are equal here.
    """
    java.create(*SMOKE_TOPICS, partitions=SMOKE_PARTITIONS)
    common = {"bootstrap.servers": java.servers}
    application = java.properties("application.properties", {
        **common, "processing.guarantee": "exactly_once_v2", "num.stream.threads": 2,
        "replication.factor": REPLICAS, "state.dir": java.folder / "state", "client.id": "smoke",
    })  # fmt: skip
    driver = java.properties(
        "driver.properties", {**common, "processing.guarantee": "at_least_once"}
    )
    smoke = f"{TESTS}.StreamsSmokeTest"
    with ThreadPoolExecutor(1) as pool:
        driving = pool.submit(java.run, smoke, driver, "run")
        with java.running(smoke, application, "process") as log:
            changelogs = _compacted_changelogs(java, log)
        assert "EXCEPTION" not in log.read_text(), log.read_text()
        # What is left of the changelogs is all that the second one begins with.
        shutil.rmtree(java.folder / "state")
        with java.running(smoke, application, "process") as log:
            output = driving.result(TIMEOUT)
    print("compacted while in use:", {one: java.compacted(one) for one in changelogs})
    told = output.splitlines()
    assert "SUCCESS" in told or "ALL-RECORDS-DELIVERED" in told, output
    assert "FAILED" not in told and "FAILURE" not in told, output
    assert "EXCEPTION" not in log.read_text(), log.read_text()


def _compacted_changelogs(java: Programs, log: Path) -> list[str]:
    """Waits until each changelog with records is compacted up to some of them."""
    client = AdminClient({"bootstrap.servers": java.servers})
    found = list[str]()

    def compacted() -> bool:
        names = [name for name in client.list_topics(timeout=60).topics if "changelog" in name]
        if new := set(names) - set(found):
            java.compact_soon(sorted(new))
        found[:] = names
        ends = [end for end in map(java.compacted, names) if end[1]]
        return len(ends) >= CHANGELOGS and all(end[0] for end in ends)

    _await(compacted, log)
    return found


def connect_files(java: Programs) -> None:
    """A distributed worker copies a file into a topic, exactly once, and from there to a file.

    Another worker goes on once the first one's topics are compacted.
    """
    java.create("lines")
    (port,) = free_ports(1)
    address = f"http://{LOOPBACK}:{port}"
    converter = f"{CONNECT}.storage.StringConverter"
    worker = java.properties("worker.properties", {
        "bootstrap.servers": java.servers, "group.id": "connect", "listeners": address,
        "key.converter": converter, "value.converter": converter,
        "exactly.once.source.support": "enabled", "offset.flush.interval.ms": 1000,
        **{f"{kind}.storage.topic": f"connect-{kind}" for kind in KINDS},
        **{f"{kind}.storage.replication.factor": 3 for kind in KINDS},
    })  # fmt: skip
    source, sink = java.folder / "lines.txt", java.folder / "copy.txt"
    source.write_text("".join(f"{number}\n" for number in range(LINES)))
    with java.running(f"{CONNECT}.cli.ConnectDistributed", worker) as log:
        for kind, path, topics in (("Source", source, "topic"), ("Sink", sink, "topics")):
            settings = {
                "connector.class": f"{CONNECT}.file.FileStream{kind}Connector",
                "file": str(path), topics: "lines", "tasks.max": "1",
            }  # fmt: skip
            _await(partial(_put, f"{address}/connectors/{kind}/config", settings), log)
        _await(lambda: _is_copied(source, sink), log)
        java.compact_soon(CONNECT_TOPICS)
        _await(lambda: all(a == b > 0 for a, b in map(java.compacted, CONNECT_TOPICS)), log)
    with source.open("a") as more:
        more.writelines(f"{number}\n" for number in range(LINES, 2 * LINES))
    # The next worker knows its connectors and their offsets from the compacted topics alone.
    with java.running(f"{CONNECT}.cli.ConnectDistributed", worker) as log:
        _await(lambda: _is_copied(source, sink), log)
    print("compacted:", {one: java.compacted(one) for one in CONNECT_TOPICS})
    assert sink.read_text() == source.read_text()
    assert java.stored("lines") == 2 * LINES


def _is_copied(source: Path, sink: Path) -> bool:
    return sink.exists() and len(sink.read_bytes()) >= len(source.read_bytes())


def _put(url: str, values: Mapping[str, str]) -> bool:
    """Set a connector's settings; False: the worker starts, or its group is rebalancing."""
    data, kind = json.dumps(values).encode(), {"Content-Type": "application/json"}
    try:
        with urlopen(Request(url, data, kind, method="PUT"), timeout=60) as answer:
            return answer.status in (200, 201)
    except HTTPError as error:
        if error.code not in (404, 409):
            raise
        return False
    except (URLError, TimeoutError, ConnectionError):
        return False


def _await(condition: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, log.read_text()
        time.sleep(LOOK_AGAIN)


CASES: tuple[Callable[[Programs], None], ...] = (
    verifiable_producer, verifiable_consumer, producer_performance,
    transactional_producer_performance, transactional_message_copier, connect_files,
    streams_smoke_test,
)  # fmt: skip


def run(only: Sequence[str], *, quick: bool) -> Iterator[Case]:
    build()
    folder = HOME / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with cluster_of(3, **SETTINGS) as (cluster, servers):
        java = Programs(cluster, servers, folder)
        for case in CASES:
            if not only or case.__name__ in only:
                begun = time.monotonic()
                text = _failure(case, java)
                word = "failed" if text else "passed"
                print(f"{case.__name__} {word} {time.monotonic() - begun:.1f} s", flush=True)
                yield Case(case.__name__, not text, text=text)


def _failure(case: Callable[[Programs], None], java: Programs) -> str:
    try:
        case(java)
    except (AssertionError, subprocess.TimeoutExpired, OSError, KafkaException) as error:
        return str(error) or f"{case.__name__} fails"
    return ""
