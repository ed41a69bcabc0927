"""Answers to a node with a new data directory, which asks before it opens anything.

    joining node --Join--> welcome, at any node --> Welcome: its instance, or why there is none yet
                              '--JoinNode--> metadata --> the metadata's leader adds a learner

The instance is the version of the metadata group's configuration that added the directory. The
node knows it before it opens its log, so it never takes a message to its older directory for
its own.

A directory that joined earlier, and was given up since, is never taken for the new one. A node
that is being removed gets no new directory: it would join only to be removed.

For each node that the cluster begins with, the founder admits one directory, for good. Another
directory does not know the first one's promises: it has to be replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.consensus.configuration import Members
from cluster.metadata.nodes import other_directory
from cluster.metadata.state import MetadataState
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb


def welcome(
    join: pb.Join,
    metadata: MetadataState,
    members: Members,
    founding_members: tuple[int, ...],
    founding: int,
    admit: Callable[[int, int], bool],
    is_founder: bool,
) -> tuple[pb.Welcome, mpb.JoinNode | None]:
    """Return the answer, and the command to propose first. members: of this metadata group.

    admit: whether the node begins with the cluster, with this directory. Raises StorageError.
    """
    answer = pb.Welcome(members=founding_members, founding=founding)
    node, view = join.node_id, metadata.membership
    held = members.configuration.member(node)
    if held is not None and held.instance and held.directory == join.directory_id:
        answer.instance = held.instance
        answer.peers.update(view.peers)
        return answer, None
    known = metadata.directory_of(node)
    if known == join.directory_id:
        answer.why_not = "the metadata group does not have it yet"
    elif view.awaits(node) and not join.instance:
        answer.why_not = "the cluster learns of its directory"
        return answer, mpb.JoinNode(
            node_id=node,
            directory_id=join.directory_id,
            address=join.address,
            peer_address=join.peer_address,
        )
    elif not known and node in founding_members:
        answer.founds = admit(node, join.directory_id)
        if not answer.founds:
            answer.why_not = other_directory(node) if is_founder else unknown_directory(node)
            answer.refused = is_founder
    else:
        answer.why_not = view.not_expected(node)
        answer.refused = known > 0
    return answer, None


def unknown_directory(node: int) -> str:
    return (
        f"node {node} begins with the cluster: the node that founded it has to admit its data "
        f"directory. If that one is lost, or node {node} had another directory that is lost: "
        f"`oncelog node replace {node}`"
    )
