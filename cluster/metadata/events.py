"""What a change of the metadata means for the node: groups to open, to close, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cluster.metadata.topics import TopicState


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: TopicState


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic: TopicState


@dataclass(frozen=True, slots=True)
class TopicAltered:
    topic: TopicState


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    node_id: int
    address: str


@dataclass(frozen=True, slots=True)
class TermsChanged:
    """Lease lifetime or name expiry are shorter than before."""


Event = TopicCreated | TopicDeleted | TopicAltered | NodeRegistered | TermsChanged


class Metadata(Protocol):
    """Of a metadata state, what `difference` compares."""

    @property
    def nodes(self) -> Mapping[int, str]: ...
    @property
    def lease_lifetime_ms(self) -> int: ...
    @property
    def name_expiry_ms(self) -> int: ...
    def topics(self) -> list[TopicState]: ...


def difference(before: Metadata, after: Metadata) -> list[Event]:
    """The events that lead from one state to the other; deletions first."""
    events: list[Event] = [
        NodeRegistered(node_id, address)
        for node_id, address in after.nodes.items()
        if before.nodes.get(node_id) != address
    ]
    terms = (before.lease_lifetime_ms, before.name_expiry_ms)
    if terms != (after.lease_lifetime_ms, after.name_expiry_ms):
        events.append(TermsChanged())
    new = {topic.topic_id: topic for topic in after.topics()}
    old = {topic.topic_id: topic for topic in before.topics()}
    events += [TopicDeleted(topic) for topic_id, topic in old.items() if topic_id not in new]
    for topic_id, topic in new.items():
        known = old.get(topic_id)
        if known is None:
            events.append(TopicCreated(topic))
        elif known.settings != topic.settings:
            events.append(TopicAltered(topic))
    return events
