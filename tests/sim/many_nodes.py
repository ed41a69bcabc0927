"""A cluster of many nodes at rest, and a count of the messages that each node sends and gets.

    python -m tests.sim.many_nodes --nodes 100 --partitions 1000

Five nodes vote on the metadata from the beginning. Links, disks and clocks are sound.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cluster.consensus.configuration import (
    ChangeStep,
    Configuration,
    ConfigurationChange,
    Member,
    Placed,
)
from cluster.consensus.environment import GroupConfig
from cluster.entries import UPGRADE
from cluster.features import METADATA_LEARNERS, THIS_RELEASE
from cluster.metadata import nodes as nodes_module
from cluster.metadata.node_loads import MANY_NODES, MAX_NEIGHBOURS, NodeLoads
from cluster.metadata.placement import place
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.upgrade import command as finalize
from cluster.metadata.upgrade import node_releases, plan
from cluster.metadata.voters import MOST
from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.cluster import Cluster, create_topic, register_node
from tests.sim.node import Node, Settings
from tests.sim.schedules import limited
from tests.sim.stage import GID

PATIENCE = 60.0  # virtual seconds
TOPIC = f"t{GID}"


@contextmanager
def few_voters(voters: Collection[int]) -> Iterator[None]:
    """Lets the metadata begin with these voters; the other nodes learn."""
    founding = GroupConfig.founding.fget  # type: ignore[attr-defined]

    def begun(self: GroupConfig) -> Placed:
        placed: Placed = founding(self)
        if self.group != METADATA_GROUP:
            return placed
        members = sorted(placed.configuration.voters)
        parts: tuple[list[Member], list[Member]] = ([], [])
        for one in members:
            parts[one.node not in voters].append(one)
        return Placed(0, 0, Configuration(0, tuple(parts[0]), tuple(parts[1])))

    with limited(GroupConfig, "founding", property(begun)):
        yield


AT_REST = Settings(
    smallest_majority=2, silent=30.0, election_timeout=1.0, heartbeat=0.1, metadata_entries=1000
)


class ManyNodes:
    """A cluster at rest. placements: the nodes of each partition."""

    def __init__(
        self,
        nodes: int,
        placements: Collection[Collection[int]],
        voters: int = MOST,
        settings: Settings = AT_REST,
        seed: int = 1,
    ) -> None:
        settings = replace(
            settings, nodes=nodes, groups=0, metadata=True, streams=True, voters=voters, news=True
        )
        self.voters = tuple(range(1, voters + 1))
        with limited(nodes_module, "MAX_NODES", nodes):
            self.cluster = Cluster(settings, seed)
            self._begin()
        if placements:
            chosen = [list(one) for one in placements]
            self.command(create_topic(TOPIC, chosen, settings))
        self.until(self.is_led, "all partitions are led")

    def _begin(self) -> None:
        """Starts all nodes, registers them and finalizes the upgrade."""
        cluster = self.cluster
        cluster.checker.majorities[METADATA_GROUP] = len(self.voters) // 2 + 1
        for node in cluster.nodes.values():
            node.release = THIS_RELEASE
            cluster.upgraded.add(node.id)
        with few_voters(self.voters):
            cluster.start()
        self.until(lambda: cluster.leader(METADATA_GROUP) is not None, "somebody leads")
        for number in cluster.node_ids:
            self.command(register_node(number))
        self._finalize()
        self.until(
            lambda: self.leader.running.state.features.is_on(METADATA_LEARNERS), "learners may stay"
        )
        # As an entry the configuration outlives a process; nothing else would have it reported.
        leader, group = self.leader, self.leader.machines[METADATA_GROUP].group
        assert group is not None
        confirm = ConfigurationChange(ChangeStep.CONFIRM, leader.id, 0)
        group.change(confirm, lambda outcome: None)
        leader.driver.touch(METADATA_GROUP)
        self.until(lambda: group.members.version == 1, "the configuration is an entry")
        leader.running.changes._report(METADATA_GROUP, group)
        self.until(self._learns, "the metadata knows who learns")

    def _finalize(self) -> None:
        """Finalizes the upgrade to this release."""
        releases = dict.fromkeys(self.cluster.node_ids, THIS_RELEASE)
        upgrade = finalize(plan(self.leader.running.state.finalized, releases).target)
        upgrade.nodes.extend(node_releases(releases))
        entry = mpb.MetadataCommand(finalize_upgrade=upgrade).SerializeToString()
        group = self.leader.machines[METADATA_GROUP].group
        assert group is not None
        group.propose(bytes((UPGRADE,)) + entry, lambda outcome: None)
        self.leader.driver.touch(METADATA_GROUP)

    def _learns(self) -> bool:
        learn = len(self.cluster.node_ids) - len(self.voters)
        return len(self.leader.running.state.membership.learners) == learn

    @property
    def leader(self) -> Node:
        found = self.cluster.leader(METADATA_GROUP)
        assert found is not None
        return found

    def node(self, number: int) -> Node:
        return self.cluster.nodes[number]

    def groups(self) -> list[int]:
        topic = self.leader.running.state.topic(TOPIC)
        return [] if topic is None else [one.group_id for one in topic.partitions]

    def is_led(self) -> bool:
        return all(self.cluster.leader(gid) is not None for gid in self.groups())

    def sound(self) -> list[Node]:
        """Returns the living nodes whose clocks are right."""
        return [node for node in self.cluster.live() if not node.wall_skew_ms]

    def run(self, seconds: float) -> None:
        self.cluster.scheduler.run_until(self.cluster.scheduler.now + seconds)

    def until(self, holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        end = self.cluster.scheduler.now + seconds
        while not holds():
            if self.cluster.scheduler.now >= end:
                raise Violation(f"it never comes to this: {what}")
            self.run(0.1)

    def command(self, command: mpb.MetadataCommand) -> None:
        results: list[bytes] = []
        self.cluster.command(command, results.append)
        self.until(lambda: bool(results), "the command is answered")
        error = mpb.MetadataResult.FromString(results[0])
        assert not error.error, error

    def counting(self) -> Count:
        """Counts messages from now on."""
        count = self.cluster.network.tap = Count()
        return count

    def count(self, seconds: float) -> Count:
        """Counts messages while nothing happens."""
        count = self.counting()
        self.run(seconds)
        self.cluster.network.tap = None
        count.seconds = seconds
        return count


class Count:
    """Messages by kind and node: sent and received. A tap of the network."""

    def __init__(self) -> None:
        self.seconds = 1.0
        self.pairs: Counter[tuple[str, int, int]] = Counter()

    def __call__(self, sender: int, receiver: int, message: Any) -> bool:
        self.pairs[type(message).__name__, sender, receiver] += 1
        return False

    def of(self, node: int) -> dict[str, float]:
        """Returns messages a second that a node sends and receives, by kind."""
        found: Counter[str] = Counter()
        for (kind, *ends), number in self.pairs.items():
            if node in ends:
                found[kind] += number
        return {kind: number / self.seconds for kind, number in sorted(found.items())}


def placed(nodes: int, partitions: int) -> list[tuple[int, ...]]:
    """Returns the product's placement of so many partitions with three replicas each."""
    everybody = range(1, nodes + 1)
    loads = NodeLoads().copy(MAX_NEIGHBOURS if nodes >= MANY_NODES else 0)
    return place(partitions, 3, everybody, everybody, loads) if partitions else []


