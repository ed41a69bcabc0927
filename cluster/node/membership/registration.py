"""Registration of each start of this node; until it is done, the node takes part in no partition.

    start --begin--> storage/registrations.py --RegisterNode--> metadata --> confirm --> takes part
    each hour --------'

Peers refuse a directory that they know to be an older copy by its Hello. They may not have
heard yet; the metadata group has. So a node takes part in no partition before its start is taken
(`cluster/metadata/registrations.py`). It takes part in the metadata group, or nothing could be
taken.

A copy made while a node runs knows the registration of that moment. So a new one begins each
hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from cluster.config.node_config import NodeConfig
from cluster.errors import ClusterError
from cluster.features import KAFKA, PLACES, REPLICA_CHANGES
from cluster.metadata.nodes import NodesView
from cluster.metadata.places import NodePlace
from cluster.metadata.registrations import RegistrationClaim
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import FENCED
from cluster.node.metadata.proposer import MetadataProposer
from cluster.transport.hellos import NodeIdentity
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from storage.errors import StorageError
from storage.registrations import StoredRegistrations

log = logging.getLogger(__name__)

RENEW_PERIOD = 3600.0  # seconds
LOOK_PERIOD = 1.0


def write_claim(hello: pb.Hello, begun: int, known: int, number: int) -> None:
    hello.registration, hello.known_registration = begun, known
    hello.registration_number = number


def claim_of(hello: pb.Hello) -> RegistrationClaim:
    return RegistrationClaim(
        hello.registration, hello.known_registration, hello.registration_number, hello.incarnation
    )


def refusal(known: NodesView, hello: pb.Hello) -> str:
    """Return why a peer's directory may not take part, or nothing."""
    return known.put_back(hello.node_id, hello.directory_id, claim_of(hello))


class Registering:
    """Registrations of one node. on_failure(error): the node must end."""

    def __init__(
        self,
        config: NodeConfig,
        identity: NodeIdentity,
        stored: StoredRegistrations,
        metadata: MetadataState,
        proposer: MetadataProposer,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._stored = stored
        self._metadata = metadata
        self._proposer = proposer
        self._on_failure = on_failure
        self.takes_part = not self._is_counted

    @property
    def _is_counted(self) -> bool:
        """Return whether starts are registered: all nodes know of it, or it was done before."""
        begun = bool(self._stored.begun)
        return begun or self._metadata.features.is_on(REPLICA_CHANGES)

    def write(self, hello: pb.Hello) -> None:
        """Write the registration into a Hello for peers."""
        stored = self._stored
        write_claim(hello, stored.begun, stored.known, stored.number)

    def refusal(self, hello: pb.Hello) -> str:
        """Return why a peer's directory may not take part, or nothing."""
        return refusal(self._metadata.membership, hello)

    async def register(self, timeout: float) -> bool:
        """Register this node's address for clients, until that is taken.

        False: it is not taken, and the node ends.
        """
        if not self._is_counted:
            return await self._say(timeout)
        if self._stored.begun != self._stored.known and not await self._confirmed(timeout):
            return False  # an earlier start's registration may be done
        return await self._renewed(timeout)

    async def keep(self, timeout: float) -> None:
        """Register each hour, and when all nodes know something new of a registration."""
        clock = asyncio.get_running_loop().time
        renewed = clock()
        while True:
            await asyncio.sleep(LOOK_PERIOD)
            is_due = not self._stored.known or clock() - renewed >= RENEW_PERIOD
            is_due |= self._details != self._registered_details
            if self._is_counted and is_due:
                if not await self._renewed(timeout):
                    return
                renewed = clock()

    @property
    def _details(self) -> tuple[str, NodePlace]:
        """Return the address for Kafka's clients and the labels; empty before all know of them."""
        is_on, config = self._metadata.features.is_on, self._config
        return (
            config.kafka_advertised if is_on(KAFKA) else "",
            NodePlace(config.rack, config.machine) if is_on(PLACES) else NodePlace(),
        )

    @property
    def _registered_details(self) -> tuple[str, NodePlace]:
        view, node = self._metadata.membership, self._config.node_id
        return view.kafka.get(node, ""), view.places.get(node, NodePlace())

    async def _renewed(self, timeout: float) -> bool:
        try:
            self._stored.begin()
        except StorageError as error:
            self._on_failure(error)
            return False
        return await self._confirmed(timeout)

    async def _confirmed(self, timeout: float) -> bool:
        if not await self._say(timeout):
            return False
        last = self._metadata.membership.registration_of(self._config.node_id)
        if last is None or last.id != self._stored.begun:
            return False  # the node was given up meanwhile
        try:
            self._stored.confirm(last.number)
        except StorageError as error:
            self._on_failure(error)
            return False
        self.takes_part = True
        return True

    async def _say(self, timeout: float) -> bool:
        kafka_address, place = self._details
        command = mpb.RegisterNode(
            node_id=self._config.node_id,
            address=self._config.advertised,
            directory_id=self._identity.directory_id,
            kafka_address=kafka_address,
            rack=place.rack,
            machine=place.machine,
        )
        if self._is_counted:
            command.registration = self._stored.begun
            command.known_registration = self._stored.known
            command.incarnation = self._identity.incarnation
        while True:
            with contextlib.suppress(ClusterError):
                result = await self._proposer.propose(
                    mpb.MetadataCommand(register_node=command), timeout
                )
                break
        if result.error == FENCED:
            self._on_failure(ClusterError(result.message))
        elif result.error:
            log.warning("this node is not registered: %s", result.message)
        return not result.error
