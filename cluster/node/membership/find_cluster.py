"""Admission of a new data directory: asks the other nodes for its role, before it opens anything.

    data directory without a founding --Join--> all other nodes --Welcome--> data directory
    other new nodes --Join--> it knows no founding either
    nodes of a cluster that look for this one --Hello--> so there is a founding

Nothing is written before a node that founded the cluster admits the directory, or the metadata
group has added it. A cluster is founded only when all others that the settings name have said that
they know no founding: one that does not answer may hold the last copy of an older one (ADR 94).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from cluster.config.node_config import NodeConfig
from cluster.errors import ClusterError
from cluster.node.links.addresses import asked, join_of
from cluster.node.links.peers import REFUSAL_TIMEOUT
from cluster.security.names import NamelessError
from cluster.security.peer_tls import PeerTls
from cluster.transport.connecting import StrangerError, ask
from cluster.transport.hellos import Acceptance, NewHere, NodeIdentity
from cluster.transport.listener import PeerListener
from cluster.transport.stream import StreamError
from cluster.v1 import peer_pb2 as pb

log = logging.getLogger(__name__)

ASK_PERIOD = 0.5  # seconds
FIRST_ASK_PERIOD = 0.1
HEAR_TIME = 0.5  # seconds; nodes that look for this one try twice
QUIET_TIME = 2.0  # seconds, in which nodes that start together find each other


class Directory(Protocol):
    """The directory to admit. `storage.identity.DirectoryLock` is one."""

    @property
    def directory_id(self) -> int: ...
    @property
    def founding(self) -> int: ...
    @property
    def instance(self) -> int: ...
    def found(self, members: Iterable[int]) -> None: ...
    def note_founding(self, members: Iterable[int], founding: int) -> None: ...
    def note_joined(self, members: Iterable[int], founding: int, instance: int) -> None: ...


class Admission:
    """State of an admission, driven by the others' answers. Pure: the simulator uses it, too.

    join:  the question to the other nodes.
    hears: other nodes can reach this one meanwhile.
    """

    def __init__(self, config: NodeConfig, directory: Directory) -> None:
        self._config = config
        self._directory = directory
        self.hears = False
        self._said = ""
        self._refused_since = 0.0
        self._began: float | None = None
        self._heard: pb.Hello | None = None

    @property
    def join(self) -> pb.Join:
        directory = self._directory
        return join_of(self._config, directory.directory_id, directory.instance)

    @property
    def is_needed(self) -> bool:
        """A directory that joined also asks, for the other nodes' addresses."""
        return not self._directory.founding or self._directory.instance > 0

    def acceptance(self, identity: NodeIdentity) -> Acceptance:
        """Return an acceptance that lets no node in."""
        heard_of, welcome = self.heard_of, self.welcome
        return NewHere(identity, {}, lambda node, instance: 0, welcome, heard_of=heard_of)

    def heard_of(self, hello: pb.Hello) -> None:
        """Note a node that takes this one for a member of its cluster."""
        config = self._config
        if hello.cluster_id == config.cluster_id and hello.node_id != config.node_id:
            self._heard = self._heard or (hello if hello.founding else None)

    def welcome(self, join: pb.Join) -> pb.Welcome:
        """Answer another new node: this one lets no node in."""
        founding, own = self._directory.founding, self._config.node_id
        if self._heard is not None and not founding:
            founding = self._heard.founding
        if join.node_id == own:  # `join` may name this very node
            is_other = join.directory_id != self._directory.directory_id
            return pb.Welcome(why_not=f"node_id {own} is its own", refused=is_other)
        opens = bool(self._directory.founding)
        why_not = "it opens its data" if opens else "it does not know its cluster yet"
        return pb.Welcome(founding=founding, why_not=f"node {own}: {why_not}")

    def take(
        self, now: float, answers: Mapping[str, pb.Welcome | None]
    ) -> Mapping[int, str] | None:
        """Return the other nodes' addresses as far as known; None: ask again.

        answers: of the nodes at these addresses; None: no answer.
        Raises ClusterError if the cluster does not take this directory, StorageError.
        """
        config, directory = self._config, self._directory
        self._began = now if self._began is None else self._began
        known = [answer for answer in answers.values() if answer is not None and answer.founding]
        joined = next((answer for answer in known if answer.instance), None)
        if joined is not None and not directory.instance:
            directory.note_joined(joined.members, joined.founding, joined.instance)
            log.info("joins the cluster as instance %d of node %d", joined.instance, config.node_id)
        if directory.instance:
            return {} if joined is None else dict(joined.peers)
        admitted = next((answer for answer in known if answer.founds), None)
        if admitted is not None and tuple(admitted.members) == tuple(config.nodes):
            directory.note_founding(admitted.members, admitted.founding)
            log.info("begins with the cluster that was founded as %016x", admitted.founding)
            return {}
        if not known and self._may_found(now, answers):
            directory.found(config.nodes)
            log.info("founds the cluster, as %016x", directory.founding)
            return {}
        self._wait(now, self._why_not(answers, known), known)
        return None

    def _may_found(self, now: float, answers: Mapping[str, pb.Welcome | None]) -> bool:
        config = self._config
        if self._heard is not None or (config.join and len(config.nodes) == 1):
            return False
        assert self._began is not None
        if self.hears and now - self._began < HEAR_TIME:
            return False  # nodes that joined later may look for this one
        if config.found == self._own_id:
            return True
        first = not answers or config.node_id == min(config.nodes)
        return first and None not in answers.values()

    @property
    def _own_id(self) -> str:
        return f"{self._directory.directory_id:016x}"

    def _why_not(self, answers: Mapping[str, pb.Welcome | None], known: list[pb.Welcome]) -> str:
        config, heard = self._config, self._heard
        differing = next((answer for answer in known if answer.founds), None)
        if differing is not None:
            return (
                f"the cluster began with the nodes {_listed(differing.members)}, and the setting "
                f"`nodes` names {_listed(config.nodes)}: name the same ones"
            )
        if known:
            return next((answer for answer in known if answer.refused), known[0]).why_not
        if heard is not None:
            return (
                f"node {heard.node_id} at {heard.peer_address} looks for node {config.node_id} of "
                f"cluster {config.cluster_id!r}, which is founded: set `join` to the addresses of "
                f"its nodes. For another cluster set another cluster_id"
            )
        if config.join and len(config.nodes) == 1:
            return f"no node of a cluster answers at {config.join}"
        silent = ", ".join(address for address, answer in answers.items() if answer is None)
        if config.node_id != min(config.nodes):
            first = f"the cluster is not founded yet: node {min(config.nodes)} has to start first"
            return first + (f", and there is no answer from {silent}" if silent else "")
        return (
            f"there is no answer from {silent or 'others'}, where a cluster may be known that was "
            f"founded before: start these nodes. Only if there never was one, and they cannot "
            f"start, start this node with `--found {self._own_id}`"
        )

    def _wait(self, now: float, why: str, known: list[pb.Welcome]) -> None:
        """Raises ClusterError if this directory is refused for too long."""
        assert self._began is not None
        if why != self._said and (known or self._heard or now - self._began >= QUIET_TIME):
            log.warning("does not join yet: %s", why)
            self._said = why
        is_refused = any(one.refused for one in known)
        self._refused_since = (self._refused_since or now) if is_refused else 0.0
        if self._refused_since and now - self._refused_since > REFUSAL_TIMEOUT:
            raise ClusterError(why)


