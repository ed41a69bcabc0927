"""Versions of two nodes' releases: tell if they can talk, and by which protocol.

    PeerLink, PeerListener --Hello--> PeerVersions --> refused, or a link and its version

Two ranges are compared. The *protocol* belongs to the link: each connection agrees on the highest
that both speak, and it says which messages may go over the link. The *cluster version* belongs to
all replicas together (`cluster/features.py`): a node with a release that does not support the
cluster's version gets no link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.consensus.message import (
    Append,
    AppendReply,
    CheckpointAt,
    ClockProbe,
    ClockReply,
    Heartbeat,
    HeartbeatReply,
    LeaderChanges,
    LeaderNotice,
    LeadersSince,
    Message,
    PreVote,
    PreVoteReply,
    Removed,
    StateChecksum,
    TimeoutNow,
    Vote,
    VoteReply,
)
from cluster.features import Finalized, Release, Versions
from cluster.v1 import peer_pb2 as pb

# 3: before the gate. 4: a leader takes FinalizeUpgrade and knows its kind of entry; removed
# replicas say so. 5: a node says where offsets lie, and voters of the metadata who leads.
PROTOCOL = Versions(3, 5)
UPGRADES = 4
# The protocol version that a message, or a request, came with. Add new ones here.
MESSAGES: Mapping[type[Message], int] = {
    Append: 3,
    AppendReply: 3,
    Vote: 3,
    VoteReply: 3,
    PreVote: 3,
    PreVoteReply: 3,
    TimeoutNow: 3,
    LeaderNotice: 3,
    Heartbeat: 3,
    HeartbeatReply: 3,
    CheckpointAt: 3,
    StateChecksum: 3,
    Removed: 4,
    ClockProbe: 3,
    ClockReply: 3,
    LeadersSince: 5,
    LeaderChanges: 5,
}
REQUESTS: Mapping[str, int] = {
    "propose_metadata": 3,
    "snapshot_part": 3,
    "confirm_runs": 4,
    "write_markers": 4,
    "keep_alive": 4,
    "describe_runs": 4,
    "describe_replicas": 4,
    "locate_offsets": 5,
}


class PeerVersions:
    """Versions of this node's release, and those that its cluster has agreed on.

    finalized: by this node's copy of the metadata.
    """

    def __init__(
        self,
        release: Release,
        finalized: Callable[[], Finalized],
        protocol: Versions = PROTOCOL,
    ) -> None:
        self.release = release
        self._finalized = finalized
        self._protocol = protocol

    def write(self, hello: pb.Hello) -> None:
        """Puts this node's versions into its Hello."""
        hello.protocol_version, hello.newest_protocol_version = self._protocol
        hello.oldest_cluster_version, hello.newest_cluster_version = self.release.versions
        hello.features[:] = sorted(self.release.features)
        hello.release = self.release.name

    def common(self, hello: pb.Hello) -> int:
        """Returns the protocol version of a link; 0: there is none."""
        return self._protocol.common(_protocol_of(hello))

    def refusal(self, hello: pb.Hello) -> str:
        """Returns why there can be no link with the Hello's node; empty if there can."""
        if not self.common(hello):
            return (
                f"protocol_version: node {hello.node_id} speaks {_protocol_of(hello)}, "
                f"this side {self._protocol}"
            )
        finalized = self._finalized()
        lacks = release_of(hello).lacks(finalized)
        if lacks:
            return (
                f"the cluster is at version {finalized.version}, and node {hello.node_id} cannot "
                f"take part in it: {lacks}"
            )
        return ""


def release_of(hello: pb.Hello) -> Release:
    """Returns the release in a node's Hello. Missing fields: from before the gate."""
    versions = Versions(hello.oldest_cluster_version or 1, hello.newest_cluster_version or 1)
    return Release(hello.release, versions, frozenset(hello.features))


def _protocol_of(hello: pb.Hello) -> Versions:
    oldest = hello.protocol_version
    return Versions(oldest, hello.newest_protocol_version or oldest)
