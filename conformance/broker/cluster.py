"""State of the simulated cluster: topics, partitions, leases, groups. Never lies.

    services --ask--> Cluster --> cluster.metadata, cluster.dedup, services.admission
    steps of a case, lies --> move_leader, advance_time, ...

All nodes share it, and an appended batch is committed at once: only lies add lag and loss. The
verdicts are the nodes' own code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import BatchMeta, Kind, OffsetRule, Verdict, fenced
from cluster.features import PERMISSIONS, QUOTAS, REPLICA_CHANGES, TRANSACTIONS
from cluster.metadata.lease_tokens import proves, sign
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import TopicSettings, TopicState, check_more_partitions
from cluster.partition.group_offsets import OffsetsTable
from cluster.partition.leases import held_flag, lease_verdict
from cluster.partition.types import Answer, Policy
from cluster.services.errors import accepted
from cluster.services.log.batch_checks import begins_chain, refusal
from cluster.services.log.lease_checks import unproven
from cluster.services.log.produce import meta_of
from cluster.transactions.runs import RunTable
from cluster.v1 import metadata_pb2 as meta
from cluster.v1 import transactions_pb2 as tpb
from conformance.broker import payloads
from conformance.broker.members import Members
from conformance.broker.transactions import Transactions
from oncelog import errors
from oncelog.v1 import batch_pb2, cluster_pb2
from oncelog.v1 import log_pb2 as pb

SECRET = bytes(range(32))
FOR_EVER = 2**31 - 1
FEATURES = (PERMISSIONS, QUOTAS, REPLICA_CHANGES, TRANSACTIONS)


def policy_of(settings: TopicSettings) -> Policy:
    return Policy(max_batch_bytes=settings.max_batch_bytes, formats=settings.formats)


class Partition:
    """Partition with its leader, its log, and its memory of producers."""

    def __init__(self, topic: str, number: int, replicas: tuple[int, ...]) -> None:
        self.topic = topic
        self.number = number
        self.replicas = replicas
        self.leader_id = replicas[0]
        self.term = 1
        self.last_seen = LastSeen()
        self.runs = RunTable()
        self.staged: dict[int, list[tuple[batch_pb2.Batch, BatchMeta]]] = {}
        self.log: list[batch_pb2.StoredBatch] = []
        self.log_start = 0
        self.next_offset = 0
        # Node -> its replica's high watermark, for replicas that are behind.
        self.behind: dict[int, int] = {}

    def high_watermark(self, node_id: int) -> int:
        return min(self.next_offset, self.behind.get(node_id, self.next_offset))

    def store(self, batch: batch_pb2.Batch, found: BatchMeta, now_ms: int, pin: bool) -> int:
        """Stores a batch and remembers its producer; returns the base offset."""
        self.last_seen.record(found, self.next_offset, now_ms, pin=pin)
        return self.put(batch, found, now_ms)

    def put(self, batch: batch_pb2.Batch, found: BatchMeta, now_ms: int) -> int:
        """Appends a batch to the log; returns the base offset."""
        base = self.next_offset
        stored = batch_pb2.StoredBatch(
            header=batch.header, payload=batch.payload, base_offset=base, append_time_ms=now_ms
        )
        stored.header.last_sequence, stored.header.prev_sequence = found.last, found.prev
        self.log.append(stored)
        self.next_offset += found.count
        return base

    def holding(self, producer_id: int, epoch: int, sequence: int) -> batch_pb2.StoredBatch | None:
        """Finds the stored batch with that sequence."""
        for stored in reversed(self.log):
            header = stored.header
            if (header.producer_id, header.epoch) == (producer_id, epoch):
                if header.base_sequence <= sequence <= header.last_sequence:
                    return stored
        return None


class Cluster:
    """State of all nodes. `clock_ms`: the wall clock. `lifetime_ms`: of leases."""

    def __init__(self, nodes: int, clock_ms: Callable[[], int], lifetime_ms: int) -> None:
        self.node_ids = range(1, nodes + 1)
        self.addresses: dict[int, str] = {}
        self.metadata = MetadataState(lease_lifetime_ms=lifetime_ms)
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.transactions = Transactions(self)
        self.offsets = OffsetsTable()
        self.offsets_leader = 1
        self.members = Members()
        self._offsets_applied = 0
        self.stopped: set[int] = set()
        self._clock_ms = clock_ms
        self._skew_ms = 0
        self._nonce = 0
        self._news = asyncio.Event()
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

    # --- news ------------------------------------------------------------------------

    def notify(self) -> None:
        """Wakes waiting calls after an append or a change of leader."""
        self._news.set()
        self._news = asyncio.Event()

    @property
    def news(self) -> asyncio.Event:
        """Event of the next change. Take it before you look at the state."""
        return self._news

    # --- nodes and topics ------------------------------------------------------------

    def add_node(self, node_id: int, address: str) -> None:
        self.addresses[node_id] = address
        self.propose(register_node=meta.RegisterNode(node_id=node_id, address=address))

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
            (topic.name, number): state.replicas
            for topic in self.metadata.topics()
            for number, state in enumerate(topic.partitions)
        }
        for key in self.partitions.keys() - placed.keys():
            del self.partitions[key]
        for key, replicas in placed.items():
            if key not in self.partitions:
                self.partitions[key] = Partition(*key, replicas)
        self.transactions.mark()
        self.notify()

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

    def is_proven(self, token: bytes, producer_id: int, epoch: int) -> bool:
        issued = self.metadata.is_issued(producer_id)
        return issued and proves(SECRET, token, producer_id, epoch)

    def _unproven(self, token: bytes, producer_id: int, epoch: int) -> Verdict | None:
        if self.is_proven(token, producer_id, epoch):
            return None
        return unproven(token, producer_id, epoch)

    def _expired_below(self) -> int:
        return self.metadata.expired_below(self.now_ms, self.metadata.lease_lifetime_ms)

    def _lease_verdict(self, partition: Partition, producer_id: int, epoch: int) -> Verdict | None:
        last_seen = partition.last_seen
        below = self._expired_below()
        return lease_verdict(self.metadata, below, last_seen, producer_id, epoch)

    def apply_offsets(self, command: bytes) -> object:
        """Applies an entry of the groups' log; returns the table's answer."""
        self._offsets_applied += 1
        return self.offsets.apply(self._offsets_applied, command)

    # --- batches ---------------------------------------------------------------------

    def append(self, node_id: int, batch: batch_pb2.Batch) -> Answer:
        """Answers a batch by "Order of checks" of docs/protocol.md."""
        header = batch.header
        found = meta_of(header)
        partition = self.partitions.get((header.topic, header.partition))
        leads = partition is not None and partition.leader_id == node_id
        settings = None if partition is None else self.topic(header.topic).settings
        verdict = refusal(
            header,
            found,
            batch.payload,
            known=partition is not None,
            leads=leads,
            policy=None if settings is None else policy_of(settings),
        )
        if verdict is None and begins_chain(found):
            verdict = self._unproven(batch.lease_token, found.producer_id, found.epoch)
        if verdict is not None:
            named = verdict.kind is Kind.NOT_LEADER and partition is not None
            return Answer(verdict, leader_id=partition.leader_id if named and partition else 0)
        assert partition is not None and settings is not None, "else it was refused"
        if header.transaction_id:
            return Answer(self._staged(partition, batch, found), self.now_ms)
        if settings.expected_offsets == OffsetRule.IGNORED:
            found = found._replace(expected_offset=-1)
        verdict = self._judge(partition, found, settings.expected_offsets)
        if verdict.kind is Kind.APPENDED:
            pin = bool(held_flag(self.metadata, found.producer_id))
            partition.store(batch, found, self.now_ms, pin)
            self.notify()
        elif verdict.kind is Kind.DUPLICATE and verdict.base_offset < 0:
            stored = partition.holding(found.producer_id, found.epoch, found.first)
            if stored is not None:
                verdict = verdict._replace(base_offset=stored.base_offset)
        return Answer(verdict, self.now_ms)

    def _staged(self, partition: Partition, batch: batch_pb2.Batch, found: BatchMeta) -> Verdict:
        expired = None
        if partition.runs.run_of(found.producer_id) is None:
            expired = self._lease_verdict(partition, found.producer_id, found.epoch)
        return expired or self.transactions.take(partition, batch, found)

    def _judge(self, partition: Partition, found: BatchMeta, expected: int) -> Verdict:
        verdict = partition.last_seen.check(found, next_offset=partition.next_offset)
        verdict = partition.runs.check_plain(found, verdict)
        if verdict.kind in (Kind.DUPLICATE, Kind.FENCED):
            return verdict
        if expected == OffsetRule.REQUIRED and found.expected_offset < 0:
            text = "expected_offset: missing, and the topic requires it"
            return Verdict(Kind.INVALID_BATCH, message=text)
        return self._lease_verdict(partition, found.producer_id, found.epoch) or verdict

    def open_producer(
        self, node_id: int, topic: str, number: int, lease: tuple[int, int, bytes]
    ) -> Answer:
        """Opens a producer. `lease`: producer id, epoch, token."""
        producer_id, epoch, token = lease
        verdict = self._unproven(token, producer_id, epoch)
        if verdict is not None:
            return Answer(verdict)
        partition = self.partitions.get((topic, number))
        if partition is None:
            return Answer(Verdict(Kind.UNKNOWN_TOPIC_OR_PARTITION))
        if partition.leader_id != node_id:
            return Answer(Verdict(Kind.NOT_LEADER), leader_id=partition.leader_id)
        held = self.metadata.holder(producer_id)
        if held is not None and epoch < held.fence_epoch:
            return Answer(fenced(epoch, held.epoch))
        pin = held is not None
        return Answer(partition.last_seen.open(producer_id, epoch, self.now_ms, pin=pin))

    def resolve(self, node_id: int, ask: pb.ResolveSequenceRequest) -> pb.ResolveSequenceResponse:
        """Resolves a sequence. Raises OncelogError."""
        partition = self.leading(node_id, ask.topic, ask.partition)
        if not self.metadata.is_issued(ask.producer_id):
            raise errors.UnknownProducerError("producer_id: was never issued")
        found = partition.last_seen.resolve(ask.producer_id, ask.epoch, ask.sequence)
        stored = partition.holding(ask.producer_id, ask.epoch, ask.sequence)
        resolution, offset = found.resolution.value, found.offset
        if stored is not None:
            resolution = pb.RESOLUTION_COMMITTED
            offset = stored.base_offset + ask.sequence - stored.header.base_sequence
        elif partition.runs.may_publish(ask.producer_id, ask.epoch, ask.sequence):
            resolution = pb.RESOLUTION_NOT_YET
        elif self._lease_verdict(partition, ask.producer_id, ask.epoch) is not None:
            # A late batch would be refused; batches that retention deleted are unknown.
            forgotten = partition.log_start > 0
            resolution = pb.RESOLUTION_UNSPECIFIED if forgotten else pb.RESOLUTION_NEVER
        known = partition.last_seen.describe(ask.producer_id)
        return pb.ResolveSequenceResponse(
            resolution=resolution,  # type: ignore[arg-type]
            offset=offset,
            last_sequence=-1 if known is None else known.last_sequence,
            current_epoch=-1 if known is None else known.epoch,
        )

    def leading(self, node_id: int, topic: str, number: int) -> Partition:
        """Finds a partition that the node leads.

        Raises UnknownTopicOrPartitionError, NotLeaderError.
        """
        partition = self.partitions.get((topic, number))
        if partition is None:
            text = f"{topic}-{number} does not exist"
            raise errors.UnknownTopicOrPartitionError(text, topic=topic, partition=number)
        if partition.leader_id != node_id:
            raise self.not_leader(partition.leader_id)
        return partition

    def not_leader(self, leader_id: int) -> errors.NotLeaderError:
        address = self.addresses.get(leader_id, "")
        return errors.NotLeaderError("led elsewhere", leader_id=leader_id, leader_address=address)

    # --- actions of cases --------------------------------------------------------------

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Moves a leadership. `to`: 0 for no leader."""
        found = self.partitions[topic, partition]
        found.leader_id = to
        found.term += 1
        self.notify()

    def append_others(
        self, topic: str, partition: int, values: list[str], *, times: int = 1, size: int = 0
    ) -> None:
        """Appends a batch of another client: these values, each padded to `size` bytes."""
        stamp = 1_700_000_000_000_000
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
        answer = self.append(self.partitions[topic, partition].leader_id, batch)
        assert answer.verdict.kind is Kind.APPENDED, answer

    def truncate(self, topic: str, partition: int, start: int) -> None:
        """Deletes batches below `start`, as retention does."""
        found = self.partitions[topic, partition]
        found.log_start = start
        found.log = [b for b in found.log if b.base_offset + b.header.record_count > start]

    def lag(self, topic: str, partition: int, node: int, offset: int) -> None:
        """Holds the node's replica back at `offset`; -1: level again."""
        behind = self.partitions[topic, partition].behind
        behind.pop(node, None)
        if offset >= 0:
            behind[node] = offset
        self.notify()

    def advance_time(self, ms: int) -> None:
        """Moves the clock forward, so that leases end."""
        self._skew_ms += ms

    def forget_producers(self, topic: str, partition: int) -> None:
        """Forgets all producers of the partition, as retention of producers does."""
        self.partitions[topic, partition].last_seen = LastSeen()

    def take_over(self, name: str, topic: str, partition: int) -> None:
        """Leases the name for another instance, and opens the partition."""
        producer_id, epoch = self.lease_elsewhere(name)
        lease = (producer_id, epoch, self.token(producer_id, epoch))
        leader = self.partitions[topic, partition].leader_id
        answer = self.open_producer(leader, topic, partition, lease)
        assert answer.verdict.kind is Kind.APPENDED, answer

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
        self.members.break_streams()

    def assign_member(self, epoch: int, owns: list[Any], revoke: Sequence[Any] = ()) -> None:
        """Tells the group's members their partitions, and the partitions to give back."""
        self.members.assign(epoch, owns, revoke)

    def fence_member(self, reason: str) -> None:
        self.members.fence(reason)
