"""This node's periodic work for its own place in the cluster.

every LOOK_PERIOD --> OwnPlace: listens when it has peers, reports its address (`other_nodes`),
                                ends when it was removed
JoinNode --propose--> the metadata's leader
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cluster.config.addresses import ListenError
from cluster.config.exposure import check_exposure
from cluster.config.node_config import NodeConfig, check_peer_ports
from cluster.errors import ClusterError, ConfigError
from cluster.metadata.state import MetadataState
from cluster.node.links.addresses import own_listen
from cluster.node.membership.find_cluster import ask_all
from cluster.node.membership.known_nodes import KnownNodes, OtherNodes
from cluster.node.metadata.proposer import MetadataProposer
from cluster.node.tasks import Tasks
from cluster.transport.hellos import Acceptance
from cluster.transport.listener import PeerListener
from cluster.v1 import metadata_pb2 as mpb
from storage.registrations import StoredRegistrations

log = logging.getLogger(__name__)

LOOK_PERIOD = 0.5  # seconds
COMMAND_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Opened:
    """Knowledge of other nodes before the replicas open, and the listener for them."""

    known: KnownNodes
    listener: PeerListener
    acceptance: Acceptance
    stored: StoredRegistrations


def bind(config: NodeConfig, listener: PeerListener) -> None:
    """Take the port for other nodes. Raises ListenError.

    A node whose settings name no other takes the port if it can: others may know it and connect.
    """
    if config.peer_listen:
        listener.bind(config.peer_listen)
        return
    try:
        _check_listen(config)
        listener.bind(own_listen(config))
    except (ConfigError, ListenError) as error:
        log.debug("no other node is heard here: %s", error)


def _check_listen(config: NodeConfig) -> None:
    """Raises ConfigError if this node's settings only suit a node that stays alone."""
    check_peer_ports(config, config.nodes)
    check_exposure(config, alone=False)


class OwnPlace:
    """The place of one node. on_failure(error): the node must end."""

    def __init__(
        self,
        config: NodeConfig,
        listener: PeerListener,
        metadata: MetadataState,
        proposer: MetadataProposer,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._listener = listener
        self._on_failure = on_failure
        self._metadata = metadata
        self._proposer = proposer
        self.group = proposer.group
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.stop()

    def propose(self, command: mpb.MetadataCommand, done: Callable[[], None]) -> None:
        """Propose a command; `done` is called once, in any case."""
        self._tasks.spawn(self._propose(command, done))

    async def _propose(self, command: mpb.MetadataCommand, done: Callable[[], None]) -> None:
        node = command.join_node.node_id
        try:
            result = await self._proposer.propose(command, COMMAND_TIMEOUT)
        except ClusterError as error:
            log.info("node %d was not taken in this time: %s", node, error)
        else:
            if result.error:
                log.info("node %d has to wait: %s", node, result.message)
        finally:
            done()

    async def watch(self, others: OtherNodes, stop_serving: Callable[[], Awaitable[None]]) -> None:
        """End a node that was removed: its metadata is out of date, clients ask others."""
        is_removed = False
        clock = asyncio.get_running_loop().time
        while True:
            try:
                if self._metadata.membership.is_changing:
                    await self.listen()
                others.look()
                if others.is_lost(clock()):
                    answers = await ask_all(self._config, others.join, self._listener.tls)
                    others.told(answers.values())
                if self.group.removed is not None and not is_removed:
                    log.warning(
                        "this node was removed from its cluster: it serves no clients any more"
                    )
                    is_removed = True
                    await stop_serving()
                others.check_place(clock())
            except ClusterError as error:
                self._on_failure(error)
                return
            await asyncio.sleep(LOOK_PERIOD)

    async def listen(self) -> None:
        """Listen on a node that was alone and may have peers. Raises ConfigError, ListenError."""
        if not self._listener.is_bound:
            _check_listen(self._config)
            self._listener.bind(own_listen(self._config))
            await self._listener.start()
