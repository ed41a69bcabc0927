"""Identity of this node, and addresses of peers' streams, by its settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from cluster.config.addresses import shifted
from cluster.config.node_config import NodeConfig
from cluster.transport.hellos import NodeIdentity
from cluster.transport.membership import Membership
from cluster.transport.versions import PeerVersions
from cluster.v1 import peer_pb2 as pb
from storage.identity import DirectoryLock


def identity_of(
    config: NodeConfig,
    lock: DirectoryLock,
    versions: PeerVersions,
    write_registration: Callable[[pb.Hello], None],
) -> NodeIdentity:
    """Return this process's identity for each Hello."""
    return NodeIdentity(
        config.cluster_id,
        config.node_id,
        incarnation=int.from_bytes(os.urandom(8)),
        directory_id=lock.directory_id,
        membership=Membership(lock.members, lock.founding),
        insecure=config.insecure,
        instance=lock.instance,
        peer_address=own_stream(config),
        versions=versions,
        write_registration=write_registration,
    )


def own_listen(config: NodeConfig) -> str:
    """Return the address where this node takes them, or would."""
    return shifted(config.listen, config.peer_port_offset)


def own_stream(config: NodeConfig) -> str:
    """Return the address where other nodes reach that."""
    return config.peer_stream_of(config.node_id)


def named(config: NodeConfig) -> Mapping[int, str]:
    """Return the stream addresses of the other nodes that `nodes` names."""
    others = (node for node in config.nodes if node != config.node_id)
    return {node: config.peer_stream_of(node) for node in others}


def join_of(config: NodeConfig, directory_id: int, instance: int) -> pb.Join:
    """Return a node's question to others: its directory's role, and their addresses."""
    return pb.Join(
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        directory_id=directory_id,
        address=config.advertised,
        peer_address=own_stream(config),
        instance=instance,
    )


def asked(config: NodeConfig) -> tuple[str, ...]:
    """Return all addresses where a new data directory asks for its role."""
    addresses = (part.strip() for part in config.join.split(",") if part.strip())
    joined = (shifted(address, config.peer_port_offset) for address in addresses)
    return tuple(dict.fromkeys((*joined, *named(config).values())))
