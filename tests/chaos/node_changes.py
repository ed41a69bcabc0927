"""Node changes by an operator: nodes come, go and are replaced; others are killed meanwhile.

ReplaceDisk, AddNode, RemoveNode (faults.py) --> NodeChanges --Admin--> the cluster
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.local_cluster import LocalCluster
from harness.node_process import HarnessError
from oncelog import Admin, InvalidRequestError, NodeStatus, OncelogError

SETTLE_TIMEOUT = 120.0  # seconds until a node has its full share
LOOK_AGAIN = 0.25
KILLED_WHILE = (0.05, 1.0)  # seconds between a kill and the next start, drawn from this range
GAP = (0.3, 4.0)  # and between kills


class NodeChanges:
    """Changes of one cluster's nodes, for one fault.

    kills: number of nodes that are killed while changes are awaited, fewer at a time than a half of
    those that run. Any of them may be one.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        rng: random.Random,
        wait: Callable[[float], None],
        *,
        asked: Iterable[int],
        kills: int = 0,
    ) -> None:
        """asked: nodes that stay."""
        self._cluster, self._rng, self._wait, self._left = cluster, rng, wait, kills
        self._admin = Admin(bootstrap_servers=[cluster.addresses[node] for node in asked])
        self._next_kill = rng.uniform(*GAP)
        self.killed: list[int] = []

    def close(self) -> None:
        self._admin.close()

    def add(self, node: int) -> None:
        self._decide(lambda: self._admin.add_node(node))

    def remove(self, node: int) -> None:
        """Removes a node; returns when the cluster has forgotten it and its process is ended."""
        self._decide(lambda: self._admin.remove_node(node))
        self._until(lambda: self._status(node) is None, f"node {node} is forgotten")
        process = self._cluster.nodes[node]
        if process.running:
            process.kill()

    def replace(self, node: int) -> None:
        """Replaces a node; repeats while the others have not noticed that the node is gone."""

        def replaced() -> bool:
            try:
                self._admin.replace_node(node)
            except InvalidRequestError as error:
                if "is running" not in str(error):
                    raise
                return False
            return True

        self._until(replaced, f"node {node} does not seem to run")

    def settle(self, nodes: Iterable[int]) -> None:
        """Waits until no change of the nodes is in progress, and they are alive."""
        wanted = set(nodes)

        def settled() -> bool:
            found = {one.node_id: one for one in self._nodes()}
            return all(
                node in found and found[node].alive and found[node].settled for node in wanted
            )

        self._until(settled, f"nothing is under way with nodes {sorted(wanted)}")

    def move_to(self, topic: str, node: int) -> None:
        """Moves each partition of the topic to this node, with its present number of replicas."""
        others = [one for one in self._cluster.nodes if one != node]
        for one in self._admin.describe_topic(topic).partitions:
            replicas = [node, *self._rng.sample(others, len(one.replicas) - 1)]
            self._rng.shuffle(replicas)
            self._admin.reassign_partition(topic, one.partition, replicas)
        self._until(
            lambda: not any(one.target for one in self._admin.describe_topic(topic).partitions),
            f"{topic} is where it shall be",
        )

    def _decide(self, decide: Callable[[], object]) -> None:
        """Decides on a node; repeats while an earlier decision about it is in progress."""

        def decided() -> bool:
            try:
                decide()
            except InvalidRequestError as error:
                if "is being added" not in str(error):
                    raise
                return False
            return True

        self._until(decided, "the change is decided")

    def _status(self, node: int) -> NodeStatus | None:
        return next((one for one in self._nodes() if one.node_id == node), None)

    def _nodes(self) -> list[NodeStatus]:
        return self._admin.list_nodes()

    def _until(self, done: Callable[[], bool], what: str) -> None:
        for _ in range(int(SETTLE_TIMEOUT / LOOK_AGAIN)):
            try:
                if done():
                    return
            except OncelogError as error:
                if not error.retriable:
                    raise
            self._pass(LOOK_AGAIN)
        raise HarnessError(f"not so: {what}: {self._nodes()}\n{self._cluster.logs()}")

    def _pass(self, seconds: float) -> None:
        self._wait(seconds)
        self._next_kill -= seconds
        if self._left == 0 or self._next_kill > 0:
            return
        running = self._cluster.running
        most = min(self._left, (len(running) - 1) // 2)
        down = self._rng.sample(running, self._rng.randint(1, most))
        self._left -= len(down)
        self._next_kill = self._rng.uniform(*GAP)
        self._cluster.kill(down)
        self._wait(self._rng.uniform(*KILLED_WHILE))
        for node in down:
            self._cluster.nodes[node].start()  # it may not serve before it is taken in
        self.killed += down


def empty(directory: Path) -> None:
    """Empties a directory as a new disk is; the file system's own entries stay."""
    for path in directory.iterdir():
        if path.name != "lost+found":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
