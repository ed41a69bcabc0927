"""Peers' requests over their links: metadata commands for this leader, snapshots.

PeerListener --Request--> PeerRequests --> MetadataProposer.propose_here, Node's installation
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cluster.access.budget import Budget
from cluster.consensus.message import Snapshot, SnapshotError
from cluster.node.metadata.proposer import MetadataProposer
from cluster.node.metrics.group_lags import GroupLags
from cluster.node.replicas.sizes import ReplicaSizes
from cluster.node.transactions.transactions import Transactions
from cluster.transport.snapshots import SnapshotParts
from cluster.v1 import peer_pb2 as pb


class PeerRequests:
    """Answers requests.

    memory:  counts the received part of snapshots.
    install: takes a snapshot; returns the answer for its sender.
    proposer: for a metadata command that a peer sent on to this node.
    sizes: how much this node's replicas hold. lags: where offsets lie in them.
    transactions: answers for this node's partitions, or as the metadata's leader.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        memory: Budget,
        install: Callable[[int, Snapshot], Awaitable[pb.SnapshotResult]],
        proposer: MetadataProposer,
        transactions: Transactions,
        sizes: ReplicaSizes,
        lags: GroupLags,
    ) -> None:
        self._install = install
        self._propose = proposer.propose_here
        self._transactions = transactions
        self._sizes = sizes
        self._lags = lags
        self._parts = SnapshotParts(clock, memory.open("snapshots"))

    async def answer(self, peer: int, request: pb.Request) -> pb.Response:
        """Answer a request. Raises ValueError if this version does not know it."""
        match request.WhichOneof("what"):
            case "propose_metadata":
                command = request.propose_metadata.command
                return pb.Response(propose_metadata=await self._propose(command, peer))
            case "snapshot_part":
                return pb.Response(snapshot_part=await self._part(peer, request.snapshot_part))
            case "confirm_runs":
                confirmed = await self._transactions.confirm_here(request.confirm_runs)
                return pb.Response(confirm_runs=confirmed)
            case "write_markers":
                written = await self._transactions.markers.write_here(request.write_markers)
                return pb.Response(write_markers=written)
            case "keep_alive":
                kept = self._transactions.keep_alive_here(request.keep_alive)
                return pb.Response(keep_alive=kept)
            case "describe_runs":
                described = self._transactions.describe_here(request.describe_runs)
                return pb.Response(describe_runs=described)
            case "describe_replicas":
                return pb.Response(describe_replicas=self._sizes.here())
            case "locate_offsets":
                located = await self._lags.here(request.locate_offsets)
                return pb.Response(locate_offsets=located)
        raise ValueError("a request of a kind that is not known here")

    def lost(self, peer: int) -> None:
        """Handle a broken link to a peer."""
        self._parts.forget(peer)

    async def _part(self, peer: int, part: pb.SnapshotPart) -> pb.SnapshotResult:
        try:
            snapshot = self._parts.take(peer, part)
        except SnapshotError as error:
            return pb.SnapshotResult(refused=str(error))
        if snapshot is None:
            return pb.SnapshotResult()
        return await self._install(peer, snapshot)
