"""Faults of a run: a plan drawn from its seed, one fault after the other.

Each fault begins, is traced in words, and plans its own end. Faults overlap.
Nothing here keeps a majority alive: safety may not need one.
"""

from __future__ import annotations

from typing import Any

from tests.sim.cluster import Cluster
from tests.sim.disk import PlantedDamage
from tests.sim.network import Quality, bridge, majority_ring, one_way, split
from tests.sim.node import Node


class Faults:
    """Draws faults until `until` (seconds of virtual time), then lets the cluster heal."""

    def __init__(self, cluster: Cluster, clients: Any, *, until: float, gap: float) -> None:
        self.cluster, self.clients = cluster, clients
        self.rng = cluster.rng
        self.until, self.gap = until, gap
        self.injected: dict[str, int] = {}
        self._menu = (
            [self.crash] * 4
            + [self.crash_leader] * 4
            + [self.crash_inside_disk_call] * 3
            + [self.crash_all, self.crash_majority]
            + [self.cut_links] * 4
            + [self.isolate_leader] * 4
            + [self.stop_one_way] * 2
            + [self.reset_links] * 2
            + [self.bad_network] * 4
            + [self.slow_disk] * 2
            + [self.full_disk, self.broken_fsync]
            + [self.jump_clock] * 2
            + [self.pause] * 2
            + [self.pause_leader] * 2
            + [self.transfer] * 2
            + [self.campaign, self.checkpoint, self.compact]
            + [self.bad_clients] * 2
            + [self.cut_off_clients]
            + [self.take_over, self.take_over, self.resolve, self.resolve]
        )

    def start(self) -> None:
        self.cluster.scheduler.after(self.gap * self.rng.random(), self._next)

    def _next(self) -> None:
        if self.cluster.scheduler.now >= self.until:
            return
        fault = self._menu[self.rng.randrange(len(self._menu))]
        name = fault.__name__
        self.injected[name] = self.injected.get(name, 0) + 1
        fault()
        self.cluster.scheduler.after(self.gap * (0.1 + 1.8 * self.rng.random()), self._next)

    # -- choosing -----------------------------------------------------------------------

    def _some_node(self) -> Node | None:
        live = self.cluster.live()
        return live[self.rng.randrange(len(live))] if live else None

    def _some_leader(self) -> Node | None:
        groups = self.cluster.groups
        leader = self.cluster.leader(groups[self.rng.randrange(len(groups))])
        return leader or self._some_node()

    def _shuffled(self) -> list[int]:
        nodes = list(self.cluster.node_ids)
        self.rng.shuffle(nodes)
        return nodes

    def _until_then(self, longest: float, call: Any, *args: Any) -> None:
        """Plans the end of a fault, at the latest when all faults end."""
        rng, scheduler = self.rng, self.cluster.scheduler
        delay = longest * rng.random() ** 2
        scheduler.at(min(scheduler.now + delay, max(self.until, scheduler.now)), call, *args)

    # -- processes ----------------------------------------------------------------------

    def _kill(self, node: Node | None, why: str) -> None:
        if node is None or not node.alive:
            return
        node.crash(why)
        self._until_then(8.0, node.restart)

    def crash(self) -> None:
        self._kill(self._some_node(), "killed")

    def crash_leader(self) -> None:
        self._kill(self._some_leader(), "killed while leading")

    def crash_all(self) -> None:
        for node in self.cluster.live():
            self._kill(node, "power cut of all")

    def crash_majority(self) -> None:
        for node_id in self._shuffled()[: len(self.cluster.node_ids) // 2 + 1]:
            self._kill(self.cluster.nodes[node_id], "power cut of a majority")

    def crash_inside_disk_call(self) -> None:
        node = self._some_node()
        if node is not None:
            calls = 1 + int(12 * self.rng.random() ** 2)
            self.cluster.trace("node %d will lose power in disk call %d", node.id, calls)
            node.disk.power_off_after = calls
            if self.rng.random() < 0.5:
                node.compact()
            self.cluster.scheduler.after(4.0, node.restart)

    def pause(self) -> None:
        self._pause(self._some_node())

    def pause_leader(self) -> None:
        self._pause(self._some_leader())

    def _pause(self, node: Node | None) -> None:
        if node is not None:
            rest = max(0.0, self.until - self.cluster.scheduler.now)
            seconds = min(rest, 6.0 * self.rng.random() ** 2)
            self.cluster.trace("node %d stands still for %.2f s", node.id, seconds)
            node.paused_until = self.cluster.scheduler.now + seconds

    # -- network ------------------------------------------------------------------------

    def _block(self, pairs: list[tuple[int, int]], text: str) -> None:
        noticed = self.rng.random() < 0.5
        self.cluster.trace("%s%s: %s", text, " (noticed)" if noticed else "", pairs)
        self.cluster.network.block(pairs, noticed=noticed)
        self._until_then(10.0, self._unblock, pairs)

    def _unblock(self, pairs: list[tuple[int, int]]) -> None:
        self.cluster.trace("links work again: %s", pairs)
        self.cluster.network.unblock(pairs)

    def cut_links(self) -> None:
        nodes, draw = self._shuffled(), self.rng.random()
        if draw < 0.4:
            side = 1 + int(self.rng.random() * (len(nodes) // 2))
            self._block(split(nodes[:side], nodes[side:]), "partition")
        elif draw < 0.7:
            self._block(bridge(nodes), "bridge")
        else:
            self._block(majority_ring(nodes), "majority ring")

    def isolate_leader(self) -> None:
        leader = self._some_leader()
        if leader is None:
            return
        others = [node for node in self.cluster.node_ids if node != leader.id]
        draw = self.rng.random()
        if draw < 0.5:
            self._block(split([leader.id], others), "leader isolated")
        elif draw < 0.75:
            self._block(one_way([leader.id], others), "leader not heard")
        else:
            self._block(one_way(others, [leader.id]), "leader hears nothing")

    def stop_one_way(self) -> None:
        nodes = self._shuffled()
        self._block(one_way(nodes[:1], nodes[1 : 2 + int(2 * self.rng.random())]), "one way")

    def reset_links(self) -> None:
        links = [pair for pair in self.cluster.network.links if self.rng.random() < 0.4]
        self.cluster.trace("connections reset: %s", links)
        for pair in links:
            self.cluster.network.reset(*pair)

    def bad_network(self) -> None:
        rng = self.rng
        worst = rng.random()
        quality = Quality(
            delay=0.001 * 10 ** (2.3 * rng.random()),
            drop=0.4 * worst * rng.random(),
            duplicate=0.3 * rng.random(),
            reorder=0.5 * rng.random(),
            late=rng.choice((0.0, 0.02, 0.2)),
        )
        self.cluster.trace("network: %s", quality)
        self.cluster.network.quality = quality
        self._until_then(12.0, self._good_network, quality)

    def _good_network(self, quality: Quality) -> None:
        if self.cluster.network.quality is quality:
            self.cluster.trace("network is good again")
            self.cluster.network.quality = Quality()

    # -- disks and clocks -----------------------------------------------------------------

    def slow_disk(self) -> None:
        node = self._some_node()
        if node is not None:
            node.sync_time = 0.01 * 10 ** (2 * self.rng.random())
            self.cluster.trace("node %d: fsync takes %.3f s", node.id, node.sync_time)
            self._until_then(10.0, self._fast_disk, node)

    def _fast_disk(self, node: Node) -> None:
        node.sync_time = node.settings.sync_time

    def full_disk(self) -> None:
        node = self._some_leader()
        if node is not None:
            self.cluster.trace("node %d: disk full", node.id)
            node.disk.full = True
            self._until_then(8.0, self._space, node)

    def _space(self, node: Node) -> None:
        self.cluster.trace("node %d: disk has space", node.id)
        node.disk.full = False

    def broken_fsync(self) -> None:
        node = self._some_leader()
        if node is not None:
            self.cluster.trace("node %d: the next fsync fails", node.id)
            node.disk.fail_next_sync = True
            self.cluster.scheduler.after(4.0, node.restart)

    def stop_replica(self) -> None:
        """Damages an entry and so stops one replica of a node; the others of its node go on."""
        node = self._some_leader()
        if node is None or not node.partitions:
            return
        gid = self.rng.choice(sorted(node.partitions))
        self.cluster.trace("node %d finds damage in group %d", node.id, gid)
        node.partitions[gid].unreadable(PlantedDamage("a damaged entry"))
        self._until_then(10.0, self._mend, node, node.incarnation)

    def _mend(self, node: Node, incarnation: int) -> None:
        if node.incarnation == incarnation:
            node.crash("an operator mends its disk")
            node.restart()

    def lose_store(self) -> None:
        """Starts a node without its volume; an operator mounts it later."""
        node = self._some_leader()
        if node is None or any(other.volume.is_lost for other in self.cluster.nodes.values()):
            return
        node.crash("its volume is gone")
        node.volume.unmount()
        node.start()
        self._until_then(10.0, self._find_store, node)

    def _find_store(self, node: Node) -> None:
        self.cluster.trace("node %d: its volume is mounted again", node.id)
        node.volume.mount()
        node.restart()

    def jump_clock(self) -> None:
        node = self._some_node()
        if node is not None:
            node.wall_skew_ms += int(self.rng.uniform(-20_000, 20_000) * self.rng.random() ** 2)
            self.cluster.trace("node %d: wall clock is off by %d ms", node.id, node.wall_skew_ms)

    # -- operators and maintenance ------------------------------------------------------------

    def transfer(self) -> None:
        node = self._some_leader()
        if node is None:
            return
        for gid, machine in node.machines.items():
            group = machine.group
            if group is not None and group.is_leader and group.members.voters:
                others = group.members.voters
                target = others[self.rng.randrange(len(others))]
                self.cluster.trace("node %d: transfer of %d to node %d", node.id, gid, target)
                group.transfer(target)
                node.driver.touch(gid)

    def campaign(self) -> None:
        node = self._some_node()
        if node is not None:
            for gid, machine in node.machines.items():
                if machine.group is not None:
                    machine.group.campaign()
                    node.driver.touch(gid)

    def checkpoint(self) -> None:
        node = self._some_node()
        if node is not None:
            node.checkpoint()

    def compact(self) -> None:
        node = self._some_node()
        if node is not None:
            self.cluster.trace("node %d: checkpoint and compaction", node.id)
            node.checkpoint()
            if node.alive:  # the power may have failed in that
                node.compact()

    # -- clients ----------------------------------------------------------------------------

    def bad_clients(self) -> None:
        cluster, rng = self.cluster, self.rng
        cluster.client_loss, cluster.client_repeats = 0.3 * rng.random(), 0.3 * rng.random()
        cluster.client_delay = 0.001 * 10 ** (2.3 * rng.random())
        cluster.trace("clients: loss %.2f, late repeats %.2f", cluster.client_loss,
                      cluster.client_repeats)  # fmt: skip
        self._until_then(12.0, self._good_clients)

    def _good_clients(self) -> None:
        self.cluster.client_loss = self.cluster.client_repeats = 0.0
        self.cluster.client_delay = 0.003

    def cut_off_clients(self) -> None:
        node = self._some_leader()
        if node is not None:
            self.cluster.trace("clients cannot reach node %d", node.id)
            self.cluster.cut_off.add(node.id)
            self._until_then(8.0, self.cluster.cut_off.discard, node.id)

    def take_over(self) -> None:
        self.clients.take_over()

    def resolve(self) -> None:
        self.clients.resolve()
