"""State of the simulated cluster: metadata, partitions, members. Never lies.

    services of the nodes --ask--> Cluster --> cluster.metadata, PartitionLog
    steps of a case, lies --> move_leader, advance_time, ...

All nodes share it, and each entry is committed at once: only lies add lag and loss. Verdicts and
offsets are the nodes' own: each partition has real replicas (`replicas.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cluster.dedup.verdict import Kind
from cluster.features import (
    COMPACTION,
    KAFKA,
    PERMISSIONS,
    PLACES,
    QUOTAS,
    REPLICA_CHANGES,
    TRANSACTIONS,
)
from cluster.metadata.lease_tokens import sign
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import (
    OFFSETS_TOPIC,
    TopicSettings,
    TopicState,
    check_more_partitions,
)
from cluster.partition.replica import Policy
from cluster.partition.types import NodeView
from cluster.services.errors import accepted
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import transactions_pb2 as tpb
from conformance.broker import payloads
from conformance.broker.members import Members
from conformance.broker.replicas import PartitionLog
from conformance.broker.transactions import Transactions
from oncelog import errors
from oncelog.v1 import cluster_pb2

SECRET = bytes(range(32))
FOR_EVER = 2**31 - 1
FEATURES = (COMPACTION, PERMISSIONS, QUOTAS, REPLICA_CHANGES, TRANSACTIONS, KAFKA, PLACES)


class Cluster:
    """State of all nodes.

    `clock_ms`: the wall clock. `lifetime_ms`: of leases. `racks`: the label of each node, if any.
    """

    def __init__(
        self,
        nodes: int,
        clock_ms: Callable[[], int],
        lifetime_ms: int,
        racks: Sequence[str] = (),
    ) -> None:
        self.node_ids = range(1, nodes + 1)
        self._racks = dict(zip(self.node_ids, racks, strict=False))
        self.addresses: dict[int, str] = {}
        self.metadata = MetadataState(lease_lifetime_ms=lifetime_ms)
        self.partitions: dict[tuple[str, int], PartitionLog] = {}
        self.transactions = Transactions(self)
        self.offsets_leader = 1
        self.members = Members()
        self.stopped: set[int] = set()
        self._clock_ms = clock_ms
        self._skew_ms = 0
        self._nonce = 0
        self._view = NodeView(
            lambda: self.now_ms,
            touch=lambda: None,
            storage_full=lambda: False,
            clock_agreed=lambda: True,
            features=self.metadata.features,
        )
        self.propose(create_lease_secret=meta.CreateLeaseSecret(secret=SECRET))
        upgrade = meta.FinalizeUpgrade(version=2, features=FEATURES)
        self.propose(finalize_upgrade=upgrade)

    @property
    def now_ms(self) -> int:
        return self._clock_ms() + self._skew_ms

    def propose(self, **command: Any) -> meta.MetadataResult:
        """Applies a metadata command. Raises OncelogError if it is refused."""
        return accepted(self.apply(**command))

    def apply(self, **command: Any) -> meta.MetadataResult:
        """Applies a metadata command; a refusal is in the result."""
        packed = meta.MetadataCommand(
            stamp_ms=self.now_ms,
            lease_lifetime_ms=self.metadata.lease_lifetime_ms,
            producer_name_expiry_ms=FOR_EVER,
            **command,
        ).SerializeToString()
        upgrade = "finalize_upgrade" in command
        result = self.metadata.apply(self.metadata.applied_index + 1, packed, upgrade=upgrade)
        return meta.MetadataResult.FromString(result)

    # --- nodes and topics ------------------------------------------------------------

    def add_node(self, node_id: int, address: str) -> None:
        self.addresses[node_id] = address
        rack = self._racks.get(node_id, "")
        self.propose(register_node=meta.RegisterNode(node_id=node_id, address=address, rack=rack))

    def create_topic(
        self, name: str, partitions: int = 1, config: cluster_pb2.TopicConfig | None = None
    ) -> TopicState:
        """Creates a topic; node n leads partition n. Raises OncelogError."""
        placements = [meta.Placement(replicas=self.place(n)) for n in range(partitions)]
        command = meta.CreateTopic(name=name, placements=placements, config=config)
        self.propose(create_topic=command)
        self.follow()
        return self.topic(name)

    def place(self, number: int) -> list[int]:
        """Nodes of the partition with this number, the leader first."""
        nodes = list(self.node_ids)
        return nodes[number % len(nodes) :] + nodes[: number % len(nodes)]

    def follow(self) -> None:
        """Opens and closes partitions, and ends transactions, as the metadata has it."""
        placed = {
            (topic.name, number): (topic.settings, state)
            for topic in self.metadata.topics()
            for number, state in enumerate(topic.partitions)
        }
        for key, log in list(self.partitions.items()):
            if key not in placed or placed[key][1].group_id != log.group_id:
                self.partitions.pop(key).close()
        for key, (settings, state) in placed.items():
            if key not in self.partitions:
                log = PartitionLog(
                    *key, state.group_id, state.replicas, self._policy(settings), self._view
                )
                self.partitions[key] = log
                if key[0] == OFFSETS_TOPIC:
                    log.lead(self.offsets_leader)
        self.transactions.mark()

    def _policy(self, settings: TopicSettings) -> Policy:
        metadata = self.metadata
        lifetime = metadata.lease_lifetime_ms
        return Policy(
            max_batch_bytes=settings.max_batch_bytes,
            expected_offsets=settings.expected_offsets,
            formats=settings.formats,
            lease_lifetime_ms=lifetime,
            expired_below=lambda: metadata.expired_below(self.now_ms, lifetime),
            names=metadata,
        )

    def log_of(self, group_id: int) -> PartitionLog | None:
        """Log of a partition by its group."""
        place = self.metadata.partition(group_id)
        return None if place is None else self.partitions.get((place[0].name, place[1]))

    def grow_topic(self, name: str, partitions: int) -> TopicState:
        """Grows the topic to this many partitions. Raises OncelogError, Rejected."""
        topic = self.topic(name)
        known = len(topic.partitions)
        check_more_partitions(known, partitions)
        command = meta.AddPartitions(
            name=name,
            topic_id=topic.topic_id,
            expected_partitions=known,
            placements=[meta.Placement(replicas=self.place(n)) for n in range(known, partitions)],
        )
        self.propose(add_partitions=command)
        self.follow()
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic. Raises OncelogError."""
        self.propose(delete_topic=meta.DeleteTopic(name=name))
        self.follow()

    def topic(self, name: str) -> TopicState:
        topic = self.metadata.topic(name)
        if topic is None:
            raise errors.UnknownTopicOrPartitionError(f"topic {name!r} does not exist", topic=name)
        return topic

    # --- leases ----------------------------------------------------------------------

    def new_id(self) -> int:
        """Returns a fresh producer id."""
        ids = meta.AllocateProducerIds(node_id=1, count=1)
        return self.propose(allocate_producer_ids=ids).first_producer_id

    def token(self, producer_id: int, epoch: int) -> bytes:
        """Returns the proof of a lease that begins now."""
        end = self.now_ms + self.metadata.lease_lifetime_ms
        return sign(SECRET, producer_id, epoch, end)

    def not_leader(self, leader_id: int) -> errors.NotLeaderError:
        address = self.addresses.get(leader_id, "")
        return errors.NotLeaderError("led elsewhere", leader_id=leader_id, leader_address=address)

    # --- actions of cases --------------------------------------------------------------

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Moves a leadership. `to`: 0 for no leader."""
        self.partitions[topic, partition].lead(to)

    def append_others(
        self, topic: str, partition: int, values: list[str], *, times: int = 1, size: int = 0
    ) -> None:
        """Appends a batch of another client: these values, each padded to `size` bytes."""
        stamp = payloads.OTHERS_US
        data = [value.encode().ljust(size, b".") for value in values]
        for _ in range(times):
            self.append_payload(topic, partition, payloads.pack(data, stamp), timestamp_us=stamp)

    def append_payload(
        self,
        topic: str,
        partition: int,
        payload: bytes,
        *,
        timestamp_us: int,
        codec: int = 0,
        count: int = 0,
    ) -> None:
        """Appends a batch of another client; `count`: its records, if a codec hides them."""
        batch = payloads.batch(topic, partition, payload, timestamp_us=timestamp_us, codec=codec)
        if count:
            batch.header.record_count = count
        answer = self.partitions[topic, partition].append(batch)
        assert answer.verdict.kind is Kind.APPENDED, answer

    def truncate(self, topic: str, partition: int, start: int) -> None:
        """Deletes batches below `start`, as retention does."""
        self.partitions[topic, partition].start_at(start)

    def carry(
        self, topic: str, partition: int, offset: int, records: list[list[str | None]]
    ) -> None:
        """Replaces whole batches, as compaction does. `records`: pairs of key and value."""
        keys, values = (
            [None if pair[n] is None else str(pair[n]).encode() for pair in records] for n in (0, 1)
        )
        payload = payloads.pack(values, payloads.OTHERS_US, keys)
        records_end = max(
            (n for n, pair in enumerate(records, 1) if pair != [None, None]), default=0
        )
        blanks = len(records) - records_end
        self.partitions[topic, partition].carry(offset, len(records), payload, blanks)

    def lag(self, topic: str, partition: int, node: int, offset: int) -> None:
        """Holds the node's replica back at `offset`, or at the batch before; -1: level again."""
        self.partitions[topic, partition].hold(node, offset)

    def advance_time(self, ms: int) -> None:
        """Moves the clock forward, so that leases end."""
        self._skew_ms += ms

    def forget_producers(self, topic: str, partition: int) -> None:
        """Forgets all producers of the partition, as retention of producers does."""
        self.partitions[topic, partition].forget_producers()

    def take_over(self, name: str, topic: str, partition: int) -> None:
        """Leases the name for another instance, and opens the partition."""
        producer_id, epoch = self.lease_elsewhere(name)
        leader = self.partitions[topic, partition].leader
        leader.open_producer(producer_id, epoch, lambda answer: None)

    def lease_elsewhere(self, name: str) -> tuple[int, int]:
        """Leases the name for another instance, and opens nothing yet."""
        self._nonce += 1
        result = self.propose(lease_name=meta.LeaseName(name=name, nonce=self._nonce))
        self.transactions.mark()  # the name's open transaction is aborted
        return result.producer_id, result.epoch

    def begin_elsewhere(self, name: str) -> None:
        """Begins a transaction of the instance that holds the name."""
        held = self.metadata.name(name)
        assert held is not None, "somebody has leased it"
        begin = tpb.BeginTransaction(
            producer_name=name,
            producer_id=held.producer_id,
            epoch=held.epoch,
            nonce=1,
            idle_ms=60_000,
            total_ms=60_000,
        )
        self.propose(transaction=tpb.TransactionCommand(begin=begin))

    def hold_markers(self) -> None:
        """Holds markers: outcomes decided from now on take effect at `write_markers`."""
        self.transactions.are_markers_held = True

    def write_markers(self) -> None:
        self.transactions.are_markers_held = False
        self.transactions.mark()

    def abort_transaction(self, transaction: int) -> None:
        """Aborts a transaction as an operator does."""
        self.transactions.abort(transaction)

    def begin_batch(self, sink: str, query: str, run: str, batch: int) -> None:
        """Begins a batch of a new run of another query."""
        draw = tpb.TransactionCommand(draw_ticket=tpb.DrawTicket(sink=sink))
        ticket = self.propose(transaction=draw).sink.ticket
        begin = tpb.BeginBatch(
            sink=sink, query=query, run=run, ticket=ticket, batch=batch, total_ms=3600_000
        )
        self.propose(transaction=tpb.TransactionCommand(begin_batch=begin))

    def recreate_topic(self, name: str, partitions: int = 1) -> None:
        self.delete_topic(name)
        self.create_topic(name, partitions)

    def move_offsets(self, to: int) -> None:
        """Moves the groups' offsets to another node."""
        self.offsets_leader = to
        for (topic, _), log in self.partitions.items():
            if topic == OFFSETS_TOPIC:
                log.lead(to)
        self.members.break_streams()

    def assign_member(self, epoch: int, owns: list[Any], revoke: Sequence[Any] = ()) -> None:
        """Tells the group's members their partitions, and the partitions to give back."""
        self.members.assign(epoch, owns, revoke)

    def fence_member(self, reason: str) -> None:
        self.members.fence(reason)
