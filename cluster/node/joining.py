"""What a node with a new data directory is here: asked before it opens anything.

    joining node --Join--> welcome, at any node --> Welcome: its instance, or why there is none yet
                              '--JoinNode--> metadata --> the metadata's leader adds a learner

The instance is the version of the metadata group's configuration that added the directory. It
is known before the node opens its log, so that nothing said to an older directory of the node
is taken for said to this one.

Of a node that the cluster begins with, the node that founded it admits one directory, for good.
Another one has forgotten what the first may have promised: it has to be replaced.
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
    """The answer, and what is to be proposed first. members: of the metadata group, as here.

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
    elif node in view.expected:
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
