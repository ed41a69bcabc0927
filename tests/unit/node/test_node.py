"""A node's life: a start that fails midway undoes its steps, and a stop undoes all."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from cluster.config.addresses import ListenError
from cluster.config.node_config import NodeConfig
from cluster.node import node as node_module
from cluster.node.links.peers import Peers
from cluster.node.node import Node
from cluster.node.replicas.driver_loop import DriverLoop
from cluster.node.replicas.replicas import Replicas
from cluster.rpc.server import Server
from cluster.transport.listener import PeerListener
from harness.ports import free_ports
from storage.engine import Engine
from storage.errors import StorageError
from storage.identity import claim

STEPS: dict[str, tuple[Any, str]] = {
    "ports": (Server, "bind"),
    "engine": (Engine, "open"),
    "metadata group": (Replicas, "open_metadata"),
    "links": (Peers, "open"),
    "driver loop": (DriverLoop, "start"),
    "peers' streams": (PeerListener, "start"),
    "calls": (Server, "start"),
    "maintenance": (node_module, "start_maintenance"),
}


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    """Node 1 of three, which have founded their cluster; the others are not there."""
    with claim(tmp_path / "data", "oncelog", 1) as lock:
        lock.found([1, 2, 3])
    ports = free_ports(4)
    nodes = ",".join(f"{node}=127.0.0.1:{ports[node - 1]}" for node in (1, 2, 3))
    return NodeConfig.load(
        [
            *("--node-id", "1", "--nodes", nodes, "--data-dir", str(tmp_path / "data")),
            *("--listen", f"127.0.0.1:{ports[0]}", "--metrics-listen", f"127.0.0.1:{ports[3]}"),
        ],
        {},
    )


async def starts_and_stops(config: NodeConfig) -> None:
    """Lock, ports and store are free, and are given back."""
    node = await Node.start(config)
    await node.stop()


@pytest.mark.parametrize("step", STEPS)
async def test_a_start_that_fails_undoes_what_was_done(
    step: str, config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = STEPS[step]
    tasks, threads = asyncio.all_tasks(), threading.active_count()

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise StorageError(f"{step}: not today")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fails)
        with pytest.raises(StorageError, match="not today"):
            await Node.start(config)
    assert asyncio.all_tasks() == tasks
    assert threading.active_count() <= threads + 1  # gRPC's own stays
    await starts_and_stops(config)


async def test_a_stop_gives_everything_back(config: NodeConfig) -> None:
    tasks = asyncio.all_tasks()
    await starts_and_stops(config)
    assert asyncio.all_tasks() == tasks
    await starts_and_stops(config)


async def test_a_port_in_use_leaves_the_data_directory_without_a_store(config: NodeConfig) -> None:
    node = await Node.start(config)
    other = NodeConfig.load(
        [
            *("--node-id", "1", "--nodes", f"1={config.listen}", "--listen", config.listen),
            *("--data-dir", str(config.data_dir.parent / "other")),
        ],
        {},
    )
    with pytest.raises(ListenError):
        await Node.start(other)
    assert not (other.data_dir / "db").exists()
    await node.stop()
    await starts_and_stops(other)


async def test_a_failing_step_of_the_stop_does_not_keep_the_rest_from_it(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = DriverLoop.stop

    async def fails(self: DriverLoop) -> None:
        await stop(self)
        raise RuntimeError("not today")

    with monkeypatch.context() as patched:
        patched.setattr(DriverLoop, "stop", fails)
        node = await Node.start(config)
        with pytest.raises(RuntimeError, match="not today"):
            await node.stop()
    await starts_and_stops(config)
