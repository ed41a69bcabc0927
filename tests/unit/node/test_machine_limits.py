"""The machine's open files and memory, and their shares."""

from __future__ import annotations

import pytest

from cluster.config.node_config import NodeConfig
from cluster.config.settings import MIB
from cluster.errors import ConfigError
from cluster.node.health.descriptors import LEAST, MOST, Shares
from cluster.node.health.memory_watch import client_memory, memory_room


@pytest.mark.parametrize(
    ("limit", "part", "connections"),
    [(256, 32, 88), (1024, 128, 480), (20_000, 256, 10_000), (MOST, 256, 10_000)],
)
def test_clients_get_what_the_others_leave(limit: int, part: int, connections: int) -> None:
    assert Shares.within(limit, NodeConfig.load([], {})) == Shares(limit, part, connections)


def test_too_few_for_a_node() -> None:
    with pytest.raises(ConfigError, match="limit of 255 is below the minimum of 256"):
        Shares.within(LEAST - 1, NodeConfig.load([], {}))


def test_connections_that_were_asked_for_and_cannot_be() -> None:
    few = NodeConfig.load(["--max-connections=100"], {})
    assert Shares.within(1024, few).connections == 100
    many = NodeConfig.load(["--max-connections=5000"], {})
    with pytest.raises(ConfigError, match=r"max_connections: 5000 is above 480, .* 1024 open"):
        Shares.within(1024, many)


@pytest.mark.parametrize(
    ("room", "clients"), [(8192, 1024), (2048, 1024), (1000, 500), (512, 256), (100, 256)]
)
def test_clients_get_half_of_the_memory_by_default(room: int, clients: int) -> None:
    assert client_memory(NodeConfig.load([], {}), room * MIB) == clients * MIB
    asked = NodeConfig.load([f"--client-memory-bytes={300 * MIB}"], {})
    assert client_memory(asked, room * MIB) == 300 * MIB


def test_the_room_is_what_the_system_has() -> None:
    assert 0 < memory_room() < 1 << 50
