"""Layout of a cluster on this machine: addresses, routes, a network; kept in cluster.json.

A layout is planned once and stays fixed while its cluster lives. `LocalCluster` starts the nodes
from it. Clients reach each node, and nodes reach each other, by the proxy's route between them;
without a proxy, directly.

A machine is a node, or with `processes` above 1 a supervisor of several. Its id and ports are those
of its first node; those of the next ones are PROCESS_STEP higher.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from harness import disk, network
from harness.network import Network
from harness.node_process import HarnessError, NodeSpec
from harness.ports import LOOPBACK, PROCESS_STEP, above, beside, free_ports, host_of
from harness.proxy import RouteSpec
from oncelog.certificates import make_authorities, make_client, make_node

DESCRIPTION = "cluster.json"
NODE_PORT = 7000  # in a namespace of its own every port is free
METRICS_PORT = 7100
KAFKA_PORT = 7200
CLIENT = "tester"  # client name of a secured cluster


@dataclass(frozen=True, slots=True)
class Layout:
    """`listen` and `metrics`: addresses by node. disks: each node has a disk of its own."""

    root: Path
    cluster_id: str
    processes: int  # of each machine
    settings: Mapping[str, str | int]
    listen: Mapping[int, str]
    metrics: Mapping[int, str]
    kafka: Mapping[int, str]  # where clients of Kafka's protocol are served; empty: nowhere
    disks: bool
    network: Network | None
    secured: bool  # TLS on all ports, with certificates in `certificates`
    control_port: int  # of the proxy; 0: no proxy
    routes: Sequence[RouteSpec]

    @classmethod
    def plan(
        cls,
        root: Path,
        nodes: int,
        settings: Mapping[str, str | int],
        *,
        cluster_id: str,
        proxied: bool,
        metrics: bool,
        kafka: bool,
        disks: bool,
        namespaces: bool,
        ports: Sequence[int] | None,
        secured: bool = False,
        processes: int = 1,
    ) -> Layout:
        """Plans a layout on free ports. Raises HarnessError if this machine cannot run it.

        nodes: or machines, with several processes each.
        """
        if processes > 1 and (proxied or disks or namespaces):
            raise HarnessError("processes: not with proxied, disks or namespaces; leave those out")
        if disks and disk.missing():
            raise HarnessError(disk.missing())
        if namespaces and network.missing():
            raise HarnessError(network.missing())
        ids = range(1, nodes + 1)
        own = network.network_for(root, ids) if namespaces else None
        listen = _addresses(ids, own, ports, NODE_PORT, processes)
        kafka_listen = _addresses(ids, own, None, KAFKA_PORT, processes) if kafka else {}
        return cls(
            root=root,
            cluster_id=cluster_id,
            processes=processes,
            settings=dict(settings),
            listen=listen,
            metrics=_addresses(ids, own, None, METRICS_PORT, processes) if metrics else {},
            kafka=kafka_listen,
            disks=disks,
            network=own,
            secured=secured,
            control_port=free_ports(1)[0] if proxied else 0,
            routes=_routes(listen, kafka_listen, own) if proxied else [],
        )

    @classmethod
    def load(cls, root: Path) -> Layout:
        """Reads the layout in `root`. Raises HarnessError if `root` holds no cluster."""
        try:
            raw = json.loads((root / DESCRIPTION).read_text())
        except FileNotFoundError:
            raise HarnessError(f"there is no cluster in {root}: scripts/cluster start") from None
        listen = {int(node): address for node, address in raw["listen"].items()}
        own = None
        if raw["network"] is not None:
            name, base = raw["network"]
            own = Network(name, base, listen)
        return cls(
            root=root,
            cluster_id=raw["cluster_id"],
            processes=raw.get("processes", 1),
            settings=raw["settings"],
            listen=listen,
            metrics={int(node): address for node, address in raw["metrics"].items()},
            kafka={int(node): address for node, address in raw["kafka"].items()},
            disks=raw["disks"],
            network=own,
            secured=raw["secured"],
            control_port=raw["control_port"],
            routes=[RouteSpec(*route) for route in raw["routes"]],
        )

    def save(self) -> None:
        """Writes the file that `load` reads."""
        self.root.mkdir(parents=True, exist_ok=True)
        text = {
            "cluster_id": self.cluster_id,
            "processes": self.processes,
            "settings": self.settings,
            "listen": self.listen,
            "metrics": self.metrics,
            "kafka": self.kafka,
            "disks": self.disks,
            "network": None if self.network is None else [self.network.name, self.network.base],
            "secured": self.secured,
            "control_port": self.control_port,
            "routes": [[route.name, route.listen, route.target] for route in self.routes],
        }
        (self.root / DESCRIPTION).write_text(json.dumps(text, indent=2) + "\n")

    @property
    def machines(self) -> list[int]:
        """The first node of each machine, which is the machine's id."""
        return [node for node in self.listen if node < PROCESS_STEP]

    def nodes_of(self, machine: int) -> list[int]:
        return [machine + PROCESS_STEP * process for process in range(self.processes)]

    def client_address(self, node: int) -> str:
        return self._route(f"client-{node}", node)

    def kafka_address(self, node: int) -> str:
        """Address for clients of Kafka's protocol."""
        own = self.kafka[node]
        return next((route.listen for route in self.routes if route.target == own), own)

    def spec(self, node: int) -> NodeSpec:
        """Start settings of a node, or of a machine."""
        return NodeSpec(
            node_id=node,
            listen=self.listen[node],
            advertise=self.client_address(node),
            nodes={peer: self._route(f"{node}-{peer}", peer) for peer in self.listen},
            data_dir=self.root / f"node{node}",
            log_file=self.root / f"node{node}.log",
            cluster_id=self.cluster_id,
            metrics_listen=self.metrics.get(node, ""),
            settings={
                **self._security(node),
                **self._kafka(node),
                **self._several(node),
                **self.settings,
            },
            within=() if self.network is None else tuple(self.network.command(node)),
        )

    @property
    def certificates(self) -> Path:
        return self.root / "certs"

    def make_certificates(self) -> None:
        """Makes missing certificates of a secured cluster and of one client; existing ones stay."""
        if not self.secured or self.certificates.exists():
            return
        make_authorities(self.certificates, days=1)
        for machine in self.machines:
            hosts = {host_of(self.listen[machine]), host_of(self.client_address(machine))}
            own, others = (self.certificates, machine, self.cluster_id), self.nodes_of(machine)
            make_node(*own, sorted(hosts), days=1, others=others)
        make_client(self.certificates, CLIENT, days=1)

    def client_files(self) -> dict[str, Any]:
        """Settings of a client with access; empty if the cluster is not secured."""
        own = self.certificates / f"client-{CLIENT}"
        files = {
            "tls_ca_file": "ca.crt",
            "tls_cert_file": "client.crt",
            "tls_key_file": "client.key",
        }
        return {name: str(own / file) for name, file in files.items()} if self.secured else {}

    def _security(self, node: int) -> dict[str, str]:
        if self.secured:
            own = self.certificates / f"node-{node}"
            files = ("tls.crt", "tls.key", "tls-ca.crt", "peer.crt", "peer.key", "peer-ca.crt")
            return {_setting(file): str(own / file) for file in files}
        # A namespace's network belongs to this machine.
        return {} if self.network is None else {"insecure": "true"}

    def _kafka(self, node: int) -> dict[str, str]:
        if not self.kafka:
            return {}
        return {"kafka_listen": self.kafka[node], "kafka_advertise": self.kafka_address(node)}

    def _several(self, machine: int) -> dict[str, str | int]:
        if self.processes == 1:
            return {}
        return {"processes": self.processes, "machine": f"m{machine}"}

    def _route(self, name: str, node: int) -> str:
        """Address of that route to the node; the node's own address without a route."""
        # Of two routes with one name, the last is for calls.
        found = [route.listen for route in self.routes if route.name == name]
        return found[-1] if found else self.listen[node]


