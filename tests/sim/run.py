"""One seed, one run: settings, clients and faults drawn from it, then healing and the checks.

0 .............. faults ............. 2/3 .. healed, clients go on .. end, rest, checks
"""

from __future__ import annotations

import logging
import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import storage.checkpoints
from cluster.cleaning import passes
from cluster.consensus import applying, checkpoints, driver, proposals, replication
from cluster.dedup import sequences
from cluster.node.cleaning import reading
from cluster.transport import send_queue
from cluster.v1 import metadata_pb2 as mpb
from storage import pieces
from tests.sim.checker import Violation, smallest_majority
from tests.sim.client import Anonymous, Producer, Style
from tests.sim.clock import NEVER
from tests.sim.cluster import Cluster, create_topic, register_node, topic_config
from tests.sim.compaction.sweeper import Sweeper
from tests.sim.faults import Faults
from tests.sim.kafka.client import Foreigner, KafkaProducer
from tests.sim.network import Damage
from tests.sim.node import Settings
from tests.sim.upgrading import Operator

DURATION = 30.0
REST = 40.0  # seconds of rest after the end in which all must converge
# Of all groups of a node, before they save early: about 20 entries (each counts 16 KiB more).
SMALL_REPLAY_BYTES = 20 * 17 * 1024
SLOW_RATE = 20_000.0  # of the links in some runs, bytes per second
ROUND_COSTS = (0.0002, 0.001, 0.005)  # in some runs: seconds for a message or an entry
STORE_LOST_AT = (3.0, 11.0)  # in some runs: when a node finds no store
KAFKA_WRAP_BITS = 6  # of a Kafka client's sequences: so few that a run crosses the wrap
DAMAGE_AT = (4.0, 9.0, 14.0)  # in some runs: when a replica finds damage


