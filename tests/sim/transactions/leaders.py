"""A group's leader with its node's own wiring: others' calls, and its own.

    Call --> PartitionLeader --> Partition, AddedPartitions --propose--> metadata
             MetadataLeader --> Decisions, Transactions, Markers --Request--> PartitionLeader

A leader stands for a node of its own, and lives one term: a deposed leader's node stops, and its
callers hear nothing. The wiring is the product's; here is only the way to it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

from cluster.consensus.proposals import Abandoned, Outcome
from cluster.dedup.verdict import BatchMeta, Kind, ResolutionKind, Verdict
from cluster.entries import KAFKA_V2
from cluster.entries import METADATA as METADATA_ENTRY
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.sent import Sent
from cluster.kafka.staged import StagedBatch
from cluster.metadata.settings import LEASE_LIFETIME, NAME_EXPIRY
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import Rejected
from cluster.node.metadata.proposer import MetadataProposer
from cluster.node.tasks import Tasks
from cluster.node.transactions.transactions import Transactions
from cluster.partition.replica import Answer, AppendRequest, Partition
from cluster.services.log.added_partitions import AddedPartitions
from cluster.services.log.lease_checks import Leases
from cluster.services.newest_metadata import NewestMetadata
from cluster.services.outcomes import called_back, confirm, one_answer
from cluster.services.transactions.commit import Decisions
from cluster.transactions.types import Expected, Holder, Refused
from cluster.transport.calls import PeerCallError
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb
from oncelog.errors import OncelogError
from tests.sim.transactions.commands import IDLE_MS as TIMEOUT_MS
from tests.sim.transactions.commands import Asked, answer_of, begin_record, command_of
from tests.sim.transactions.world import GONE, LOST, METADATA, Call, Group, Reply, World

NEVER_MS = 10**9
SETTINGS = {LEASE_LIFETIME: 0, NAME_EXPIRY: 0}  # those of MetadataState hold


class Link:
    """The way from a node to a group's leader."""

    up = True

    def __init__(self, world: World, peer: int) -> None:
        self._world, self.peer, self.version = world, peer, 99

    async def ask(self, request: pb.Request) -> pb.Response:
        which = request.WhichOneof("what")
        assert which is not None
        answered: asyncio.Future[Any]
        call = Call(self.peer, which, {"request": getattr(request, which)})
        answered, done = one_answer()
        self._world.call(call, done)
        answer = await answered
        if answer is LOST or answer == GONE:
            raise PeerCallError(f"the leader of group {self.peer} does not answer: {answer}")
        return cast(pb.Response, answer)


def accepted(world: World, node: int) -> Sent:
    """Returns a client's new connection to a group's leader."""
    return Sent(world.groups[node].leader.metadata.coordinator.next_id)


class Links(dict[int, Link]):
    """A link to each group's leader."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def get(self, peer: int, default: Any = None) -> Link:
        return Link(self._world, peer)


class Following:
    """A follower's copy of the metadata: of any age, until somebody waits for it."""

    is_ready, leader_id = False, METADATA

    def __init__(self, group: Group, replica: int) -> None:
        self._group, self._replica = group, replica

    @property
    def applied_index(self) -> int:
        self._group.follow(self._replica)
        return self._group.applied[self._replica]


