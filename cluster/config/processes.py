"""Settings of each process of a machine, from the machine's settings. Pure.

NodeConfig (of the machine) --of_process(i)--> NodeConfig (of one node)

Process 0 keeps the id, ports and data directory, so a machine may change its number of processes.
Process i has its id and ports PROCESS_STEP * i higher, and a directory within the machine's.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cluster.config.addresses import host_and_port, shifted, with_port
from cluster.config.exposure import check_exposure
from cluster.config.node_config import NodeConfig, check_peer_ports
from cluster.config.settings import KIB, MAX_NODE_ID, MIB, PROCESS_STEP
from cluster.errors import ConfigError

PORTS = ("listen", "kafka_listen", "metrics_listen", "health_listen")
LEAST_CLIENT_MEMORY = 256 * MIB
MAX_PORT = 65535


def nodes_of(config: NodeConfig) -> list[int]:
    """Return the node of each process of the machine."""
    return [config.node_id + PROCESS_STEP * process for process in range(config.processes)]


def of_process(config: NodeConfig, process: int) -> NodeConfig:
    """Return the settings of one process. Raises ConfigError.

    A process that `nodes` does not name joins the cluster, once it is added.
    """
    if not 0 <= process < config.processes:
        raise ConfigError(f"process: {process} must be 0..{config.processes - 1}")
    step = PROCESS_STEP * process
    node = config.node_id + step
    nodes, join = config.nodes, config.join
    if node not in nodes:
        nodes = {node: shifted(config.nodes[config.node_id], step)}
        join = ",".join(filter(None, (join, *config.nodes.values())))
    own = dataclasses.replace(
        config,
        process=process,
        node_id=node,
        nodes=nodes,
        join=join,
        data_dir=config.data_dir / Path("processes", str(node)) if process else config.data_dir,
        machine=config.machine or f"machine-{config.node_id}",
        listen=shifted(config.listen, step),
        advertise=shifted(config.advertise, step) if "advertise" in config.given else nodes[node],
        kafka_listen=config.kafka_listen and shifted(config.kafka_listen, step),
        kafka_advertise=config.kafka_advertise and shifted(config.kafka_advertise, step),
        metrics_listen=config.metrics_listen and shifted(config.metrics_listen, step),
        health_listen=config.health_listen and health_of(config, process),
        client_memory_bytes=_client_memory(config),
        page_cache_bytes=_share(config, config.page_cache_bytes, 1),
        tail_cache_bytes=_share(config, config.tail_cache_bytes, 64 * KIB),
        checkpoint_node_bytes=_share(config, config.checkpoint_node_bytes, 64 * KIB),
    )
    check_peer_ports(own, own.nodes)
    check_exposure(own, alone=False)
    return own


def health_of(config: NodeConfig, process: int) -> str:
    """Return where the supervisor asks a process; it answers for the machine at health_listen."""
    return with_port(
        "127.0.0.1:0", host_and_port(config.health_listen)[1] + PROCESS_STEP * (process + 1)
    )


def check_processes(config: NodeConfig) -> None:
    """Raise ConfigError unless the machine can run all its processes beside each other."""
    highest = nodes_of(config)[-1]
    if highest > MAX_NODE_ID:
        raise ConfigError(f"node_id: the last process would be node {highest}, above {MAX_NODE_ID}")
    limit = MAX_PORT - PROCESS_STEP * config.processes
    taken: dict[int, str] = {}
    for name in PORTS:
        address = getattr(config, name)
        if address and not 1 <= (port := host_and_port(address)[1]) <= limit:
            raise ConfigError(
                f"{name}: port {port} must be 1..{limit}, since {config.processes} processes take "
                f"ports {PROCESS_STEP} apart"
            )
        if name == "health_listen" and address:
            taken[port] = name
    for process in range(config.processes):
        own = of_process(config, process)
        ports = {name: host_and_port(getattr(own, name))[1] for name in PORTS if getattr(own, name)}
        ports["listen (of nodes)"] = ports["listen"] + config.peer_port_offset
        for name, port in ports.items():
            other = taken.setdefault(port, f"{name} of process {process}")
            if other != f"{name} of process {process}":
                raise ConfigError(
                    f"{name}: process {process} would take port {port} of {other}: the processes' "
                    f"ports are {PROCESS_STEP} apart; choose other ports"
                )


def _share(config: NodeConfig, value: int, least: int) -> int:
    """Return a process's part of one of the machine's budgets. 0 is no limit, and stays."""
    return value and max(least, value // config.processes)


def _client_memory(config: NodeConfig) -> int:
    """Return the process's memory for clients; the default depends on the free memory."""
    value = config.client_memory_bytes
    if "client_memory_bytes" not in config.given:
        return value
    if value < LEAST_CLIENT_MEMORY * config.processes:
        raise ConfigError(
            f"client_memory_bytes: {value} must be at least {LEAST_CLIENT_MEMORY} for each of "
            f"{config.processes} processes"
        )
    return value // config.processes
