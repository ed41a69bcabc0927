"""Real state machines that report to the checker: applies, restores and leadership."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cluster.consensus.configuration import CONFIGURATION
from cluster.consensus.driver import Driver
from cluster.consensus.group import Group
from cluster.consensus.port import Clock
from cluster.consensus.replay_budget import ReplayBudget
from cluster.features import Features
from cluster.metadata.machine import MetadataMachine
from cluster.metadata.nodes import NodesView
from cluster.metadata.producer_names import NameState
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import METADATA_GROUP, Tables
from cluster.metadata.topics import PartitionState, TopicState
from cluster.node.cleaning.cleaner import Cleaner
from cluster.partition.machine import Loaded
from cluster.partition.replica import Answer, Partition
from storage.kv import WriteBatch
from tests.sim import releases, reloading
from tests.sim.checker import DUMP_EVERY, Violation

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.node import Node


class Call:
    """A batch that a node has to answer exactly once, while it lives."""

    __slots__ = ("_what", "answered", "gid", "node", "reply")

    def __init__(self, node: Node, gid: int, what: object, reply: Any) -> None:
        self.node, self.reply, self.answered = node, reply, False
        self.gid, self._what = gid, what  # made words only where it is needed
        node.open_calls[id(self)] = self

    def __str__(self) -> str:
        return f"group {self.gid}: {self._what}"

    def answer(self, answer: Answer) -> None:
        if self.answered:
            raise Violation(f"{self} was answered twice by node {self.node.id}")
        self.answered = True
        self.node.open_calls.pop(id(self), None)
        self.node.cluster.answer(self.reply, answer)


class WatchedDriver(Driver):
    """The node's own driver; names the replicas that its last round has advanced."""

    def __init__(self, node: Node, clock: Clock, replay: ReplayBudget) -> None:
        super().__init__(node.disk, clock, node.send, node.wake, replay, node.read)
        self.advanced: list[Group] = []

    def _advance(self) -> list[Group]:
        self.advanced = super()._advance()
        return self.advanced


class StrictCleaner(Cleaner):
    """The node's own cleaner; an error that nothing expects ends the run."""

    def _failed(self, error: Exception) -> None:
        raise error


class WatchedPartition(Partition):
    """The real partition, reporting each apply and restore to the checker."""

    def __init__(self, node: Node, gid: int, *args: Any, **kwargs: Any) -> None:
        self._sim, self._gid, self.watched_index = node, gid, 0
        self._checker = node.cluster.checker
        super().__init__(*args, **kwargs)
        releases.teach(self.machine, node.release)

    def apply(self, index: int, term: int, data: bytes, batch: WriteBatch) -> object:
        result = super().apply(index, term, data, batch)
        after, self.watched_index = self.watched_index, index
        now_in = self.group.core.term
        self._checker.applies(self._sim.id, self._gid, after, now_in, index, term, data, result)
        if not index % DUMP_EVERY:
            self._tell(index, self.machine_state())
        return result

    def _tell(self, index: int, state: bytes) -> None:
        if self._checker.state(self._sim.id, self._gid, index, state):
            reloading.check(state, reloading.partition, f"{self._gid}/{index}")

    def machine_state(self) -> bytes:
        return b"".join(super().pieces())

    def pieces(self) -> Iterator[bytes]:
        """Passes on the pieces; to the checker they are the state at the index of their begin."""
        index, pieces = self.watched_index, []
        for piece in super().pieces():
            pieces.append(piece)
            yield piece
        self._tell(index, b"".join(pieces))

    def restore(self, loaded: Loaded | None, index: int) -> None:
        super().restore(loaded, index)
        self.watched_index = index if loaded is not None else 0
        if loaded is not None:
            self._tell(index, self.machine_state())

    def on_role(self, *, leader: bool, ready: bool, term: int) -> None:
        if leader:
            last = self.group.journal.last_index
            self._checker.leads(self._sim.id, self._gid, term, last)
        super().on_role(leader=leader, ready=ready, term=term)


