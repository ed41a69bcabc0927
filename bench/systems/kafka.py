"""Apache Kafka in KRaft mode: three combined brokers and controllers on loopback.

Brokers and the Java perf tools are the jars of Maven Central. acks=all, idempotence on,
min.insync.replicas=2 throughout. As shipped, Kafka acknowledges records in the page caches of
the in-sync replicas and leaves writing them to the operating system; with flush.messages=1 each
append is forced to disk first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.fetch import java, maven
from bench.processes import Server, run_text, wait_until
from bench.systems.face import CLIENT_TIMEOUT, PYTHON, Figures, Load, Peer
from bench.systems.kafka_tools import parse_consumer, parse_producer
from harness.ports import LOOPBACK, free_ports

VERSION = "4.3.1"
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)
CLUSTER_ID = "oncelogBenchKafka00001"
MESSAGE_LIMIT = 8 * 1024 * 1024
START_S = 90.0
JAVA = "java"
BATCHED = "python, produce_batch"
KAFKA, LIBRDKAFKA = "kafka", "librdkafka"  # the section with one client for all

# As in Kafka's own start script; the heap is bounded.
JVM = (
    "-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip
# librdkafka's and Kafka's documentation for throughput: larger batches, some linger.
THROUGHPUT: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "none",
    "linger.ms": 10,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "message.max.bytes": MESSAGE_LIMIT,
}
SINGLY = {**THROUGHPUT, "linger.ms": 0}
JAVA_THROUGHPUT: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": "true",
    "compression.type": "none",
    "linger.ms": 10,
    "batch.size": 262_144,
    "buffer.memory": 67_108_864,
    "max.request.size": MESSAGE_LIMIT,
}

SERVER = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{control}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
min.insync.replicas=2
default.replication.factor=3
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
message.max.bytes={limit}
replica.fetch.max.bytes={limit}
"""
LOGGING = """\
status=error
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
"""


class KafkaProtocol(Peer):
    """Brokers at `addresses` that speak Kafka's protocol, loaded by confluent-kafka."""

    module = "kafka"
    singly = SINGLY
    nodes = 3

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(
            {"bootstrap.servers": ",".join(self.addresses), "log_level": 0},
            logger=_SILENT,
        )

    def names_all(self) -> bool:
        """Whether the cluster names all its nodes to clients."""
        from confluent_kafka import KafkaException

        try:
            return len(self._admin().list_topics(timeout=2).brokers) == self.nodes
        except KafkaException:
            return False

    def topic_config(self) -> dict[str, str]:
        """Settings of a new topic."""
        return {}

    def create(self, topic: str, partitions: int) -> None:
        from confluent_kafka.cimpl import NewTopic

        config = self.topic_config()
        new = NewTopic(topic, partitions, replication_factor=self.nodes, config=config)
        admin = self._admin()
        for future in admin.create_topics([new]).values():
            future.result(60)

        def led() -> bool:
            found = admin.list_topics(topic, timeout=5).topics[topic].partitions
            return len(found) == partitions and all(p.leader > 0 for p in found.values())

        wait_until(f"leaders of {topic}", led, START_S, self.stack.servers)

    def produce(self, client: str, load: Load) -> Figures:
        workload = "produce_batch" if client == BATCHED else "produce"
        return self.run_client(workload, self.asked(load, settings=THROUGHPUT))

    def produce_bytes(self, client: str, load: Load) -> Figures:
        # One message of exactly the size is its own batch.
        return self.produce(client, load)

    def latency(self, client: str, load: Load) -> Figures:
        settings = THROUGHPUT if load.rate else SINGLY
        return self.run_client("latency", self.asked(load, settings=settings))

    def consume(self, client: str, load: Load) -> Figures:
        reading = self.fill(load, self.asked(load, settings=THROUGHPUT))
        return self.run_client("consume", {**reading, "settings": {}})


