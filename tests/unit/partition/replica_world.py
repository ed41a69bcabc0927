"""Two replicas of one partition with real metadata, and clocks that the test moves.

Both apply one log at once; each node has a copy of the metadata that follows when the test says so.
Events that take days in a cluster are one line here.
"""

from __future__ import annotations

from cluster.consensus.proposals import Applied
from cluster.dedup.verdict import BatchMeta
from cluster.features import Features, Finalized
from cluster.metadata.state import MetadataState
from cluster.partition.replica import Answer, AppendRequest, Partition
from cluster.partition.types import NodeView, Policy
from cluster.v1 import metadata_pb2 as pb
from storage.offset_index import OffsetIndex
from tests.sim.disk import Disk

HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_000 * DAY


class OneLog:
    """The group as a node's partition sees it: each proposal is committed at once."""

    failed = None

    def __init__(self, world: World, node: int, machine: Partition) -> None:
        self._world, self._node = world, node
        machine.restore(None, 0)

    @property
    def is_leader(self) -> bool:
        return self._world.leader == self._node

    is_ready = is_leader

    @property
    def leader_id(self) -> int:
        return self._world.leader

    def propose(self, data, done, *, outlives_term=False):
        done(self._world.commit(self._node, data))

    def confirm(self, done):
        done(Applied(0, None))


class World:
    """Nodes 1 and 2: the metadata log, the partition's log, one clock for each node."""

    def __init__(self, lifetime_ms: int = DAY, expiry_ms: int = 7 * DAY, capacity: int = 100):
        self.now = {1: START, 2: START}
        self.finalized = Finalized()
        self.terms = {"lease_lifetime_ms": lifetime_ms, "producer_name_expiry_ms": expiry_ms}
        self.commands: list[bytes] = []
        self.metadata = {node: MetadataState() for node in (1, 2)}
        self.index = 1
        self.disks = {node: Disk() for node in (1, 2)}
        self.leader = 0
        self.parts = {node: self._partition(node, capacity) for node in (1, 2)}
        self.lead(1)

    def _partition(self, node: int, capacity: int) -> Partition:
        metadata = self.metadata[node]

        def expired_below() -> int:
            return metadata.expired_below(self.now[node], metadata.lease_lifetime_ms)

        policy = Policy(
            lease_lifetime_ms=self.terms["lease_lifetime_ms"],
            expired_below=expired_below,
            names=metadata,
        )
        return Partition(
            "t",
            0,
            OffsetIndex(self.disks[node], 16),
            policy,
            NodeView(
                lambda: self.now[node],
                lambda: None,
                lambda: False,
                lambda: True,
                Features(lambda: self.finalized),
            ),
            lambda machine: OneLog(self, node, machine),  # type: ignore[arg-type,return-value]
            capacity=capacity,
        )

    def lead(self, node: int) -> None:
        for other, partition in self.parts.items():
            self.leader = node
            partition.on_role(leader=other == node, ready=other == node, term=self.index)

    def commit(self, node: int, data: bytes) -> Applied:
        self.index += 1
        results = {}
        for other, partition in self.parts.items():
            batch = self.disks[other].batch()
            results[other] = partition.apply(self.index, 1, data, batch)
            self.disks[other].write(batch)
        assert results[1] == results[2]
        assert self.parts[1].dump() == self.parts[2].dump()
        return Applied(self.index, results[node])

    def passes(self, ms: int) -> None:
        for node in self.now:
            self.now[node] += ms

    # -- metadata

    def command(self, command: pb.MetadataCommand, *nodes: int) -> pb.MetadataResult:
        """Commits; the given nodes (all, if none) have applied it when this returns."""
        command.stamp_ms = self.now[1]
        command.lease_lifetime_ms = self.terms["lease_lifetime_ms"]
        command.producer_name_expiry_ms = self.terms["producer_name_expiry_ms"]
        self.commands.append(command.SerializeToString())
        results = [self.catch_up(node) for node in nodes or (1, 2)]
        return results[-1]

    def catch_up(self, node: int) -> pb.MetadataResult:
        state, answer = self.metadata[node], b""
        while state.applied_index < len(self.commands):
            answer = state.apply(state.applied_index + 1, self.commands[state.applied_index])
        return pb.MetadataResult.FromString(answer)

    def fresh(self) -> int:
        command = pb.AllocateProducerIds(node_id=1, count=1)
        return self.command(pb.MetadataCommand(allocate_producer_ids=command)).first_producer_id

    def lease(self, name: str, *nodes: int, fence: bool = False) -> tuple[int, int]:
        command = pb.LeaseName(name=name, fence_only=fence)
        result = self.command(pb.MetadataCommand(lease_name=command), *nodes)
        assert not result.error, result
        return result.producer_id, result.epoch

    # -- the partition's leader

    def send(self, pid: int, epoch: int, sequence: int, prev: int | None = None) -> Answer:
        answers: list[Answer] = []
        payload = b"%d/%d" % (pid, sequence)
        meta = BatchMeta(
            pid, epoch, sequence, sequence, sequence - 1 if prev is None else prev, 1, sequence
        )
        request = AppendRequest(meta, 0, 0, 0, payload)
        self.parts[self.leader].append(request, answers.append)
        (answer,) = answers
        return answer

    def kind(self, pid: int, epoch: int, sequence: int, **more: int) -> str:
        return self.send(pid, epoch, sequence, **more).verdict.kind.name

    def open(self, pid: int, epoch: int) -> Answer:
        answers: list[Answer] = []
        self.parts[self.leader].open_producer(pid, epoch, answers.append)
        (answer,) = answers
        return answer

    def duty(self) -> None:
        self.parts[self.leader].retain()
