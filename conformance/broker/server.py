"""Broker for one case: some nodes, each a gRPC server behind a gate, over one cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import grpc.aio

from conformance.broker.cluster import Cluster
from conformance.broker.foundings import NodeFounding
from conformance.broker.gate import Gate
from conformance.broker.honest import add_services
from conformance.broker.journal import Journal
from conformance.broker.lies import Lie, Script
from conformance.broker.producing import Held
from conformance.broker.secured import Secured
from conformance.broker.stage import Stage
from oncelog.v1 import cluster_pb2

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
]
# Actions of a case on the cluster, by the method's name.
CLUSTER_ACTIONS = (
    "move_leader",
    "append_others",
    "truncate",
    "carry",
    "lag",
    "advance_time",
    "forget_producers",
    "take_over",
    "lease_elsewhere",
    "create_topic",
    "delete_topic",
    "grow_topic",
    "recreate_topic",
    "move_offsets",
    "assign_member",
    "fence_member",
    "abort_transaction",
    "begin_elsewhere",
    "hold_markers",
    "write_markers",
    "begin_batch",
)
NODE_ACTIONS = ("stop_node", "start_node", "freeze_node", "thaw_node", "cut_after", "found_anew")
HELD_ACTIONS = ("release", "arrive")
TOKEN_ACTIONS = ("accept_token", "write_token")
ACTIONS = ("stop_lying", *TOKEN_ACTIONS, *CLUSTER_ACTIONS, *NODE_ACTIONS, *HELD_ACTIONS)


class Broker:
    """Serves within `async with Broker(...) as broker:`."""

    def __init__(
        self,
        nodes: int,
        lies: Iterable[Lie],
        lifetime_ms: int,
        security: str = "",
        racks: Sequence[str] = (),
    ) -> None:
        # The name of a machine that took over a node's address.
        self._host = "elsewhere.test" if security == "another_host" else ""
        self.secured = Secured("tls" if self._host else security)
        self.cluster = Cluster(nodes, _wall_clock_ms, lifetime_ms, racks)
        self.journal = Journal()
        self.script = Script(lies)
        self._held = Held()
        self._gates: dict[int, Gate] = {}
        self._foundings: dict[int, NodeFounding] = {}
        self._servers: list[grpc.aio.Server] = []

    @property
    def bootstrap_servers(self) -> list[str]:
        return list(self.cluster.addresses.values())

    async def __aenter__(self) -> Broker:
        for node_id in self.cluster.node_ids:
            await self._start(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for gate in self._gates.values():
            await gate.close()
            gate.release()
        await asyncio.gather(*(server.stop(None) for server in self._servers))
        self.secured.close()

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> None:
        """Creates a topic. `settings`: fields of TopicConfig, enums by name."""
        self.cluster.create_topic(name, partitions, cluster_pb2.TopicConfig(**settings))

    async def _start(self, node_id: int) -> None:
        stage = Stage(node_id, self.cluster, self.script, self.journal, self.act)
        founding = self._foundings[node_id] = NodeFounding(node_id)
        guards = [self.secured.doorkeeper, founding]
        server = grpc.aio.server(options=OPTIONS, interceptors=guards)
        add_services(stage, founding, self._held, server)
        gate = self._gates[node_id] = Gate(self.secured.port(server, self._host))
        await server.start()
        self._servers.append(server)
        await gate.open()
        self.cluster.add_node(node_id, f"127.0.0.1:{gate.port}")

    async def act(self, step: Mapping[str, Any]) -> None:
        """Carries out a step on the cluster, its nodes, or held messages."""
        arguments = {name: value for name, value in step.items() if name != "cluster"}
        what = step["cluster"]
        if what == "stop_lying":
            self.script.stop()
        elif what in TOKEN_ACTIONS:
            getattr(self.secured, what)(**arguments)
        elif what in CLUSTER_ACTIONS:
            getattr(self.cluster, what)(**arguments)
        elif what in HELD_ACTIONS:
            getattr(self._held, what)(**arguments)
        else:
            await self._act_on_node(what, **arguments)

    async def _act_on_node(self, what: str, node: int, size: int = 0, founding: int = 0) -> None:
        gate = self._gates[node]
        match what:
            case "stop_node":
                self.cluster.stopped.add(node)
                await gate.close()
            case "start_node":
                self.cluster.stopped.discard(node)
                await gate.open()
            case "found_anew":
                await gate.close()
                self._foundings[node].found(founding)
                await gate.open()
            case "freeze_node":
                gate.freeze()
            case "thaw_node":
                gate.thaw()
            case "cut_after":
                gate.cut_after(size)
            case _:
                raise AssertionError(f"{what} is no action")


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)