class WatchedMetadata(MetadataMachine):
    """The metadata group's state machine, telling the checker as partitions do."""

    def __init__(self, node: Node, state: MetadataState) -> None:
        super().__init__(state, lambda index: node.metadata_applied())
        self._node, self.watched_index = node, 0
        self._checker = node.cluster.checker
        self.group: Group | None = None

    def apply(self, index: int, term: int, data: bytes, batch: WriteBatch) -> bytes:
        result = super().apply(index, term, data, batch)
        after, self.watched_index = self.watched_index, index
        assert self.group is not None
        now_in, node = self.group.core.term, self._node.id
        self._checker.applies(node, METADATA_GROUP, after, now_in, index, term, data, result)
        self._tell(index, super().dump())
        releases.check_upgrade(self._node, data, result)
        return result

    def _tell(self, index: int, state: bytes) -> None:
        if self._checker.state(self._node.id, METADATA_GROUP, index, state):
            again = reloading.metadata(self._node.release)
            reloading.check(state, again, f"the metadata/{index}")

    def pieces(self) -> Iterator[bytes]:
        index, pieces = self.watched_index, []
        for piece in super().pieces():
            pieces.append(piece)
            yield piece
        self._tell(index, b"".join(pieces))

    def restore(self, loaded: Tables | None, index: int) -> None:
        super().restore(loaded, index)
        self.watched_index = index if loaded is not None else 0
        if loaded is not None:
            self._tell(index, super().dump())

    def on_role(self, *, leader: bool, ready: bool, term: int) -> None:
        if leader and self.group is not None:
            last = self.group.journal.last_index
            self._checker.leads(self._node.id, METADATA_GROUP, term, last)
        super().on_role(leader=leader, ready=ready, term=term)


Machine = Partition | WatchedMetadata


class Names:
    """A node's copy of the producer names, behind the cluster's by some time. See `Names` there."""

    def __init__(self, cluster: Cluster, lag: float) -> None:
        self._cluster, self.lag = cluster, lag
        self.applied_index = 0
        self._held: dict[int, NameState] = {}
        self._issued: set[int] = set()

    def follow(self, *, all_of_it: bool = False) -> None:
        now = self._cluster.scheduler.now - (0.0 if all_of_it else self.lag)
        grants = self._cluster.grants
        while self.applied_index < len(grants) and grants[self.applied_index][0] <= now:
            _, pid, epoch, named = grants[self.applied_index]
            self.applied_index += 1
            self._issued.add(pid)
            if named:
                self._held[pid] = NameState(f"p{pid}", pid, epoch, 0)

    def is_issued(self, producer_id: int) -> bool:
        self.follow()
        return producer_id in self._issued

    def holder(self, producer_id: int) -> NameState | None:
        self.follow()
        return self._held.get(producer_id)


class ChangesOn(Features):
    """Features with which all nodes know of changes of a group's members."""

    def may_write(self, kind: int) -> bool:
        return kind == CONFIGURATION or super().may_write(kind)


class Facts:
    """A node's knowledge of the cluster: topics from the real state, producers from `Names`."""

    def __init__(self, node: Node, state: MetadataState) -> None:
        self._node, self._names, self._state = node, node.names, state

    @property
    def lease_lifetime_ms(self) -> int:
        return self._state.lease_lifetime_ms

    @property
    def features(self) -> Features:
        if self._node.cluster.settings.smallest_majority:
            return ChangesOn(lambda: self._state.finalized)
        return self._state.features

    @property
    def settings(self) -> Mapping[str, int]:
        return self._state.settings

    def topic(self, name: str) -> TopicState | None:
        return self._state.topic(name)

    def topics(self) -> list[TopicState]:
        return self._state.topics()

    def partition(self, group_id: int) -> tuple[TopicState, int, PartitionState] | None:
        return self._state.partition(group_id)

    @property
    def membership(self) -> NodesView:
        return self._state.membership

    @property
    def applied_index(self) -> int:
        return self._names.applied_index

    def is_issued(self, producer_id: int) -> bool:
        return self._names.is_issued(producer_id)

    def holder(self, producer_id: int) -> NameState | None:
        return self._names.holder(producer_id)

    def expired_below(self, now_ms: int, lifetime_ms: int) -> int:
        return self._node.cluster.expired_below(now_ms)
