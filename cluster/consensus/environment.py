"""Parts of a group: its settings, its node's services and its state machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from cluster.consensus.background_reads import BackgroundReads
from cluster.consensus.configuration import Configuration, Member, Placed
from cluster.consensus.peer_window import PeerWindows
from cluster.consensus.port import Clock
from cluster.consensus.replay_budget import ReplayBudget
from storage.kv import WriteBatch


class StateMachine(Protocol):
    """The replicated state of a group. All methods are deterministic over the log.

    pieces: the whole state. Nothing is applied before the last piece is taken; none takes long.
    load(state): loads a state beside the present one, which stays. Any thread may call it.
        Raises CorruptionError, or any error that a start would meet.
    restore(loaded): replaces the present state; None: by the empty one.
    """

    def apply(self, index: int, term: int, data: bytes, batch: WriteBatch) -> object: ...
    def pieces(self) -> Iterator[bytes]: ...
    def load(self, state: bytes) -> Any: ...
    def restore(self, loaded: Any, index: int) -> None: ...
    def discard(self, batch: WriteBatch) -> None: ...
    def on_role(self, *, leader: bool, ready: bool, term: int) -> None: ...


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """election_timeout, heartbeat: seconds. checkpoint_*: how much log to replay at most.

    peers: the nodes of the other replicas that the group began with. instance: of this
    replica (`configuration.py`); not 0: it is none of those.
    """

    group: int
    node_id: int
    peers: tuple[int, ...]
    instance: int = 0
    election_timeout: float = 1.0
    heartbeat: float = 0.1
    checkpoint_bytes: int = 64 * 1024 * 1024
    checkpoint_entries: int = 65_536
    name: str = ""
    # Followers learn of a commit at once, not with the next entry or heartbeat: for groups with
    # callers that wait for a follower's state, such as the metadata's.
    notify_commits: bool = False

    @property
    def founding(self) -> Placed:
        """Returns the configuration that the group began with."""
        nodes = self.peers if self.instance else (self.node_id, *self.peers)
        return Placed(0, 0, Configuration(0, tuple(map(Member, nodes))))


@dataclass(frozen=True, slots=True)
class Environment:
    """Services that a group takes from its node. The simulator passes its own.

    leader_changed: called when the group learns of another leader or term.
    stopped(group): called once if the replica fails.
    may_lead: whether the node may stand for election; not with a wrong clock.
    takes_part: whether the replica may send: its node's start is known to the cluster.
    may_change: whether all nodes support the entries that change members.
    """

    clock: Clock
    rng: random.Random
    batch: Callable[[], WriteBatch]
    tail_bytes: Callable[[], int]
    reads: BackgroundReads
    replay: ReplayBudget
    windows: PeerWindows
    leader_changed: Callable[[], None]
    stopped: Callable[[int], None]
    may_lead: Callable[[], bool]
    may_change: Callable[[], bool] = lambda: False
    takes_part: Callable[[], bool] = lambda: True
