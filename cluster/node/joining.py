"""What a node with a new data directory is here: asked before it opens anything.

    joining node --Join--> welcome, at any node --> Welcome: its instance, or why there is none yet
                              '--JoinNode--> metadata --> the metadata's leader adds a learner

The instance is the version of the metadata group's configuration that added the directory. It
is known before the node opens its log, so that nothing said to an older directory of the node
is taken for said to this one.
"""

from __future__ import annotations

from cluster.consensus.configuration import Members
from cluster.metadata.state import MetadataState
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb


def welcome(
    join: pb.Join,
    metadata: MetadataState,
    members: Members,
    founding_members: tuple[int, ...],
    founding: int,
) -> tuple[pb.Welcome, mpb.JoinNode | None]:
    """The answer, and what is to be proposed first. members: of the metadata group, as here.

    founding: 0: this node does not know its cluster yet.
    """
    answer = pb.Welcome(members=founding_members, founding=founding)
    node, view = join.node_id, metadata.membership
    if not founding:
        answer.why_not = "it has not heard itself what cluster this is"
        return answer, None
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
        answer.founds = True
    else:
        answer.why_not = view.not_expected(node)
        answer.refused = known > 0
    return answer, None
