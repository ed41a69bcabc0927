"""Where nodes take their peers' streams, as this node's settings say."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.addresses import shifted
from cluster.config import NodeConfig


def own_listen(config: NodeConfig) -> str:
    """Where this node takes them, or would."""
    return shifted(config.listen, config.peer_port_offset)


def own_stream(config: NodeConfig) -> str:
    """Where other nodes reach that."""
    return config.peer_stream_of(config.node_id)


def named(config: NodeConfig) -> Mapping[int, str]:
    """Of the other nodes that `nodes` names."""
    others = (node for node in config.nodes if node != config.node_id)
    return {node: config.peer_stream_of(node) for node in others}


def asked(config: NodeConfig) -> tuple[str, ...]:
    """Where a new data directory asks what it is here: at any of these."""
    if not config.join:
        return tuple(named(config).values())
    addresses = (part.strip() for part in config.join.split(","))
    return tuple(shifted(address, config.peer_port_offset) for address in addresses)