class Kafka(KafkaProtocol):
    """Kafka. flush: every append is fsynced before it is acknowledged."""

    def __init__(self, *, flush: bool) -> None:
        super().__init__()
        self.durable = flush
        self.name = "Kafka, flush.messages=1" if flush else "Kafka"
        self._work = self._java = self._jars = Path()  # `prepare` sets the last two
        # The perf tools take a number of records, not a time: the Python client's rate.
        self._rates: dict[tuple[int, int], float] = {}

    def prepare(self) -> None:
        self._java = java()
        self._jars = maven(f"kafka-{VERSION}", ARTIFACTS)

    def java_words(self) -> list[str]:
        """Java options that put Kafka's classes on the class path."""
        return ["-cp", f"{self._jars}/*"]

    def _command(self, main: str, *arguments: object, jvm: tuple[str, ...] = ()) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._work / 'log4j2.properties'}"
        words = (self._java, *jvm, logging, *self.java_words(), main, *arguments)
        return [str(word) for word in words]

    def start(self, directory: Path) -> None:
        self._work = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "log4j2.properties").write_text(LOGGING)
        ports = free_ports(6)
        pairs = list(zip(ports[:3], ports[3:], strict=True))
        voters = ",".join(f"{n}@{LOOPBACK}:{pair[1]}" for n, pair in enumerate(pairs, 1))
        self.addresses[:] = [f"{LOOPBACK}:{port}" for port, _ in pairs]
        for node, (port, control) in enumerate(pairs, 1):
            config = directory / f"server{node}.properties"
            config.write_text(
                SERVER.format(
                    node=node, voters=voters, host=LOOPBACK, port=port, control=control,
                    data=directory / f"data{node}", limit=MESSAGE_LIMIT,
                )
            )  # fmt: skip
            tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", config)
            run_text(self._command(*tool), START_S)
        for node in (1, 2, 3):
            config = directory / f"server{node}.properties"
            command = self._command("kafka.Kafka", config, jvm=JVM)
            self.stack.add(Server(f"kafka {node}", command, directory / f"server{node}.log"))
        wait_until("Kafka cluster", self.names_all, START_S, self.stack.servers)

    def clients(self, section: str) -> tuple[str, ...]:
        """Clients of a section: the Java tools have no mode for one record at a time."""
        if section == "produce":
            return (PYTHON, BATCHED, JAVA)
        if section == KAFKA:
            return (LIBRDKAFKA,)
        return (PYTHON,) if section in ("latency", "producers") else (PYTHON, JAVA)

    def settings(self) -> Mapping[str, Any]:
        import confluent_kafka

        return {
            "version": VERSION,
            "brokers": "3 combined KRaft nodes, min.insync.replicas=2, " + " ".join(JVM[:2]),
            "topics": {"flush.messages": 1} if self.durable else "defaults",
            "client python": f"confluent-kafka {confluent_kafka.__version__}",
            "settings python": THROUGHPUT,
            "settings python, latency": {"linger.ms": 0},
            "client java": "org.apache.kafka.tools.ProducerPerformance, ConsumerPerformance",
            "settings java": JAVA_THROUGHPUT,
        }

    def topic_config(self) -> dict[str, str]:
        return {"flush.messages": "1"} if self.durable else {}

    def produce(self, client: str, load: Load) -> Figures:
        if client == JAVA:
            return self._java_produce(load, JAVA_THROUGHPUT)
        figures = super().produce(client, load)
        self._rates[load.size, load.partitions] = figures["records_per_s"]
        return figures

    def produce_bytes(self, client: str, load: Load) -> Figures:
        if client == JAVA:
            return self._java_produce(load, {**JAVA_THROUGHPUT, "batch.size": load.size + 1024})
        return super().produce_bytes(client, load)

    def _java_produce(self, load: Load, settings: Mapping[str, Any]) -> Figures:
        rate = self._rates.get((load.size, load.partitions)) or 100e6 / load.size
        topic = self.fresh(load.partitions)
        count = max(20, int(rate * load.seconds))
        command = self._command(
            "org.apache.kafka.tools.ProducerPerformance",
            "--bootstrap-server", ",".join(self.addresses),
            "--topic", topic,
            "--num-records", count,
            "--warmup-records", count // 5,
            "--record-size", load.size,
            "--throughput", -1,
            "--command-property", *(f"{name}={value}" for name, value in settings.items()),
        )  # fmt: skip
        timeout = CLIENT_TIMEOUT + 6 * load.seconds

        def run() -> Figures:
            return parse_producer(run_text(command, timeout), load.size)

        return self.measured(run)

    def consume(self, client: str, load: Load) -> Figures:
        if client != JAVA:
            return super().consume(client, load)
        reading = self.fill(load, self.asked(load, settings=THROUGHPUT))
        command = self._command(
            "org.apache.kafka.tools.ConsumerPerformance",
            "--bootstrap-server", ",".join(self.addresses),
            "--topic", reading["topic"],
            "--num-records", reading["records"],
            "--timeout", 30_000,
        )  # fmt: skip
        timeout = CLIENT_TIMEOUT + 6 * load.seconds
        return self.measured(lambda: parse_consumer(run_text(command, timeout)))


class _Silent:
    """Discards librdkafka's log lines while brokers start: important errors are raised."""

    def log(self, *_: object) -> None:
        return


_SILENT = _Silent()