@dataclass(slots=True)
class Result:
    """A run's counts. `error` is empty if every check held."""

    seed: int
    error: str = ""
    fingerprint: int = 0
    acknowledged: int = 0
    applied: int = 0
    installs: int = 0
    refused_frames: int = 0
    crashes: int = 0
    elections: int = 0
    events: int = 0
    injected: dict[str, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def failed(self, error: Exception) -> None:
        cause = error.__cause__ or error
        self.error = f"{type(cause).__name__}: {cause}"

    def count(self, cluster: Cluster) -> None:
        """Counts the cluster's events by the run's end."""
        self.fingerprint = fingerprint(cluster)
        self.acknowledged, self.applied = cluster.checker.acknowledged, cluster.checker.applied
        self.installs, self.events = cluster.installs, cluster.scheduler.events
        self.crashes, self.elections = cluster.crashes, len(cluster.checker.leaders)
        self.refused_frames = cluster.network.refused
        self.log = cluster.log


class Clients:
    """All clients of a run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.rng = cluster, cluster.rng
        self.producers: list[Producer] = []
        self.anonymous: list[Anonymous] = []
        self.foreigners: list[Foreigner] = []
        self.sweepers: list[Sweeper] = []
        self.newest_group = max(cluster.groups)
        self.closed = False
        settings, nodes = cluster.settings, cluster.node_ids
        self.bootstrap = [register_node(node) for node in nodes]
        self.bootstrap += [create_topic(f"t{gid}", [nodes], settings) for gid in cluster.groups]
        for gid in cluster.groups:
            for _ in range(self.rng.randint(1, 2)):
                self._add_producer(gid)
            if self.rng.random() < 0.2:
                self._add_anonymous(gid)
            if settings.kafka:
                self._add_kafka(gid)
            if settings.compaction:
                dice = random.Random(gid * cluster.rng.getrandbits(32))
                self.sweepers.append(Sweeper(cluster, dice, gid))

    def _add_producer(self, gid: int) -> None:
        rng, cluster = self.rng, self.cluster
        style = Style(
            interval=(0.4 + 0.8 * rng.random()) * len(cluster.groups),
            burst=rng.choice((1, 4, 4, 8)),
            window=rng.choice((4, 12, 30)),
            ordered=rng.random() < 0.6,
            conditional=rng.random() < 0.15,
        )
        self.producers.append(
            Producer(
                cluster,
                rng,
                gid,
                cluster.lease(),
                rng.randint(0, 2),
                cluster.new_stream(),
                style,
                rng.choice(cluster.node_ids),
            )
        )

    def _add_kafka(self, gid: int) -> None:
        """Adds producers of Kafka's protocol, and a client that uses their ids."""
        rng, cluster = self.rng, self.cluster
        for _ in range(2):
            style = Style(interval=0.4 + 0.8 * rng.random(), burst=2, window=5)
            facts = (gid, cluster.kafka_lease(), 0, cluster.new_stream(), style)
            target, wrap = rng.choice(cluster.node_ids), 1 << KAFKA_WRAP_BITS
            producer = KafkaProducer(cluster, rng, *facts, target, wrap=wrap)
            self.producers.append(producer)
        self.foreigners.append(Foreigner(cluster, rng, gid))

    def _add_anonymous(self, gid: int) -> None:
        cluster = self.cluster
        target = self.rng.choice(cluster.node_ids)
        self.anonymous.append(Anonymous(cluster, self.rng, gid, cluster.new_stream(), 1.5, target))

    def start(self) -> None:
        clients: list[Producer | Anonymous | Foreigner | Sweeper]
        clients = [*self.producers, *self.anonymous, *self.foreigners, *self.sweepers]
        for client in clients:
            self.cluster.scheduler.after(self.rng.random(), client.tick)
        self.cluster.scheduler.after(2.0, self._read)
        if self.cluster.settings.metadata:
            self.cluster.scheduler.after(1.0, self._command)

    def _read(self) -> None:
        """Reads somewhere in each partition."""
        for gid in self.cluster.groups:
            leader = self.cluster.leader(gid)
            if leader is not None:
                partition = leader.partitions[gid]
                at = self.rng.randint(partition.log_start_offset, partition.high_watermark)
                self.cluster.read(leader, gid, at)
        self.cluster.scheduler.after(1.0 + self.rng.random(), self._read)

    def _command(self) -> None:
        """Sends a metadata command: first those that make the cluster, then any."""
        if self.closed and not self.bootstrap:
            return
        if self.bootstrap:
            command = self.bootstrap[0]
            self.cluster.command(command, lambda result: self._bootstrapped(command, result))
        else:
            self.cluster.command(self._any_command(), lambda result: None)
        self._follow_topics()
        self.cluster.scheduler.after(0.5 + self.rng.random(), self._command)

    def _bootstrapped(self, command: mpb.MetadataCommand, result: bytes) -> None:
        """Sends one command after the other, so that the first topics get the first groups."""
        done = mpb.MetadataResult.FromString(result).error in ("", "TOPIC_ALREADY_EXISTS")
        if done and self.bootstrap and self.bootstrap[0] is command:
            self.bootstrap = self.bootstrap[1:]

    def _any_command(self) -> mpb.MetadataCommand:
        """Draws a block of producer ids, a name, a topic that is added, changed or deleted."""
        rng, nodes, draw = self.rng, self.cluster.node_ids, self.rng.random()
        if draw < 0.2:
            ids = mpb.AllocateProducerIds(node_id=1, count=rng.randint(1, 100))
            return mpb.MetadataCommand(allocate_producer_ids=ids)
        if draw < 0.4:
            lease = mpb.LeaseName(name=f"n{rng.randint(1, 3)}", nonce=rng.getrandbits(60) + 1)
            return mpb.MetadataCommand(lease_name=lease)
        name = f"x{rng.randint(1, 3)}"
        if draw < 0.7:
            replicas = rng.randint(1, len(nodes))
            placements = [rng.sample(nodes, replicas) for _ in range(rng.randint(1, 2))]
            return create_topic(name, placements, self.cluster.settings)
        if draw < 0.85:
            config = topic_config(rng.choice((0, 600, 2000)))
            return mpb.MetadataCommand(alter_topic=mpb.AlterTopic(name=name, config=config))
        return mpb.MetadataCommand(delete_topic=mpb.DeleteTopic(name=name))

    def _follow_topics(self) -> None:
        """Gives new topics a producer each, and takes those of deleted ones."""
        for gid, held in self.cluster.placement().items():
            if gid > self.newest_group:
                self.newest_group = gid
                majority = len(held) // 2 + 1
                if self.cluster.settings.founding:
                    majority = smallest_majority(len(held))
                if gid not in self.cluster.checker.majorities:
                    self.cluster.checker.opens(gid, majority)
                self._add_producer(gid)
                self.producers[-1].tick()
        for producer in self.producers:
            if producer.gid in self.cluster.checker.deleted:
                producer.stopped = producer.stopped or "its topic was deleted"

    def take_over(self) -> None:
        """Starts a successor of some producer; the old one does not know."""
        free = [p for p in self.producers if p.successor is None and not p.stopped]
        if free:
            old = free[self.rng.randrange(len(free))]
            successor = old.succeed()
            self.cluster.trace("producer %d: epoch %d takes over", successor.pid, successor.epoch)
            self.producers.append(successor)
            successor.tick()

    def resolve(self) -> None:
        self.producers[self.rng.randrange(len(self.producers))].resolve()

    def close(self) -> None:
        self.closed = True
        self._follow_topics()
        for producer in self.producers:
            producer.closing = True
        for anonymous in self.anonymous:
            anonymous.closing = True
        for foreigner in self.foreigners:
            foreigner.closing = True
        for sweeper in self.sweepers:
            sweeper.closing = True

    def unfinished(self) -> list[Producer]:
        """Producers with an unstored batch, or not open. A topic may go after the last command."""
        deleted = self.cluster.checker.deleted
        return [
            p
            for p in self.producers
            if (p.window or p.opening) and not p.stopped and p.gid not in deleted
        ]


def settings_of(rng: random.Random) -> Settings:
    """Draws the shape of a run's cluster."""
    election = 1.0 + rng.random()
    retention = rng.random() < 0.6
    return Settings(
        nodes=5 if rng.random() < 0.12 else 3,
        groups=2 if rng.random() < 0.2 else 1,
        streams=rng.random() < 0.4,
        election_timeout=election,
        heartbeat=election / 3.2,
        checkpoint_entries=rng.choice((8, 20, 60, 1000)),
        tail_bytes=rng.choice((0, 500, 4000, 100_000)),
        retention_bytes=rng.choice((0, 600, 2000, 6000)) if retention else -1,
        retention_check=1.0 + 2.0 * rng.random() if retention else 0.0,
        lease_ms=rng.choice((4000, 10_000)) if rng.random() < 0.15 else 0,
        sync_time=rng.choice((0.001, 0.002, 0.01)),
        metadata=rng.random() < 0.12,
        preferred_leader_delay=rng.choice((NEVER, 1.0, 5.0)),
    )


def _limits_of(rng: random.Random) -> list[tuple[Any, str, int]]:
    """Draws limits so small that a run reaches them: (module, name, value)."""
    limits: list[tuple[Any, str, int]] = []
    if rng.random() < 0.3:  # checkpoints larger than one batch
        limits += [(storage.checkpoints, "INLINE_BYTES", 256)]
        limits += [(storage.checkpoints, "CHUNK_BYTES", 64)]
    if rng.random() < 0.3:  # a follower catches up in many steps
        limits += [(replication, "MAX_MESSAGE_ENTRIES", rng.choice((1, 1, 2, 4)))]
        limits += [(replication, "MAX_INFLIGHT_MESSAGES", rng.choice((1, 2, 8)))]
    if rng.random() < 0.1:
        limits += [(applying, "MAX_APPLY_PER_ADVANCE", 1)]
    return limits


def run_seed(seed: int, *, duration: float = DURATION, verbose: bool = False) -> Result:
    """Runs one seed to its end or to its first violation."""
    rng = random.Random(seed)
    settings = settings_of(rng)
    result = Result(seed)
    limits = _limits_of(rng)
    if seed % 4 == 0:  # by the seed, not by dice: other seeds run as they always did
        settings = replace(settings, checkpoint_node_bytes=SMALL_REPLAY_BYTES)
    if seed % 8 == 3:
        settings = replace(settings, streams=True)
        limits += [(send_queue, "FRAME_BYTES", 1000), (send_queue, "MAX_BULK_BYTES", 20_000)]
    if seed % 8 == 6:
        settings = replace(settings, varied=True)
    if seed % 8 == 7:
        settings = replace(settings, round_cost=ROUND_COSTS[seed // 8 % len(ROUND_COSTS)])
    if seed % 8 == 1:
        settings = replace(settings, metadata=True, releases=True)
    if seed % 3 == 0:  # rounds of several slices, of a few entries each
        limits += [(driver, "SLICE_OPERATIONS", 1 + seed // 3 % 4)]
        limits += [(proposals, "MAX_SLICE_ENTRIES", 1 + seed // 12 % 4)]
    if seed % 3 == 1 and not settings.metadata:
        settings = replace(settings, kafka=True)
        limits += [(sequences, "WRAP_BITS", KAFKA_WRAP_BITS)]
    if seed % 4 == 2 and not settings.metadata:
        settings = replace(settings, compaction=True)
    if seed % 8 == 4 and not (settings.metadata or settings.kafka):
        settings = replace(settings, keyed=True, worker_dies=0.01)
        settings = replace(settings, retention_check=settings.retention_check or 1.5)
        limits += [(passes, "GROUP_BYTES", 800), (reading, "CHUNK_BYTES", 1500)]
        limits += [(reading, "CHUNK_BATCHES", 8)]
    if seed % 7 == 4:  # states that are saved piece by piece
        limits += [(checkpoints, "SLICE_PIECES", 1), (pieces, "PIECE_BYTES", 1 << seed // 7 % 8)]
    cluster = Cluster(settings, rng.getrandbits(64), verbose=verbose)
    if seed % 5 == 1:
        cluster.network.damage = Damage(random.Random(seed), 0.02)
    if seed % 8 == 3:
        cluster.network.rate = SLOW_RATE
    cluster.trace("%s", settings)
    before = [getattr(module, name) for module, name, _ in limits]
    for module, name, value in limits:
        setattr(module, name, value)
    try:
        # Like the node's budget above.
        faults = _drive(
            cluster,
            duration,
            damage_at=DAMAGE_AT if seed % 8 == 5 else (),
            store_lost_at=STORE_LOST_AT if seed % 8 == 2 else (),
        )
        result.injected = faults.injected
    except Exception as error:  # any error is the run's result
        result.failed(error)
        if verbose:
            logging.getLogger(__name__).error("seed %d failed", seed, exc_info=error)
    finally:
        for (module, name, _), value in zip(limits, before, strict=True):
            setattr(module, name, value)
    result.count(cluster)
    return result


def _drive(
    cluster: Cluster, duration: float, damage_at: Iterable[float], store_lost_at: Iterable[float]
) -> Faults:
    clients = Clients(cluster)
    faults = Faults(cluster, clients, until=duration * 0.65, gap=0.6 + 2.0 * cluster.rng.random())
    for node in cluster.nodes.values():
        if cluster.rng.random() < 0.3:
            node.rate = 0.95 + 0.1 * cluster.rng.random()
    operator = Operator(cluster, cluster.rng, until=duration * 0.65, end=duration)
    if cluster.settings.releases:
        operator.start()
    cluster.start()
    clients.start()
    faults.start()
    for at in damage_at:
        cluster.scheduler.at(at, faults.stop_replica)
    for at in store_lost_at:
        cluster.scheduler.at(at, faults.lose_store)
    scheduler = cluster.scheduler
    scheduler.run_until(duration * 0.67)
    cluster.trace("everything heals")
    cluster.heal()
    scheduler.run_until(duration * 0.72)
    before = {gid: model.next_offset for gid, model in cluster.checker.models.items()}
    scheduler.run_until(duration)
    clients.close()
    end = duration
    while end < duration + REST and not (cluster.at_rest() and not clients.unfinished()):
        end += 0.5
        scheduler.run_until(end)
    check_progress(cluster, clients, before)
    cluster.check_end()
    return faults


def check_progress(cluster: Cluster, clients: Clients, before: dict[int, int]) -> None:
    """Checks that all clients got on after healing."""
    if not cluster.converged():
        raise Violation(f"replicas do not converge: {describe(cluster)}")
    for producer in clients.unfinished():
        raise Violation(f"{producer.waits_for()} is never stored")
    for gid, offset in before.items():
        if gid in cluster.checker.deleted:
            continue
        active = [p for p in clients.producers if p.gid == gid and not p.stopped]
        if active and cluster.checker.models[gid].next_offset == offset:
            raise Violation(f"group {gid} makes no progress after healing")


def describe(cluster: Cluster) -> str:
    parts = []
    for node in cluster.nodes.values():
        for gid, machine in node.machines.items():
            replica = machine.group
            assert replica is not None
            parts.append(
                f"node {node.id} group {gid} term {replica.term} leader {replica.leader_id} "
                f"base {replica.journal.base_index} applied {replica.applied_index} "
                f"last {replica.journal.last_index}"
            )
    return "; ".join(parts)


def fingerprint(cluster: Cluster) -> int:
    """A number that is equal for equal runs."""
    value = cluster.scheduler.events
    for gid, log in cluster.checker.logs.items():
        for index, entry in log.items():
            value = zlib.crc32(b"%d %d %d" % (gid, index, entry.term) + entry.data, value)
    return value
