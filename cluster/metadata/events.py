"""Events of a metadata change: they tell the node which parts to check again."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.metadata.tables import Tables
from cluster.metadata.topics import TopicState


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """Topics or nodes were added, removed or moved: groups may have to be opened or closed."""


@dataclass(frozen=True, slots=True)
class TopicAltered:
    topic: TopicState


@dataclass(frozen=True, slots=True)
class TermsChanged:
    """Lease lifetime or name expiry is shorter than before."""


@dataclass(frozen=True, slots=True)
class UpgradeFinalized:
    """The cluster version, or the set of features, is higher than before."""


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The cluster's settings were founded or changed."""


Event = LayoutChanged | TopicAltered | TermsChanged | UpgradeFinalized | SettingsChanged


def _nodes(tables: Tables) -> tuple[object, ...]:
    known = (tables.nodes, tables.directories, tables.peers, tables.kafka, tables.places)
    marks = (tables.expected, tables.joining, tables.leaving, tables.drained)
    return (*known, *marks, tables.own, tables.learners)


def difference(before: Tables, after: Tables) -> list[Event]:
    """Returns the events that lead from one state to the other, except TermsChanged."""
    new = {topic.topic_id: topic for topic in after.topics_by_name()}
    old = {topic.topic_id: topic for topic in before.topics.values()}
    events: list[Event] = []
    if before.settings != after.settings:
        events.append(SettingsChanged())
    if before.finalized != after.finalized:
        events.append(UpgradeFinalized())
    placed = any(old[known].partitions != new[known].partitions for known in old.keys() & new)
    if _nodes(before) != _nodes(after) or old.keys() != new.keys() or placed:
        events.append(LayoutChanged())
    events += [
        TopicAltered(topic)
        for topic_id, topic in new.items()
        if topic_id in old and old[topic_id].settings != topic.settings
    ]
    return events
