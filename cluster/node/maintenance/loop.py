"""Schedule of a node's maintenance, and its transfers of snapshots to peers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from cluster.consensus.message import Snapshot
from cluster.node.maintenance.duties import Maintenance, TransferDone
from cluster.node.tasks import LOOK_PERIOD, Tasks, every
from cluster.transport.calls import PeerCallError
from cluster.transport.link import PeerLink
from cluster.transport.snapshots import send_snapshot
from storage.errors import StorageError

log = logging.getLogger(__name__)

RECLAIM_PERIOD = 60.0
RECLAIM_SHARE = 0.02  # of the time, at most


class SnapshotSender:
    """Sends snapshots to peers over their links: `Maintenance`'s transfer."""

    def __init__(
        self, links: Mapping[int, PeerLink], tasks: Tasks, sent: Callable[[int], None]
    ) -> None:
        """sent: called with the bytes of each, before it goes."""
        self._links = links
        self._tasks = tasks
        self._sent = sent

    def send(self, peer: int, snapshot: Snapshot, done: TransferDone) -> None:
        self._tasks.spawn(self._send(peer, snapshot, done))

    async def _send(self, peer: int, snapshot: Snapshot, done: TransferDone) -> None:
        installed, error = False, ""
        try:
            link = self._links.get(peer)
            if link is None:
                raise PeerCallError("it is a peer no more")
            self._sent(len(snapshot.state))
            result = await send_snapshot(link, snapshot)
            installed, error = result.installed, result.refused
        except PeerCallError as failed:
            error = str(failed)
        finally:
            done(installed, error)


def start_maintenance(
    maintenance: Maintenance,
    tasks: Tasks,
    retention_period: float,
    reclaim: Callable[[], None],
) -> None:
    """Begin the periodic work. reclaim: frees trimmed space; blocks, called in a thread."""
    tasks.spawn(every(LOOK_PERIOD, maintenance.look))
    tasks.spawn(every(retention_period, maintenance.retain))
    tasks.spawn(_reclaim(reclaim))


async def _reclaim(reclaim: Callable[[], None]) -> None:
    """Give the space of trimmed entries back to the disk, off the event loop."""
    loop, took = asyncio.get_running_loop(), 0.0
    while True:
        await asyncio.sleep(max(RECLAIM_PERIOD, took / RECLAIM_SHARE))
        begun = loop.time()
        try:
            await loop.run_in_executor(None, reclaim)
        except StorageError as error:
            log.warning("trimmed space was not given back: %s", error)
        took = loop.time() - begun