def in_ranges(nodes: int, partitions: int, neighbours: int = 12) -> list[tuple[int, ...]]:
    """Returns a placement by hand in which a node has about so many neighbours."""
    size = neighbours + 1
    first = [range(1 + at, 1 + min(at + size, nodes)) for at in range(0, nodes, size)]
    whole = [one for one in first if len(one) >= 3]
    found = []
    for number in range(partitions):
        part, turn = whole[number % len(whole)], number // len(whole)
        step = 1 + turn // len(part) % (len(part) // 3)
        found.append(tuple(part[(turn + step * one) % len(part)] for one in range(3)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--neighbours", type=int, default=0, help="0: the product's placement")
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    where = in_ranges if given.neighbours else placed
    cluster = ManyNodes(given.nodes, where(given.nodes, given.partitions))
    cluster.run(3.0)
    count = cluster.count(given.seconds)
    leader = cluster.leader.id
    for what, nodes in (
        ("the metadata's leader", [leader]),
        ("voters", [one for one in cluster.voters if one != leader]),
        ("learners", [one for one in cluster.cluster.node_ids if one not in cluster.voters]),
    ):
        of_each = [count.of(node) for node in nodes]
        sums = [sum(one.values()) for one in of_each]
        kinds = sorted({kind for one in of_each for kind in one})
        means = {kind: sum(one.get(kind, 0) for one in of_each) / len(nodes) for kind in kinds}
        print(f"{what}: mean {sum(sums) / len(sums):.0f}, most {max(sums):.0f} a second")
        for kind, mean in means.items():
            print(f"    {kind}: {mean:.1f}")


if __name__ == "__main__":
    main()
