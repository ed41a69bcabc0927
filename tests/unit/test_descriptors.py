"""Open files: what clients' connections may have of them."""

from __future__ import annotations

import pytest

from cluster.config import NodeConfig
from cluster.errors import ConfigError
from cluster.node.descriptors import LEAST, MOST, Shares


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