class Leader:
    """The node, with the parts that every node has."""

    def __init__(self, group: Group) -> None:
        self.group, self.world, self.alive = group, group.world, True
        self._work: set[asyncio.Task[Any]] = set()
        self._context = self.world.loop.context(self._work)
        config: Any = SimpleNamespace(
            node_id=group.number,
            request_timeout_ms=NEVER_MS,
            kafka_max_transaction_timeout_ms=TIMEOUT_MS,
        )
        partitions = {} if group.number == METADATA else {group.number: group.machine}
        of = self.world.groups.get(METADATA, group)
        replica = of.lead if of is group else group.number % len(of.machines)
        self.metadata: MetadataState = of.machines[replica].state
        seat: Any = of.seats[replica]
        if of is not group:  # its copy is of any age
            seat = SimpleNamespace(is_ready=False, leader_id=METADATA, applied_index=NEVER_MS)
        links: Any = Links(self.world)
        clocks: Any = SimpleNamespace(now_ms=lambda: self.world.wall_ms, agreed=True)
        founding: Any = SimpleNamespace(commands=lambda: (), settings=SETTINGS)
        self.proposer = MetadataProposer(seat, links, lambda: None, clocks, founding, self.metadata)
        self.context: Any = SimpleNamespace(  # as the services see it
            config=config, metadata=self.metadata, propose_metadata=self.proposer.propose
        )
        self.context.newest_metadata = NewestMetadata(self.context)
        node: Any = SimpleNamespace(links=links, leader_of=lambda group: (group, 1))
        replicas: Any = SimpleNamespace(by_group=partitions)
        self.transactions = Transactions(
            config, self.metadata, self.proposer, replicas, node, node, self.world.loop.time
        )
        rng, following = self.world.rng, seat
        if of is not group:
            following = cast(Any, Following(of, replica))
        proposer = MetadataProposer(following, links, lambda: None, clocks, founding, self.metadata)
        self.kafka_context: Any = SimpleNamespace(
            config=config, metadata=self.metadata, propose_metadata=proposer.propose
        )
        self.kafka_context.newest_metadata = NewestMetadata(self.kafka_context)
        self.open_ones = OpenTransactions(
            self.kafka_context, self.transactions, lambda: rng.getrandbits(63) | 1
        )

    def end(self) -> None:
        self.alive = False
        for task in list(self._work):
            task.cancel()

    def spawn(self, work: Coroutine[Any, Any, Any], reply: Reply = lambda result: None) -> None:
        """Runs a task of this node; a refusal is answered as (reason, message)."""

        def done(task: asyncio.Task[Any]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, OncelogError | Rejected | Refused):
                reply((error.reason, str(error)))
            else:
                reply(LOST if task.cancelled() or error is not None else task.result())

        self.world.loop.create_task(work, context=self._context).add_done_callback(done)

    async def run(self) -> None:
        await self.transactions.run(Tasks())

    # -- calls of Kafka's protocol: any node answers them ---------------------------------------

    def kafka_lease(self, reply: Reply, name: str, held: Holder | None) -> None:
        self.spawn(self.open_ones.lease(name, TIMEOUT_MS, held), reply)

    def kafka_add(
        self, reply: Reply, name: str, holder: Holder, groups: set[int], sent: Sent
    ) -> None:
        async def added() -> None:
            sent.added(name, await self.open_ones.add(name, holder, sent, groups))

        self.spawn(added(), reply)

    def kafka_end(self, reply: Reply, name: str, holder: Holder, commit: bool, sent: Sent) -> None:
        self.spawn(self.open_ones.end(name, holder, sent, commit=commit), reply)


class PartitionLeader(Leader):
    """Leads a partition for one term."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.partition: Partition = group.machine
        self.partition.alter(replace(self.partition.policy, names=self.metadata))
        self._added = AddedPartitions(self.context)
        self._leases = Leases(self.kafka_context)

    # -- batches --------------------------------------------------------------------------

    def batch(
        self, reply: Reply, meta: BatchMeta, transaction_id: int, records: tuple[Any, ...]
    ) -> None:
        request = AppendRequest(meta, 0, transaction_id, 0, json.dumps(records).encode())

        def answered(answer: Answer) -> None:
            if answer.verdict.kind is Kind.UNREGISTERED:
                self.spawn(self._register(request), reply)
            else:
                reply(said(answer))

        self.partition.append(request, answered)

    def kafka_batch(self, reply: Reply, holder: Holder, first: int, contents: list[str]) -> None:
        data = json.dumps(contents).encode()
        last, count = first + len(contents) - 1, len(contents)
        meta = BatchMeta(*holder, first, last, first - 1, count, crc32(data), -1, True)
        self.spawn(self._staged(meta, data), reply)

    async def _staged(self, meta: BatchMeta, data: bytes) -> object:
        batch = StagedBatch(self.metadata, self._leases, meta)
        while (found := batch.look(self.partition)) is not None:
            if isinstance(found, Verdict):
                return said(Answer(found))
            await found()
        request = AppendRequest(meta, KAFKA_V2, batch.transaction_id, 0, data)
        return said(await called_back(partial(self.partition.append, request)))

    async def _register(self, request: AppendRequest) -> object:
        """Registers the partition with the coordinator before any batch is staged."""
        meta, number = request.meta, request.transaction_id
        refused = await self._added.register(
            self.group.number, number, meta.producer_id, meta.epoch
        )
        if refused is not None:
            return refused
        self.partition.registered(number)
        return said(await called_back(partial(self.partition.append, request)))

    def resolve(self, reply: Reply, producer_id: int, epoch: int, sequence: int) -> None:
        """Answers a sequence's outcome, once an entry of this term has committed."""

        async def resolved() -> ResolutionKind:
            await confirm(self.partition)
            if self.partition.machine.runs.may_publish(producer_id, epoch, sequence):
                return ResolutionKind.NOT_YET
            return self.partition.last_seen.resolve(producer_id, epoch, sequence).resolution

        self.spawn(resolved(), reply)

    def open(self, reply: Reply, producer_id: int, epoch: int) -> None:
        """Raises the epoch, then waits for the end of transactions staged under a lower one."""
        self.partition.open_producer(producer_id, epoch, lambda answer: reply(said(answer)))

    # -- other nodes' requests ------------------------------------------------------------

    def confirm_runs(self, reply: Reply, request: pb.ConfirmRunsRequest) -> None:
        async def confirmed() -> pb.Response:
            return pb.Response(confirm_runs=await self.transactions.confirm_here(request))

        self.spawn(confirmed(), reply)

    def write_markers(self, reply: Reply, request: pb.WriteMarkersRequest) -> None:
        async def written() -> pb.Response:
            return pb.Response(write_markers=await self.transactions.markers.write_here(request))

        self.spawn(written(), reply)


