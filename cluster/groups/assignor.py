"""Assignment of partitions to a group's members. Pure functions.

    members' topics, partitions, present owners --assign--> partition -> member

Both assignors are deterministic, so two leaders with the same input decide the same, and sticky:
a partition moves only if it must. Moves follow KIP-54's and KIP-848's rules: a member with its
fair share keeps its partitions.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Set

from cluster.groups.ownership import RANGE, UNIFORM, TopicIdPartition

Topics = Mapping[int, int]  # topic id -> how many partitions
Subscriptions = Mapping[str, Set[int]]  # member -> topic ids
Owners = Mapping[TopicIdPartition, str]


def assign(
    name: str, topics: Topics, members: Subscriptions, owners: Owners
) -> dict[TopicIdPartition, str]:
    """Return the wanted owner of each partition with a reader; other partitions are left out.

    `owners`: the present ones, without partitions already being given back.
    """
    assert name in (UNIFORM, RANGE), name
    return (_range if name == RANGE else _uniform)(topics, members, owners)


def _uniform(topics: Topics, members: Subscriptions, owners: Owners) -> dict[TopicIdPartition, str]:
    """Assign as evenly as subscriptions allow, over all topics, with the fewest moves."""
    readers = _readers(topics, members)
    target: dict[TopicIdPartition, str] = {}
    held: dict[str, list[TopicIdPartition]] = {member: [] for member in sorted(members)}
    for partition in sorted(readers):
        owner = owners.get(partition, "")
        if owner in readers[partition]:
            target[partition] = owner
            held[owner].append(partition)
    load = [(len(parts), member) for member, parts in held.items()]
    load.sort()

    def give(partition: TopicIdPartition, count: int, member: str) -> None:
        load.remove((count, member))
        insort(load, (count + 1, member))
        held[member].append(partition)
        target[partition] = member

    for partition in sorted(readers.keys() - target.keys()):
        count, member = next(one for one in load if one[1] in readers[partition])
        give(partition, count, member)
    _level(readers, target, held, load)
    return target


def _level(
    readers: Mapping[TopicIdPartition, Set[str]],
    target: dict[TopicIdPartition, str],
    held: dict[str, list[TopicIdPartition]],
    load: list[tuple[int, str]],
) -> None:
    """Move one partition at a time from the most to the least loaded member, while that helps."""
    moved = True
    while moved:
        moved = False
        for least, poor in load:
            richer = [one for one in reversed(load) if one[0] >= least + 2]
            found = next(
                (
                    (count, rich, partition)
                    for count, rich in richer
                    for partition in reversed(held[rich])
                    if poor in readers[partition]
                ),
                None,
            )
            if found is None:
                continue
            count, rich, partition = found
            held[rich].remove(partition)
            held[poor].append(partition)
            target[partition] = poor
            load.remove((least, poor))
            load.remove((count, rich))
            insort(load, (least + 1, poor))
            insort(load, (count - 1, rich))
            moved = True
            break


def _range(topics: Topics, members: Subscriptions, owners: Owners) -> dict[TopicIdPartition, str]:
    """Give each reader a stretch of each topic, so that equal numbers of topics meet.

    Topics with the same readers and as many partitions are assigned alike. The stretches follow
    from the members' names alone, so a new member moves some.
    """
    target: dict[TopicIdPartition, str] = {}
    for topic, count in sorted(topics.items()):
        readers = sorted(member for member, wanted in members.items() if topic in wanted)
        for place, member in enumerate(readers):
            first = place * count // len(readers)
            end = (place + 1) * count // len(readers)
            for number in range(first, end):
                target[TopicIdPartition(topic, number)] = member
    return target


def _readers(topics: Topics, members: Subscriptions) -> dict[TopicIdPartition, Set[str]]:
    """Return each partition's possible readers; partitions without readers are left out."""
    of_topic = {
        topic: {member for member, wanted in members.items() if topic in wanted} for topic in topics
    }
    return {
        TopicIdPartition(topic, number): of_topic[topic]
        for topic, count in topics.items()
        if of_topic[topic]
        for number in range(count)
    }
