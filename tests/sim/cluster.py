"""A simulated cluster: nodes, network, clients' calls, snapshot transfers, the checks at the end.

Maintenance.look --> transfer --> install, flush, reopen --> done
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from cluster.consensus.message import Snapshot
from cluster.consensus.proposals import Abandoned, Outcome
from cluster.entries import METADATA
from cluster.features import COMPACTION, KAFKA, Finalized
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.maintenance.duties import TransferDone
from cluster.partition.replica import Answer, OffsetOutOfRangeError
from cluster.v1 import metadata_pb2 as mpb
from oncelog.v1.cluster_pb2 import (
    CLEANUP_POLICY_COMPACT,
    CLEANUP_POLICY_COMPACT_DELETE,
    TOPIC_FORMATS_BOTH,
    TopicConfig,
)
from storage.kv import Family
from tests.sim.checker import Checker, Violation
from tests.sim.client import Sent
from tests.sim.clock import EPOCH_MS, Scheduler
from tests.sim.compaction import keyed
from tests.sim.compaction.keyed import KeyedModel
from tests.sim.contacts import Meetings
from tests.sim.kafka.client import kafka_id
from tests.sim.model import Model, payload
from tests.sim.network import Damage, Network
from tests.sim.node import LEASE_MS, Node, Settings
from tests.sim.outcomes import Call, Outcomes
from tests.sim.shadow import Shadow


class Cluster:
    """A cluster: all nodes, the network, the checker, and the clients' calls."""

    def __init__(self, settings: Settings, seed: int, *, verbose: bool = False) -> None:
        self.settings = settings
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.slept = 0.0  # seconds for which all machines stood still
        self.node_ids = list(range(1, settings.nodes + 1))
        self.founding = self.node_ids[: settings.founding or settings.nodes]
        self.groups = list(range(16, 16 + settings.groups))
        everything = [*self.groups, METADATA_GROUP] if settings.metadata else self.groups
        self.topics = _topics(settings, self.node_ids).dump()
        model, self.payload = (KeyedModel, keyed.payload) if settings.keyed else (Model, payload)
        self.checker = Checker(
            everything, settings.nodes // 2 + 1, expiry=settings.lease_ms > 0, model=model
        )
        self.outcomes = Outcomes(self.checker.logs.get(METADATA_GROUP, {}))
        self.shadow = Shadow(self.checker.deleted)
        self.checker.families = (Family.ENTRIES, Family.STATE)
        self.network = Network(
            self.scheduler,
            self.rng,
            self.node_ids,
            streams=settings.streams,
            deliver=lambda receiver, sender, messages: self.nodes[receiver].receive(
                sender, messages
            ),
            on_link=lambda node, peer, up: self.nodes[node].link_changed(peer, up),
            reachable=lambda node: self.nodes[node].alive,
        )
        self.racks: dict[int, str] = {}  # labels of nodes; none: each is its own rack
        self.removed: set[tuple[int, int]] = set()  # nodes, directories that were given up
        self.places: dict[int, int] = {}  # how often each node has moved
        self.meetings = Meetings(self)
        if settings.founding:
            self.network.meetings = self.meetings
        self.nodes = {node_id: Node(self, node_id) for node_id in self.node_ids}
        self.checker.disks = {node_id: node.disk for node_id, node in self.nodes.items()}
        self.client_delay = 0.003
        self.client_loss = self.client_repeats = 0.0
        self.upgraded: set[int] = set()  # nodes that have run the newer release
        self.takes_steps = True  # leaders change the members of their groups by themselves
        self.cut_off: set[int] = set()  # nodes that clients cannot reach
        self.installs = self.resolves = self.crashes = self.reads = 0
        self.verbose = verbose
        self.log: list[str] = []
        self._next_pid = self._next_kafka = 0
        # The metadata group's producers: (time, id, epoch, whether a name holds it).
        self.grants: list[tuple[float, int, int, bool]] = []
        self._next_stream = 0
        self._issued: list[tuple[int, int]] = []  # (issued at, id), both rising

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def trace(self, text: str, *args: Any) -> None:
        """Adds a line to the readable schedule."""
        if self.verbose:
            self.log.append(f"{self.scheduler.now:9.4f}  {text % args}")

    @property
    def true_ms(self) -> int:
        """The time of a wall clock that is right."""
        return EPOCH_MS + int(self.scheduler.now * 1000) + int(self.slept * 1000)

    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    def leader(self, gid: int) -> Node | None:
        """The ready leader of the highest term, if there is one."""
        leading = [
            (group.term, node.id)
            for node in self.live()
            if (group := node.driver.groups.get(gid)) is not None and group.is_ready
        ]
        return self.nodes[max(leading)[1]] if leading else None

    def hand_over(self, gid: int, number: int) -> bool:
        """Has the group's leader hand over to the node; returns whether the node leads."""
        leader = self.leader(gid)
        if leader is None or leader.id == number:
            return leader is not None
        group = leader.driver.groups[gid]
        if not group.is_transferring:
            group.transfer(number)
            leader.driver.touch(gid)
        return False

    def know_all_leaders(self, nodes: Iterable[int], groups: Iterable[int]) -> bool:
        """Tells whether these nodes, where they live, know who leads each of the groups."""
        live = [self.nodes[number] for number in nodes if self.nodes[number].alive]
        for gid in groups:
            leader = self.leader(gid)
            known = {node.running.known_leaders.leader_of(gid)[0] for node in live}
            if leader is None or known - {leader.id}:
                return False
        return True

    # -- clients ------------------------------------------------------------------------

    def call(self, node_id: int, gid: int, calls: list[tuple[Any, Any]], *,
             ordered: bool) -> None:  # fmt: skip
        """Sends batches to a node: in one stream, or each on its own."""
        node = self.nodes[node_id]
        for part in [calls] if ordered else [[one] for one in calls]:
            self._request(node, gid, part)

    def _request(self, node: Node, gid: int, calls: list[tuple[Any, Any]]) -> None:
        rng, after = self.rng, self.scheduler.after
        if node.id in self.cut_off:
            return
        if self.client_loss and rng.random() < self.client_loss:
            calls = calls[: rng.randint(0, len(calls) - 1)]  # a prefix came through
        if not calls:
            return
        after(self.client_delay * (0.2 + rng.random()), node.call, gid, calls)
        if self.client_repeats and rng.random() < self.client_repeats:
            for batch in (reply.batch for _, reply in calls):
                batch.attempts += 1
            after(3 * rng.random(), node.call, gid, calls)

    def answer(self, reply: Any, answer: Answer | None) -> None:
        """Delivers a node's answer, or its broken connection (None)."""
        if answer is not None:
            reply.check(answer)
            if self.client_loss and self.rng.random() < self.client_loss:
                return
            if getattr(reply, "node", 0) in self.cut_off:
                return
        delay = self.client_delay * (0.2 + self.rng.random())
        self.scheduler.after(delay, reply.arrive, answer)

    def demand_unstored(self, gid: int, batch: Sent) -> None:
        """Checks that no log holds a batch if all its answers say so. Raises Violation."""
        if not (batch.is_unstored and batch.payload) or gid in self.checker.deleted:
            return
        logs: list[Iterable[bytes]] = [self.checker.models[gid].batches.values()]
        for node in self.live():
            if (group := node.driver.groups.get(gid)) is not None:
                journal = group.journal
                first = max(journal.base_index, journal.applied_index) + 1
                logs.append([journal.entry(i) for i in range(first, journal.last_index + 1)])
        if any(batch.payload in entry for log in logs for entry in log):
            raise Violation(f"group {gid}: {batch} is in a log, and its answers say that it is not")

    def lease(self) -> int:
        """Leases a producer id that was never used before."""
        self._next_pid += 1
        if self.settings.lease_ms:
            ahead = max(node.wall_skew_ms for node in self.nodes.values())
            now = EPOCH_MS + int(self.scheduler.now * 1000) + max(0, ahead)
            if self._issued:
                now = max(now, self._issued[-1][0])
            self._issued.append((now, self._next_pid))
        named = self.rng.random() < 0.4
        self.grants.append((self.scheduler.now, self._next_pid, 0, named))
        return self._next_pid

    def kafka_lease(self) -> int:
        """Issues an id to a client of Kafka's protocol."""
        self._next_kafka += 1
        return kafka_id(self._next_kafka, "alice")

    def grant(self, pid: int, epoch: int) -> None:
        """Leases an id to a successor, by its name or from a producer that hands it over."""
        named = any(grant[3] for grant in self.grants if grant[1] == pid)
        self.grants.append((self.scheduler.now, pid, epoch, named))

    def open(self, node_id: int, gid: int, pid: int, epoch: int, reply: Any) -> None:
        """Asks a node to open a producer in a partition; the answer may be lost."""
        if node_id not in self.cut_off:
            delay = self.client_delay * (0.2 + self.rng.random())
            self.scheduler.after(delay, self.nodes[node_id].open, gid, pid, epoch, reply)

    def new_stream(self) -> int:
        self._next_stream += 1
        return self._next_stream

    def expired_below(self, now: int) -> int:
        """The expiry watermark at a node's time."""
        if not self.settings.lease_ms:
            return 0
        below = 0
        for issued, pid in self._issued:
            if issued + self.settings.lease_ms >= now:
                break
            below = pid + 1
        return below

    def resolve(self, node_id: int, gid: int, pid: int, epoch: int, sequence: int) -> None:
        """Asks a node whether a sequence is stored, as the service does: confirm, then look."""
        node = self.nodes[node_id]
        if not node.alive or self.scheduler.now < node.paused_until:
            return
        partition = node.partitions.get(gid)
        if partition is None:
            return
        group = partition.group
        assert group is not None
        if not group.is_ready:
            return

        def done(outcome: Outcome) -> None:
            if not isinstance(outcome, Abandoned):
                self.resolves += 1
                found = partition.last_seen.resolve(pid, epoch, sequence)
                self.checker.resolved(gid, pid, epoch, sequence, found)

        group.confirm(done)
        node.driver.touch(gid)

    def placement(self) -> dict[int, list[int]]:
        """The nodes that hold each group, by the newest copy of the metadata."""
        if not self.settings.metadata:
            return dict.fromkeys(self.groups, self.node_ids)
        found = {METADATA_GROUP: self.founding}
        newest = max((node.running.state for node in self.live()),
                     key=lambda state: state.applied_index, default=None)  # fmt: skip
        if newest is not None and newest.membership.own.replicas:
            found = {METADATA_GROUP: list(newest.membership.own.replicas)}
        for topic in newest.topics() if newest is not None else ():
            found |= {one.group_id: list(one.replicas) for one in topic.partitions}
        return found

    def command(self, command: Any, done_with: Callable[[Any], None]) -> None:
        """Proposes a metadata command at the leader, if there is one; `done_with` its result."""
        leader = self.leader(METADATA_GROUP)
        if leader is None or self.scheduler.now < leader.paused_until:
            return
        group = leader.machines[METADATA_GROUP].group
        assert group is not None
        if leader.running.state.membership.given_up(command.join_node):
            return
        command.stamp_ms = leader.running.clocks.now_ms()
        if not leader.running.clocks.agreed:
            return
        # Nodes' settings differ a little, so that the lifetime in force changes with leaders.
        command.lease_lifetime_ms = leader.settings.lease_ms or LEASE_MS - leader.id
        expiry_ms = leader.settings.name_expiry_ms or command.lease_lifetime_ms
        command.producer_name_expiry_ms = expiry_ms

        change, given_up = command.change_node, (0, 0)
        if change.action == mpb.NODE_ACTION_REMOVE:
            given_up = (change.node_id, self.nodes[change.node_id].joining.directory_id)
        elif change.action == mpb.NODE_ACTION_REPLACE and change.directory_id:
            given_up = (change.node_id, change.directory_id)
        if given_up[0]:
            is_new = given_up not in self.removed
            self.removed.add(given_up)  # any node that hears of the outcome

        entry = bytes((METADATA,)) + command.SerializeToString()
        call = Call(leader.id, leader.incarnation, entry)

        def done(outcome: Outcome) -> None:
            self.outcomes.told(call, outcome)
            if not isinstance(outcome, Abandoned):
                result: Any = outcome.result
                if given_up[0] and is_new and mpb.MetadataResult.FromString(result).error:
                    self.removed.discard(given_up)
                done_with(outcome.result)

        self.outcomes.proposes(call)
        group.propose(entry, done, outlives_term=True)
        leader.driver.touch(METADATA_GROUP)

    def read(self, node: Node, gid: int, offset: int) -> int:
        """Reads from `offset` on like a fetch; returns the end of the records it read."""
        partition = node.partitions[gid]
        try:
            found = partition.reading(offset, 600).run()
        except OffsetOutOfRangeError as error:
            if partition.log_start_offset <= offset and partition.group.is_ready:
                raise Violation(f"group {gid}: {offset} cannot be read at its leader") from error
            return error.start
        self.checker.read(gid, offset, [(batch.base_offset, batch.data) for batch in found])
        if not found:
            return offset
        return found[-1].base_offset + int.from_bytes(found[-1].data[4:8], "little")

    # -- snapshots ------------------------------------------------------------------------

    def transfer(self, sender: Node, peer: int, snapshot: Snapshot, done: TransferDone) -> None:
        """Carries a snapshot to a peer; late, twice or not at all."""
        incarnation, ended = sender.incarnation, False

        def end(installed: bool) -> None:
            nonlocal ended
            if not ended and sender.incarnation == incarnation:
                ended = True
                done(installed, "")

        def reply(installed: bool) -> None:
            if self._passes(peer, sender.id):
                self.scheduler.after(self.network.quality.delay, end, installed)

        receiver = self.nodes[peer]
        if isinstance(self.network.damage, Damage):
            snapshot = replace(snapshot, state=self.network.damage.snapshot(snapshot.state))
        what = (sender.id, snapshot.group, snapshot.index, peer)
        self.trace("node %d sends snapshot %d/%d to node %d", *what)
        if receiver.alive and self._passes(sender.id, peer):
            delay = 0.3 * self.rng.random()
            self.scheduler.after(delay, self._arrive_snapshot, receiver, receiver.incarnation,
                                 sender.id, snapshot, reply)  # fmt: skip
            if self.rng.random() < 0.3:  # and once more, overtaken by its own entries
                self.scheduler.after(6 * self.rng.random(), self._arrive_snapshot, receiver,
                                     receiver.incarnation, sender.id, snapshot,
                                     lambda installed: None)  # fmt: skip
        self.scheduler.after(3.0, end, False)

    @staticmethod
    def _arrive_snapshot(receiver: Node, incarnation: int, sender: int, snapshot: Snapshot,
                         reply: Callable[[bool], None]) -> None:  # fmt: skip
        if receiver.incarnation == incarnation:
            receiver.install(sender, snapshot, reply)

    def _passes(self, sender: int, receiver: int) -> bool:
        return not self.network.links[sender, receiver].blocked

    # -- the end ----------------------------------------------------------------------------

    def heal(self) -> None:
        """Ends all faults; dead nodes start again."""
        self.network.heal()
        self.client_loss = self.client_repeats = 0.0
        self.client_delay = 0.003
        self.cut_off.clear()
        for node in self.nodes.values():
            node.paused_until = 0.0
            node.disk.full = node.disk.fail_next_sync = False
            node.disk.power_off_after = 0
            node.sync_time = node.settings.sync_time
            node.wall_skew_ms = 0
            node.volume.mount()
            if not node.alive:
                node.start()

    def converged(self) -> bool:
        """Tells whether all replicas have applied everything, and no others are left."""
        if any(not node.alive for node in self.nodes.values()):
            return False
        placement = self.placement()
        for node in self.nodes.values():
            if set(node.machines) != {gid for gid, held in placement.items() if node.id in held}:
                return False
        for gid, held in placement.items():
            marks = set()
            for node_id in held:
                group = self.nodes[node_id].machines[gid].group
                assert group is not None
                marks.add((group.applied_index, group.journal.last_index))
            if len(marks) > 1 or any(applied != last for applied, last in marks):
                return False
        return self.leaders_known()

    def at_rest(self) -> bool:
        """Tells whether nothing is left to be done or answered."""
        return self.converged() and not any(node.open_calls for node in self.nodes.values())

    def leaders_known(self) -> bool:
        placement = self.placement()
        return set(self.groups) <= set(placement) and all(map(self.leader, placement))

    def check_end(self) -> None:
        """Checks, after healing and rest, that replicas are equal and match the model."""
        placement = self.placement()
        if self.settings.metadata:
            wanted = {METADATA_GROUP: self.node_ids, **self.checker.metadata.placement()}
            if placement != wanted:
                raise Violation(f"the replicas are {placement}, the topics' are {wanted}")
        for gid, held in placement.items():
            for node_id in held if gid != METADATA_GROUP else ():
                self._check_replica(self.nodes[node_id], gid, self.checker.models[gid])
        self.outcomes.check_end({(node.id, node.incarnation) for node in self.live()})
        for node in self.nodes.values():
            if node.open_calls:
                call = next(iter(node.open_calls.values()))
                raise Violation(f"node {node.id} never answered {call}")

    def _check_replica(self, node: Node, gid: int, model: Any) -> None:
        partition = node.partitions[gid]
        assert partition.group is not None
        where = f"node {node.id}, group {gid}"
        if partition.group.failed is not None:
            raise Violation(f"{where} stopped") from partition.group.failed
        if (
            partition.high_watermark != model.next_offset
            or partition.log_start_offset != model.log_start
        ):
            raise Violation(
                f"{where} holds {partition.log_start_offset}..{partition.high_watermark}, "
                f"not {model.log_start}..{model.next_offset}"
            )
        if partition.blanks_below_start != model.hole:
            raise Violation(f"{where} has a hole of {partition.blanks_below_start}: {model.hole}")
        self.shadow.compare_logs(partition.group)
        partition.dump()
        found: list[tuple[int, bytes]] = []
        offset = partition.log_start_offset
        while offset < partition.high_watermark:
            batches = partition.reading(offset, 10_000).run()
            found += [(batch.base_offset, batch.data) for batch in batches]
            offset = found[-1][0] + int.from_bytes(found[-1][1][4:8], "little")
        if found != list(model.payloads()):
            raise Violation(f"{where}: what is read is not what was stored")
        counted, size = partition.machine.stored.stored_bytes, sum(len(data) for _, data in found)
        if counted != size:
            raise Violation(f"{where} counts {counted} bytes and stores {size}")