class MetadataLeader(Leader):
    """Leads the metadata group for one term: commands, decisions, markers, time."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._decisions = Decisions(self.context, self.transactions)
        self.spawn(self.run())

    def command(self, reply: Reply, method: str, **arguments: Any) -> None:
        command = command_of(method, arguments)
        command.stamp_ms = self.world.wall_ms

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Abandoned):
                reply(LOST)
                return
            assert isinstance(outcome.result, bytes)
            result = mpb.MetadataResult.FromString(outcome.result)
            reply(answer_of(method, arguments, result, self.metadata))

        self.proposer.group.propose(bytes((METADATA_ENTRY,)) + command.SerializeToString(), done)

    def propose_metadata(self, reply: Reply, request: pb.ProposeMetadataRequest) -> None:
        async def proposed() -> pb.Response:
            taken = await self.proposer.propose_here(request.command)
            return pb.Response(propose_metadata=taken)

        self.spawn(proposed(), reply)

    def keep_alive(self, reply: Reply, transaction_id: int) -> None:
        request = pb.KeepAliveRequest(transaction_ids=[transaction_id])
        ended = self.transactions.keep_alive_here(request).ended
        reply("ENDED" if ended else "KEPT")

    def commit(
        self,
        reply: Reply,
        transaction_id: int,
        holder: Holder | None,
        asked: tuple[Asked, ...],
        visible: bool = True,
        digest: int = 0,
        next_nonce: int = 0,
    ) -> None:
        """Asks the partitions, decides, and waits for the markers if the caller wants that."""
        commit = tpb.CommitTransaction(transaction_id=transaction_id, digest=digest)
        if holder is not None:
            commit.producer_id, commit.epoch = holder
        if next_nonce:
            commit.next.CopyFrom(begin_record(next_nonce))
        runs = [Expected(*run[:4], consumer_group="".join(map(str, run[4:]))) for run in asked]
        self.spawn(self._commit(commit, runs, visible), reply)

    async def _commit(
        self, commit: tpb.CommitTransaction, asked: list[Expected], visible: bool
    ) -> tuple[Any, ...]:
        number = commit.transaction_id
        known = self.metadata.coordinator.get(number)
        sink = known.owner if known is not None and known.sink else ""
        row, following, _ = await self._decisions.decide(commit, asked, 0, sink=sink)
        begun = 0 if following is None else following.transaction_id
        if not visible:
            self.transactions.publish(row)
            return row.state.name, row.reason, number, begun
        runs = await self.transactions.published(row)
        places = {group: (part.gone, runs[group]) for group, part in row.parts.items()}
        return "VISIBLE", places, number, begun


def said(answer: Answer) -> object:
    """Returns a partition's answer to its client; LOST: the client asks the next leader."""
    return LOST if answer.verdict.kind is Kind.NOT_LEADER else answer.verdict
