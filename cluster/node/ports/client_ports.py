"""Ports of a node's clients: gRPC, and Kafka's protocol if that is set.

node --bind, offer, start, leave, stop, close--> ClientPorts --> Server, KafkaPort
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.access.budget import Budget
from cluster.access.gate import Gate
from cluster.config.node_config import NodeConfig
from cluster.kafka.needs import Rights
from cluster.kafka.port import KafkaPort
from cluster.kafka.sent import Sent
from cluster.kafka.session import Session
from cluster.node.ports.offered import add_services
from cluster.node.transactions.transactions import Transactions
from cluster.rpc.server import Server
from cluster.security.certificates import Certificates
from cluster.services.context import NodeContext
from cluster.services.groups.running_groups import GroupMembers


class ClientPorts:
    """The ports of one node. connections: of clients at a time, at each port."""

    def __init__(
        self,
        config: NodeConfig,
        memory: Budget,
        connections: int,
        certificates: Certificates | None,
        gate: Gate | None,
        founding: int,
    ) -> None:
        self._gate = gate
        self.grpc = Server(config, memory, connections, certificates, gate, founding=founding)
        self._kafka: KafkaPort | None = None
        if config.kafka_listen:
            limit, guard = config.max_message_bytes, gate or Gate(None, None, None)
            self._kafka = KafkaPort(
                config.kafka_listen, memory, limit, connections, guard, certificates
            )
        self._node: NodeContext | None = None
        self._open_session: Callable[[Rights], Session] | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the bound ports."""
        return (self.grpc.port,) if self._kafka is None else (self.grpc.port, self._kafka.port)

    def bind(self) -> None:
        """Take the ports; clients wait until `start`. Raises ListenError."""
        self.grpc.bind()
        if self._kafka is not None:
            self._kafka.bind()

    def offer(
        self,
        node: NodeContext,
        now_ms: Callable[[], int],
        members: GroupMembers,
        transactions: Transactions,
    ) -> None:
        """Add the node's services. now_ms: see `add_services`."""
        self._node = node
        self._open_session = add_services(
            node, self.grpc.grpc, now_ms, self._gate, members, transactions
        )

    async def start(self) -> None:
        """Answer clients, as not serving yet."""
        await self.grpc.start()
        if self._kafka is not None:
            assert self._open_session is not None, "services are offered first"
            await self._kafka.start(self._open_session, self._sent)

    def _sent(self) -> Sent:
        assert self._node is not None
        return Sent(self._node.metadata.coordinator.next_id)

    async def stop(self, timeout: float) -> None:
        """Take no new calls; running ones get `timeout` seconds, Kafka's clients none."""
        if self._kafka is not None:
            await self._kafka.stop()
        await self.grpc.stop(timeout)

    async def close(self) -> None:
        """Give the ports back, also if they never answered."""
        if self._kafka is not None:
            await self._kafka.stop()
        await self.grpc.close()
