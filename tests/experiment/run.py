"""One run of the experiment on a running cluster: sends, kills, reads back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.local_cluster import LocalCluster
from oncelog import Producer
from tests.experiment.client import Sender, Sent, send_integers
from tests.experiment.faults import Beat, BrokerKiller, ConnectionKiller, Nodes, Sampler
from tests.experiment.plan import LIBRDKAFKA, PARTITIONS, Kill, Outcome, Plan
from tests.experiment.verify import verify

SAMPLE_EVERY = 0.25  # seconds
MAX_BLOCK_MS = 120_000  # a full buffer while a broker is down is no fault


def run(cluster: LocalCluster, plan: Plan, progress: Callable[[int], None]) -> Outcome:
    """Runs a plan on a proxied cluster without its topic; `progress` gets acknowledged counts.
    Raises HarnessError, OncelogError, VerifyError.
    """
    with _producer(cluster, plan) as producer:

        def acknowledged() -> int:
            count = int(producer.metrics()["records_acked"])
            progress(count)
            return count

        sent, kills, samples = _under_faults(cluster, plan, producer, acknowledged)
        figures = producer.metrics()
    reading = time.monotonic()
    found = verify(cluster.bootstrap, plan.topic, PARTITIONS, sent.acknowledged)
    return Outcome(
        plan=plan,
        acknowledged=sum(sent.acknowledged),
        seconds=sent.seconds,
        found=found,
        kills=kills,
        retried=int(figures["batches_retried"]),
        refused=int(figures["duplicates"]),
        read_seconds=time.monotonic() - reading,
        errors=sent.errors,
        samples=samples,
    )


@contextmanager
def _producer(cluster: LocalCluster, plan: Plan) -> Iterator[Sender]:
    """Makes the topic in the client's format, and the plan's client."""
    if plan.client == LIBRDKAFKA:
        from tests.experiment.librdkafka import KafkaSender
        from tests.integration.kafka.kafka_rig import admin, create, servers

        create(admin(cluster), plan.topic, PARTITIONS)
        _wait_for_leaders(cluster, plan)
        with KafkaSender(
            servers(cluster), idempotent=plan.idempotent, linger_ms=plan.linger_ms
        ) as sender:
            yield sender
        return
    cluster.api(1).create_topic(plan.topic, PARTITIONS, 3)
    _wait_for_leaders(cluster, plan)
    with Producer(
        bootstrap_servers=cluster.bootstrap,
        enable_idempotence=plan.idempotent,
        linger_ms=plan.linger_ms,
        max_block_ms=MAX_BLOCK_MS,
    ) as producer:
        yield producer


def _wait_for_leaders(cluster: LocalCluster, plan: Plan) -> None:
    for partition in range(PARTITIONS):
        cluster.leader(plan.topic, partition)


def _under_faults(
    cluster: LocalCluster, plan: Plan, producer: Sender, acknowledged: Callable[[], int]
) -> tuple[Sent, list[Kill], list[tuple[float, int]]]:
    """Sends while the beats go; returns records, kills, and samples over time."""
    started, failed = time.monotonic(), threading.Event()
    nodes = Nodes(cluster, plan.topic)
    sampler = Sampler(acknowledged, SAMPLE_EVERY, started, failed)
    connections = ConnectionKiller(
        cluster,
        nodes,
        plan.connections_every,
        started,
        failed,
        lose_acknowledgements=plan.lose_acknowledgements,
    )
    rng = random.Random(plan.seed)
    brokers = BrokerKiller(cluster, nodes, plan.brokers_every, started, failed, rng)
    beats: list[Beat] = [sampler, connections, brokers]
    for beat in beats:
        beat.start()
    try:
        rate = plan.records / plan.seconds
        sent = send_integers(producer, plan.topic, plan.records, rate, failed)
    finally:
        for beat in beats:
            beat.stop()
        nodes.close()
        # Before its consequences: a fault that could not be made ends the run.
        for beat in beats:
            beat.check()
    # Kills after the last acknowledgement had no effect on the run.
    kills = [kill for kill in connections.kills + brokers.kills if kill.at <= sent.seconds]
    samples = [(at, count) for at, count in sampler.samples if at < sent.seconds]
    samples.append((sent.seconds, acknowledged()))
    return sent, sorted(kills, key=lambda kill: kill.at), samples