def _topics(settings: Settings, nodes: list[int]) -> MetadataState:
    """Builds a state with the groups of `settings` as topics of one partition, on all nodes."""
    state = MetadataState()
    named = {KAFKA: settings.kafka, COMPACTION: settings.compaction or settings.keyed}
    features = frozenset(name for name, is_on in named.items() if is_on)
    if features:
        state.tables.finalized = Finalized(2, features)
    commands = [register_node(node) for node in nodes]
    commands += [create_topic(f"t{16 + i}", [nodes], settings) for i in range(settings.groups)]
    for index, command in enumerate(commands, 1):
        result = mpb.MetadataResult.FromString(state.apply(index, command.SerializeToString()))
        assert not result.error, result
    return state


def register_node(node: int, rack: str = "") -> mpb.MetadataCommand:
    register = mpb.RegisterNode(node_id=node, address=f"node{node}:1", directory_id=node, rack=rack)
    return mpb.MetadataCommand(register_node=register)


def create_topic(name: str, placements: list[list[int]], settings: Settings) -> mpb.MetadataCommand:
    return mpb.MetadataCommand(
        create_topic=mpb.CreateTopic(
            name=name,
            placements=[mpb.Placement(replicas=replicas) for replicas in placements],
            config=_config(settings),
        )
    )


def _config(settings: Settings) -> TopicConfig:
    config = topic_config(settings.retention_bytes, settings.retention_ms, settings.kafka)
    if settings.keyed:
        deletes = settings.retention_bytes >= 0 or settings.retention_ms >= 0
        config.cleanup_policy = CLEANUP_POLICY_COMPACT_DELETE if deletes else CLEANUP_POLICY_COMPACT
        config.delete_retention_ms = keyed.DELETE_RETENTION_MS
        config.min_cleanable_dirty_ratio = 0.3
    return config


def topic_config(retention_bytes: int, retention_ms: int = -1, kafka: bool = False) -> TopicConfig:
    """Builds a topic's settings; -1: all is kept; 0: as little as can be set."""
    kept = max(1, retention_bytes) if retention_bytes >= 0 else -1
    formats = TOPIC_FORMATS_BOTH if kafka else None
    return TopicConfig(retention_ms=retention_ms, retention_bytes=kept, formats=formats)
