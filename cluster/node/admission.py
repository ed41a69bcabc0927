"""A node with a new data directory asks the others what it is, before it opens anything.

    data directory without a founding --Join--> any other node --Welcome--> data directory
                                              it is one that the cluster begins with <-'

If nobody answers, a node that the settings name among the cluster's first goes on as one: the
others refuse its Hello if they know its older directory.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from cluster.config import NodeConfig
from cluster.errors import ClusterError
from cluster.node.peers import REFUSAL_TIMEOUT
from cluster.node.places import asked, own_stream
from cluster.security.names import NamelessError
from cluster.security.peer_tls import PeerTls
from cluster.transport.connecting import StrangerError, ask
from cluster.transport.stream import StreamError
from cluster.v1 import peer_pb2 as pb
from storage.identity import DirectoryLock

log = logging.getLogger(__name__)

ASK_PERIOD = 0.5  # seconds


class Directory(Protocol):
    """What is asked for. `storage.identity.DirectoryLock` is one."""

    @property
    def directory_id(self) -> int: ...
    @property
    def founding(self) -> int: ...
    @property
    def instance(self) -> int: ...
    def note_joined(self, members: Iterable[int], founding: int, instance: int) -> None: ...


class Admission:
    """What a directory becomes by what the others answer. Pure: the simulator's nodes ask so, too.

    join: what they are asked.
    """

    def __init__(self, config: NodeConfig, directory: Directory) -> None:
        self._config, self._directory = config, directory
        self._said, self._refused_since = "", 0.0
        self.join = pb.Join(
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            directory_id=directory.directory_id,
            address=config.advertised,
            peer_address=own_stream(config),
        )

    @property
    def is_needed(self) -> bool:
        """A directory that joined asks where the others are, too."""
        return not self._directory.founding or self._directory.instance > 0

    def take(self, now: float, answers: Iterable[pb.Welcome | None]) -> Mapping[int, str] | None:
        """Where the other nodes are, as far as told; None: they have to be asked again.

        Raises ClusterError if the cluster does not take this directory, StorageError.
        """
        config, directory = self._config, self._directory
        known = [answer for answer in answers if answer is not None and answer.founding]
        found = next((answer for answer in known if answer.instance), None)
        if found is not None and not directory.instance:
            directory.note_joined(found.members, found.founding, found.instance)
            log.info("joins the cluster as instance %d of node %d", found.instance, config.node_id)
        if directory.instance:
            return {} if found is None else dict(found.peers)
        begins = not config.join or len(config.nodes) > 1
        if begins and (not known or any(answer.founds for answer in known)):
            return {}
        why = known[0].why_not if known else f"no node of a cluster answers at {config.join}"
        if why != self._said:
            log.warning("does not join yet: %s", why)
        self._said, is_refused = why, any(one.refused for one in known)
        self._refused_since = (self._refused_since or now) if is_refused else 0.0
        if self._refused_since and now - self._refused_since > REFUSAL_TIMEOUT:
            raise ClusterError(why)
        return None


async def find_cluster(
    config: NodeConfig, lock: DirectoryLock, tls: PeerTls | None
) -> Mapping[int, str]:
    """Has the directory know its cluster; returns where the other nodes are, as far as told.

    Raises ClusterError if the cluster does not take this directory, StorageError.
    """
    admission = Admission(config, lock)
    while admission.is_needed:
        answers = [await _ask(address, admission.join, tls) for address in asked(config)]
        said = admission.take(time.monotonic(), answers)
        if said is not None:
            return said
        await asyncio.sleep(ASK_PERIOD)
    return {}


async def _ask(address: str, join: pb.Join, tls: PeerTls | None) -> pb.Welcome | None:
    """None: nobody of the cluster answers there."""
    try:
        return await ask(address, join, tls)
    except (OSError, StrangerError, StreamError, ssl.SSLError, NamelessError, ValueError) as error:
        log.debug("asked %s what this directory is: %s", address, error)
        return None