async def find_cluster(
    admission: Admission, config: NodeConfig, listener: PeerListener, tls: PeerTls | None
) -> Mapping[int, str]:
    """Tell the directory its cluster; returns the other nodes' addresses as far as known.

    Raises ClusterError if the cluster does not take this directory, StorageError.
    """
    if not admission.is_needed:
        return {}
    admission.hears = listener.is_bound
    if admission.hears:
        await listener.start()
    quiet_until = time.monotonic() + QUIET_TIME
    while True:
        answers = await ask_all(config, admission.join, tls)
        said = admission.take(time.monotonic(), answers)
        if said is not None:
            return said
        is_quiet = time.monotonic() < quiet_until
        await asyncio.sleep(FIRST_ASK_PERIOD if is_quiet else ASK_PERIOD)


async def ask_all(
    config: NodeConfig, join: pb.Join, tls: PeerTls | None
) -> Mapping[str, pb.Welcome | None]:
    """Ask the nodes that the settings name; returns answers by address, None for no answer."""
    addresses = asked(config)
    answers = await asyncio.gather(*(_ask(address, join, tls) for address in addresses))
    return dict(zip(addresses, answers, strict=True))


async def _ask(address: str, join: pb.Join, tls: PeerTls | None) -> pb.Welcome | None:
    """Return the answer; None if no node of the cluster answers there."""
    try:
        return await ask(address, join, tls)
    except (OSError, StrangerError, StreamError, ssl.SSLError, NamelessError, ValueError) as error:
        log.debug("asked %s about this directory: %s", address, error)
        return None


def _listed(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))
