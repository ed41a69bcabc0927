"""Trials of a running cluster: a lost leader, a restarted node, many partitions.

Place in the flow: `cli/bench` parses and prints, this module acts and measures, through the public
clients. The operator gives the commands that stop and start a node, with `{node}` for its id; this
module does not know how nodes are deployed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from oncelog import Admin, Consumer
from oncelog.cli import load
from oncelog.cli.load import Figures
from oncelog.errors import RequestTimeoutError, RetriableError
from oncelog.types import PartitionInfo, TopicInfo, TopicPartition

_LOOK_S = 0.02  # between two checks for an event that no call waits for
_TIMEOUT_S = 120.0  # for a node to be back, or for a leader
_TOPIC_SIZE = 100  # partitions of each topic that only exists
_FEW, _SOME = 6, 100


@dataclass(frozen=True, slots=True)
class Power:
    """Commands that stop and start nodes, with `{node}` in place of the id."""

    kill: str
    start: str

    def end(self, node: int) -> None:
        """Stop a node. Raises click.ClickException with the command's output."""
        _command(self.kill, node)

    def begin(self, node: int) -> None:
        """Start a node. Raises click.ClickException with the command's output."""
        _command(self.start, node)


def _command(line: str, node: int) -> None:
    words = [word.replace("{node}", str(node)) for word in shlex.split(line)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise click.ClickException(f"{shlex.join(words)}: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise click.ClickException(f"{shlex.join(words)}: {said}")


def failover(
    bootstrap: Sequence[str], topic: str, *, partition: int, times: int, power: Power | None
) -> Figures:
    """Measure from the loss of a partition's leader to the next acknowledgement, `times` times.

    The record is sent as soon as the leader is gone. Without `power`, leadership is transferred to
    another replica, as by a node that stops in an orderly way. Raises OncelogError.
    """
    waits: list[float] = []
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        load.producer(bootstrap, {"linger.ms": "0"}) as producer,
    ):
        producer.send(topic, b"", partition=partition).result(_TIMEOUT_S)
        for _ in range(times):
            leader = _leader(admin, topic, partition)
            if power is None:
                begin = time.monotonic()
                admin.transfer_leadership(topic, partition)
            else:
                power.end(leader)
                begin = time.monotonic()
            producer.send(topic, b"", partition=partition).result(_TIMEOUT_S)
            waits.append((time.monotonic() - begin) * 1e3)
            if power is not None:
                power.begin(leader)
                end = _end(bootstrap, topic, partition)
                _wait_level(bootstrap, topic, partition, leader, end)
    return load.percentiles(waits)


def restart(
    bootstrap: Sequence[str], topic: str, *, partition: int, node: int, power: Power
) -> Figures:
    """Stop and start a node; measure until its replica can be read, and has caught up.

    serving_s counts from the start command, level_s until it has all records acknowledged before
    the start. Raises OncelogError.
    """
    with Admin(bootstrap_servers=bootstrap) as admin:
        replicas = _info(admin, topic, partition).replicas
    if node not in replicas:
        where = ", ".join(map(str, replicas))
        raise click.ClickException(f"NODE {node} has no replica of {topic}-{partition}: {where}")
    power.end(node)
    end = _end(bootstrap, topic, partition)
    begin = time.monotonic()
    power.begin(node)
    _wait_level(bootstrap, topic, partition, node, 0)
    serving = time.monotonic() - begin
    _wait_level(bootstrap, topic, partition, node, end)
    return {"serving_s": serving, "level_s": time.monotonic() - begin, "records": end}


def partitions(
    bootstrap: Sequence[str], *, count: int, replicas: int, seconds: float, size: int
) -> Figures:
    """Create `count` partitions, write to 6 and to 100 of them in turn, and delete them.

    create_s: until each has a leader. Raises OncelogError.
    """
    rates: list[float] = []
    begin = time.monotonic()
    with _many(bootstrap, count, replicas) as (few, some):
        create = time.monotonic() - begin
        for topic in (few, some):
            with load.producer(bootstrap, {}) as producer:
                found = load.produce(producer, topic, size=size, seconds=seconds)
            rates.append(found["records_per_s"])
    return {
        "partitions": count,
        "create_s": create,
        f"on_{_FEW}_records_per_s": rates[0],
        f"on_{_SOME}_records_per_s": rates[1],
        f"on_{_SOME}_to_{_FEW}": rates[1] / rates[0],
    }


@contextmanager
def _many(bootstrap: Sequence[str], count: int, replicas: int) -> Iterator[tuple[str, str]]:
    """Create topics with `count` partitions in all; yield the names of two, with 6 and 100."""
    sizes = [_FEW, _SOME]
    while (left := count - sum(sizes)) > 0:
        sizes.append(min(_TOPIC_SIZE, left))
    run = os.urandom(4).hex()
    names = [f"bench-{run}-{number}" for number in range(len(sizes))]
    made: list[str] = []
    with Admin(bootstrap_servers=bootstrap, request_timeout_ms=int(_TIMEOUT_S * 1000)) as admin:
        try:
            for name, size in zip(names, sizes, strict=True):
                admin.create_topic(name, partitions=size, replicas=replicas)
                made.append(name)
            _until(lambda: all(map(_is_led, admin.describe_topics(names))), "leaders of all")
            yield names[0], names[1]
        finally:
            for name in made:
                admin.delete_topic(name)


def _is_led(topic: TopicInfo) -> bool:
    return all(partition.leader_id for partition in topic.partitions)


def _info(admin: Admin, topic: str, partition: int) -> PartitionInfo:
    partitions = admin.describe_topic(topic).partitions
    if partition >= len(partitions):
        raise click.ClickException(f"--partition {partition}: {topic} has only {len(partitions)}")
    return partitions[partition]


def _leader(admin: Admin, topic: str, partition: int) -> int:
    _until(lambda: _info(admin, topic, partition).leader_id != 0, f"{topic}-{partition} is led")
    return _info(admin, topic, partition).leader_id


def _end(bootstrap: Sequence[str], topic: str, partition: int) -> int:
    """Return the leader's high watermark."""
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        return consumer.end_offsets([(topic, partition)])[TopicPartition(topic, partition)]


def _wait_level(bootstrap: Sequence[str], topic: str, partition: int, node: int, end: int) -> None:
    """Wait until the node's replica can be read, and knows that all below `end` is committed."""
    tp = TopicPartition(topic, partition)
    with Consumer(
        bootstrap_servers=bootstrap,
        request_timeout_ms=1000,
        any_replica=True,
        replica_node_id=node,
    ) as consumer:

        def level() -> bool:
            try:
                return consumer.end_offsets([tp])[tp] >= end
            except RetriableError:
                return False  # it is being started

        _until(level, f"node {node} has {topic}-{partition} up to {end}")


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise RequestTimeoutError(f"waited {_TIMEOUT_S:g} s in vain until {what}")
        time.sleep(_LOOK_S)  # no event: nodes do not announce their return