def _setting(file: str) -> str:
    """Setting of a certificate file: tls.crt -> tls_cert, peer-ca.crt -> peer_ca."""
    stem, _, kind = file.partition(".")
    port, _, ca = stem.partition("-")
    return f"{port}_ca" if ca else f"{port}_{'cert' if kind == 'crt' else 'key'}"


def _addresses(
    ids: Sequence[int],
    own: Network | None,
    ports: Sequence[int] | None,
    usual: int,
    processes: int,
) -> dict[int, str]:
    """Listen addresses of the nodes: on loopback, or in each node's namespace."""
    if own is not None:
        chosen = ports or [usual] * len(ids)
        return {n: f"{own.address(n)}:{port}" for n, port in zip(ids, chosen, strict=True)}
    chosen = ports or free_ports(len(ids), processes)
    machines = {n: f"{LOOPBACK}:{port}" for n, port in zip(ids, chosen, strict=True)}
    steps = range(0, processes * PROCESS_STEP, PROCESS_STEP)
    return {n + step: beside(address, step) for step in steps for n, address in machines.items()}


def _routes(
    listen: Mapping[int, str], kafka: Mapping[int, str], own: Network | None
) -> list[RouteSpec]:
    ours = LOOPBACK if own is None else own.ours
    wanted = [(f"client-{node}", ours, node) for node in listen]
    for a, b in permutations(listen, 2):
        wanted.append((f"{a}-{b}", LOOPBACK if own is None else own.between(a, b), b))
    ports = iter(free_ports(len(wanted) + len(kafka)))
    routes = [RouteSpec(name, f"{here}:{next(ports)}", listen[node]) for name, here, node in wanted]
    # Streams of frames between nodes have ports of their own. The proxy cuts them together
    # with the calls between the same two nodes.
    streams = [
        RouteSpec(route.name, above(route.listen), above(route.target))
        for route in routes
        if not route.name.startswith("client-")
    ]
    # Kafka's clients are cut together with ours.
    to_kafka = [RouteSpec(f"client-{node}", f"{ours}:{next(ports)}", kafka[node]) for node in kafka]
    return [*streams, *to_kafka, *routes]
