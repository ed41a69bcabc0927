"""Random commands over the whole metadata, most of which are accepted: for tests of its state.

The universe is small, so that commands meet each other's results: a few nodes, topics, names,
sinks. Each command reads the versions, owners and open transactions it needs from the state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from cluster.features import FEATURES, THIS_RELEASE
from cluster.metadata import settings as cluster_settings
from cluster.metadata import upgrade
from cluster.metadata.producer_names import ProducerNames
from cluster.metadata.repairs import marked_ms
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import PartitionState
from cluster.security.permissions import KINDS, OPERATIONS
from cluster.security.quotas import NAMES as QUOTAS
from cluster.transactions import coordinator, sinks
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import TransactionState
from cluster.v1 import metadata_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb
from oncelog.v1 import cluster_pb2 as cpb
from oncelog.v1 import security_pb2 as spb

NODES, TOPICS, PRODUCERS = (1, 2, 3, 4), ("t", "u", "__offsets"), ("p", "q", "r")
SINKS, QUERIES, JOBS = ("s", "w"), ("x", "y", "z"), ("j", "k")
LIFETIME = 2000  # leases; names live twice as long. Commands come up to 600 ms apart.
# (module or class, attribute, value) for limits that would take thousands of commands.
SMALL_LIMITS: tuple[tuple[Any, str, Any], ...] = (
    (sinks, "MAX_NAMELESS", 2),
    (sinks, "MAX_RANGES", 3),
    (sinks, "MAX_QUERIES", 2),
    (sinks, "MAX_SINKS", 3),
    (ProducerNames.__init__, "__defaults__", (2,)),
    (coordinator, "MAX_PARTITIONS", 3),
)

What = tuple[str, Any]  # a field of MetadataCommand, and its message


class Walk:
    """Draws one command after the other. `state` is read; the caller applies the commands."""

    def __init__(self, seed: int, state: MetadataState) -> None:
        self.rng, self.state, self.now_ms = random.Random(seed), state, 1_000_000
        self._nonce = self._job = 0
        self._draws: tuple[Callable[[], What], ...] = (
            self._node, self._node_change, self._join, self._topic, self._topic, self._alter,
            self._move, self._report, self._repair, self._ids, self._name, self._name,
            self._setting, self._rules, self._quota,
        )  # fmt: skip
        self._about_transactions: tuple[Callable[[], Any], ...] = (
            self._begin, self._begin, self._register, self._commit, self._commit, self._abort,
            self._markers, self._markers, self._ticket, self._batch, self._batch, self._nameless,
            self._nameless, self._reset,
        )  # fmt: skip

    def beginning(self) -> Iterator[bytes]:
        """Nodes, and everything on."""
        for node in NODES[:3]:
            yield self._command("register_node", pb.RegisterNode(node_id=node, address="h:1"))
        finalized = pb.FinalizeUpgrade(version=2, features=sorted(FEATURES))
        releases = dict.fromkeys(NODES[:3], THIS_RELEASE)
        finalized.nodes.extend(upgrade.node_releases(releases))
        yield self._command("finalize_upgrade", finalized)

    def next(self) -> bytes:
        """The next command."""
        if self.rng.random() < 0.4:
            which, message = self.rng.choice(self._draws)()
        else:
            which, message = "transaction", self.rng.choice(self._about_transactions)()
        return self._command(which, message)

    def _command(self, which: str, message: Any) -> bytes:
        self.now_ms += self.rng.choice((0, 1, 50, 600))
        command = pb.MetadataCommand(
            stamp_ms=self.now_ms - self.rng.choice((0, 0, 700)),
            lease_lifetime_ms=LIFETIME,
            producer_name_expiry_ms=2 * LIFETIME,
            **{which: message},
        )
        return command.SerializeToString()

    # -- nodes, topics ------------------------------------------------------------------

    def _some(self, among: Any, low: int = 1, high: int = 3) -> list[Any]:
        among = list(among)
        return self.rng.sample(among, min(len(among), self.rng.randint(low, high)))

    def _node(self) -> What:
        rng, node = self.rng, self.rng.choice(NODES)
        known = self.state.membership.registration_of(node)
        return "register_node", pb.RegisterNode(
            node_id=node,
            address=rng.choice(("h:1", "i:1")),
            directory_id=max(0, self.state.directory_of(node)) or rng.choice((0, node)),
            registration=rng.randrange(4),
            known_registration=known.id if known else 0,
            incarnation=rng.randrange(3),
            kafka_address=rng.choice(("", "h:9", "i:9")),
            rack=rng.choice(("", "a", "b")),
            machine=rng.choice(("", "", "m")),
        )

    def _node_change(self) -> What:
        if self.rng.random() < 0.2:
            expected = self.rng.choice((0, self.state.membership.layout_version))
            return "change_balance", pb.ChangeBalance(
                balancing=self.rng.random() < 0.5, expected_layout=expected
            )
        node = self.rng.choice(NODES)
        return "change_node", pb.ChangeNode(
            node_id=node,
            action=pb.NodeAction.Name(self.rng.choice(pb.NodeAction.values()[1:])),
            directory_id=max(0, self.state.directory_of(node)),
        )

    def _join(self) -> What:
        node = self.rng.choice([*self.state.membership.expected] or NODES)
        return "join_node", pb.JoinNode(
            node_id=node,
            directory_id=self.rng.choice((node, node + 10, node + 20)),
            address="j:1",
            peer_address="j:2",
        )

    def _topic(self) -> What:
        rng, name = self.rng, self.rng.choice(TOPICS)
        topic, holders = self.state.topic(name), self.state.membership.holders()
        placements = [pb.Placement(replicas=self._some(holders)) for _ in range(rng.randint(1, 2))]
        if topic is None:
            config = cpb.TopicConfig(retention_ms=rng.choice((-1, 1000)))
            return "create_topic", pb.CreateTopic(name=name, placements=placements, config=config)
        if rng.random() < 0.3:
            return "delete_topic", pb.DeleteTopic(name=name)
        return "add_partitions", pb.AddPartitions(
            name=name,
            topic_id=topic.topic_id,
            expected_partitions=len(topic.partitions),
            placements=placements,
        )

    def _alter(self) -> What:
        config = cpb.TopicConfig(
            retention_ms=self.rng.choice((-1, 5000)), expected_offsets=cpb.EXPECTED_OFFSETS_IGNORED
        )
        return "alter_topic", pb.AlterTopic(
            name=self.rng.choice(TOPICS),
            config=config,
            set_expected_offsets=self.rng.random() < 0.5,
        )

    def _partition(self) -> tuple[str, PartitionState]:
        records = [(topic.name, one) for topic in self.state.topics() for one in topic.partitions]
        return self.rng.choice(records or [("", PartitionState(0, (1,)))])

    def _move(self) -> What:
        rng, (name, record) = self.rng, self._partition()
        move = pb.SetReplicas(
            group_id=record.group_id,
            replicas=self._some({*self.state.membership.holders(), *record.replicas}),
            expected_version=record.version,
            for_balance=rng.random() < 0.3,
        )
        topic = self.state.topic(name)
        if topic is None or rng.random() < 0.7:
            return "set_replicas", move
        return "set_topic_replicas", pb.SetTopicReplicas(
            name=name, topic_id=topic.topic_id, partitions=[move]
        )

    def _report(self) -> What:
        rng, (_, record) = self.rng, self._partition()
        if rng.random() < 0.2:
            record = self.state.membership.own
        wanted = record.placed or NODES[:3]
        voters = list(wanted) if rng.random() < 0.6 else self._some(NODES)
        learners = [node for node in self._some(NODES, 0, 1) if node not in voters]
        members = [*voters, *learners]
        kept = {node: record.instance_of(node) for node in members if node in record.replicas}
        return "report_replicas", pb.ReportReplicas(
            group_id=record.group_id,
            version=record.version + rng.choice((0, 1)),
            index=rng.randrange(1, 100),
            index_term=1,
            voters=voters,
            learners=learners,
            instances=[kept.get(node, rng.randrange(3)) for node in members],
        )

    def _repair(self) -> What:
        _, record = self._partition()
        node = self.rng.choice(record.replicas)
        return "repair_replica", pb.RepairReplica(
            group_id=record.group_id,
            node_id=node,
            instance=record.instance_of(node),
            sound=self.rng.random() < 0.5,
            marked_ms=self.rng.choice((0, marked_ms(record, node))),
        )

    # -- producers, settings, rules -------------------------------------------------------

    def _ids(self) -> What:
        if self.rng.random() < 0.2:
            return "create_lease_secret", pb.CreateLeaseSecret(secret=b"k" * 32)
        return "allocate_producer_ids", pb.AllocateProducerIds(node_id=1, count=3)

    def _name(self) -> What:
        name = self.rng.choice(PRODUCERS)
        held = self.state.name(name)
        self._nonce += self.rng.randrange(2)
        lease = pb.LeaseName(name=name, nonce=self._nonce, fence_only=self.rng.random() < 0.2)
        if held is not None and self.rng.random() < 0.5:
            lease.held_producer_id, lease.held_epoch = held.producer_id, held.epoch
        if name == PRODUCERS[0] and not lease.fence_only:  # of Kafka's protocol
            lease.transaction_timeout_ms = self.rng.choice((1000, 5000))
        return "lease_name", lease

    def _setting(self) -> What:
        lifetime, expiry = cluster_settings.LEASE_LIFETIME, cluster_settings.NAME_EXPIRY
        values = {lifetime: LIFETIME, expiry: 2 * LIFETIME}
        values |= {cluster_settings.MAX_BATCH_BYTES: 4096, cluster_settings.LEARNER_RATE: 0}
        if self.rng.random() < 0.5:
            name = self.rng.choice([*values])
            setting = pb.ClusterSetting(name=name, value=values[name] + self.rng.randrange(-9, 9))
            return "set_cluster_setting", pb.SetClusterSetting(setting=setting)
        settings = [pb.ClusterSetting(name=name, value=value) for name, value in values.items()]
        return "found_cluster_settings", pb.FoundClusterSettings(settings=settings)

    def _rules(self) -> What:
        rng = self.rng
        rules = [
            spb.PermissionRule(
                principal=rng.choice(("*", "User:a")),
                kind=rng.choice(KINDS),
                name=rng.choice(("*", "t")),
                operations=self._some(OPERATIONS),
                deny=rng.random() < 0.3,
            )
            for _ in range(2)
        ]
        return "alter_permissions", pb.AlterPermissions(add=rules[:1], remove=rules[1:])

    def _quota(self) -> What:
        rng = self.rng
        quota = spb.Quota(
            principal=rng.choice(("*", "User:a")), name=rng.choice(QUOTAS), value=rng.randint(1, 9)
        )
        key = spb.QuotaKey(principal=rng.choice(("*", "User:a")), name=rng.choice(QUOTAS))
        return "alter_quotas", pb.AlterQuotas(set=[quota], remove=[key])

    # -- transactions -----------------------------------------------------------------------

    def _groups(self) -> list[int]:
        return [one.group_id for topic in self.state.topics() for one in topic.partitions]

    def _transaction(self) -> TransactionRow | None:
        rows = [*self.state.coordinator.unfinished()]
        return self.rng.choice(rows) if rows else None

    def _begin_of(self, name: str) -> tpb.BeginTransaction:
        held = self.state.name(name)
        self._nonce += self.rng.randrange(2)
        return tpb.BeginTransaction(
            producer_name=name,
            producer_id=held.producer_id if held else 1,
            epoch=held.epoch if held else 0,
            nonce=self._nonce,
            idle_ms=1000,
            total_ms=2000,
            groups=self._some(self._groups(), 0, 2),
            kafka=held is not None and held.transaction_timeout_ms > 0,
        )

    def _begin(self) -> Any:
        return tpb.TransactionCommand(begin=self._begin_of(self.rng.choice(PRODUCERS)))

    def _register(self) -> Any:
        row = self._transaction()
        asked = tpb.RegisterTransaction(
            transaction_id=row.transaction_id if row else 1, groups=self._some(self._groups(), 0, 2)
        )
        return tpb.TransactionCommand(register=asked)

    def _commit(self) -> Any:
        row = self._transaction()
        if row is None:
            return self._begin()
        producer = row.holder.producer_id or self.rng.randint(1, 3)
        expected = [
            tpb.ExpectedRun(group_id=group, producer_id=producer, records=2, last_sequence=1)
            for group in row.parts
        ]
        commit = tpb.CommitTransaction(
            transaction_id=row.transaction_id,
            producer_id=row.holder.producer_id,
            epoch=row.holder.epoch,
            expected=expected,
            checked=len(row.parts),
            digest=self.rng.randrange(3),
        )
        if self.rng.random() < 0.5:
            commit.next.CopyFrom(self._begin_of(row.owner))
        return tpb.TransactionCommand(commit=commit)

    def _abort(self) -> Any:
        row = self._transaction()
        abort = tpb.AbortTransaction(
            transaction_id=row.transaction_id if row else 1, reason="expired"
        )
        if row is not None and self.rng.random() < 0.5:
            abort.producer_id, abort.epoch = row.holder
            abort.reason = "owner"
            abort.kafka = True
        return tpb.TransactionCommand(abort=abort)

    def _markers(self) -> Any:
        decided = [row for row in self.state.coordinator.decided() if self.rng.random() < 0.5]
        parts = [
            tpb.MarkedParts(
                transaction_id=row.transaction_id,
                parts=[
                    pb_part(group, committed=row.state is TransactionState.COMMITTING)
                    for group in self._some(row.pending())
                ],
            )
            for row in decided
        ]
        return tpb.TransactionCommand(markers_done=tpb.MarkersDone(transactions=parts))

    def _ticket(self) -> Any:
        jobs = self.rng.random() < 0.5
        sink = self.rng.choice(JOBS if jobs else SINKS)
        return tpb.TransactionCommand(draw_ticket=tpb.DrawTicket(sink=sink, jobs=jobs))

    def _batch(self) -> Any:
        rng, jobs = self.rng, self.rng.random() < 0.5
        key = rng.choice(JOBS if jobs else SINKS)
        sink = self.state.coordinator.sinks.get(key)
        ticket = 1 if sink is None else max(1, sink.next_ticket - rng.randint(0, 2))
        batch = 0 if sink is None else sink.committed_batch + rng.choice((0, 1, 1, 1, 2))
        return tpb.TransactionCommand(
            begin_batch=tpb.BeginBatch(
                sink=key,
                jobs=jobs,
                query="" if jobs else rng.choice(QUERIES),
                run=f"run {ticket}",
                ticket=ticket,
                batch=max(0, batch) if not jobs else rng.randrange(12),
                total_ms=2000,
            )
        )

    def _nameless(self) -> Any:
        """One batch job that nobody runs again: begun, or committed without a partition."""
        open_rows = [
            row for row in self.state.coordinator.unfinished() if row.sink and not row.parts
        ]
        if open_rows and self.rng.random() < 0.5:
            row = self.rng.choice(open_rows)
            return tpb.TransactionCommand(
                commit=tpb.CommitTransaction(transaction_id=row.transaction_id)
            )
        self._job += 1
        return tpb.TransactionCommand(
            begin_batch=tpb.BeginBatch(sink=f"job {self._job}", jobs=True, batch=0, total_ms=2000)
        )

    def _reset(self) -> Any:
        sink = self.rng.choice((*SINKS, *JOBS))
        return tpb.TransactionCommand(reset_sink=tpb.ResetSink(sink=sink))


def pb_part(group: int, *, committed: bool) -> tpb.PartRecord:
    run = tpb.PublishedRun(producer_id=1, last_sequence=1, base_offset=3, records=2)
    return tpb.PartRecord(group_id=group, done=True, runs=[run] if committed else [])
