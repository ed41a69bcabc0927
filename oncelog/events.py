"""Events of nodes, as `Admin.list_events` returns them and `Admin.follow_events` yields them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event of a node's flight recorder, or `count` equal ones from `first_ms` to `last_ms`.

    `resource` and `name` are its subject: a topic, a group, a producer or the cluster. The
    sequences span those of all repeats; offset, caller and text are the last one's.
    """

    node_id: int
    event_id: int  # of the node since its start; a repeat keeps it
    kind: str  # verdict, leader, producer, group, move, slow, audit, node
    resource: str
    name: str
    partition: int  # -1: none
    first_ms: int
    last_ms: int
    count: int
    verdict: str
    producer_id: int  # 0: none
    epoch: int
    first_sequence: int
    last_sequence: int
    offset: int
    principal: str
    address: str
    text: str


@dataclass(frozen=True, slots=True)
class NodeEvents:
    """Events of all nodes, oldest first. `problems`: of nodes that did not answer, by node id."""

    events: tuple[NodeEvent, ...]
    problems: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Wanted events. Empty fields, and 0, stand for all; `limit` counts for each node."""

    kinds: tuple[str, ...] = ()
    resource: str = ""
    name: str = ""
    producer_id: int = 0
    since_ms: int = 0
    limit: int = 1000


__all__ = ["EventFilter", "NodeEvent", "NodeEvents"]
