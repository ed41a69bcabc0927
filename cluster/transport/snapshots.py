"""Transfer of snapshots: cut into parts by the sender, joined by the receiver.

    send_snapshot --part, answer, part, answer ..--> PeerListener --> SnapshotParts --> Snapshot

One part is in flight at a time, so that heartbeats have their turns and a queue holds little. The
group that installs the snapshot checks it as a whole; here its bytes are only counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cluster.access.budget import Account
from cluster.consensus.message import Snapshot, SnapshotError
from cluster.transport.calls import PeerCallError
from cluster.transport.link import PeerLink
from cluster.v1 import peer_pb2 as pb

PART_BYTES = 256 * 1024
PART_TIMEOUT = 60.0  # seconds for one answer; the last comes after the installation
MAX_SNAPSHOT_BYTES = 4 * 1024 * 1024 * 1024
# Of all arriving snapshots together. A larger one is taken if it is the only one.
MAX_ARRIVING_BYTES = 256 * 1024 * 1024


async def send_snapshot(link: PeerLink, snapshot: Snapshot) -> pb.SnapshotResult:
    """Sends a snapshot; returns the answer to the last part, or to a refused one.

    Raises PeerCallError.
    """
    state = snapshot.state
    result = pb.SnapshotResult()
    for offset in range(0, max(1, len(state)), PART_BYTES):
        part = pb.SnapshotPart(
            group=snapshot.group,
            term=snapshot.term,
            index=snapshot.index,
            index_term=snapshot.index_term,
            size=len(state),
            checksum=snapshot.checksum,
            offset=offset,
            data=state[offset : offset + PART_BYTES],
            configuration=snapshot.configuration,
            to_instance=snapshot.to_instance,
        )
        try:
            async with asyncio.timeout(PART_TIMEOUT):
                response = await link.ask(pb.Request(snapshot_part=part))
        except TimeoutError as error:
            raise PeerCallError(f"no answer to the part at {offset}") from error
        result = response.snapshot_part
        if result.refused:
            break
    return result


@dataclass(slots=True)
class _Arriving:
    place: tuple[int, int, int, int, int, bytes, int]  # equal in all of its parts
    data: bytearray
    at: float  # time of the last part


class SnapshotParts:
    """Arriving snapshots, by peer and group: one of each at a time.

    memory: counts them. A replica must get its state, so clients have to make room.
    """

    def __init__(self, clock: Callable[[], float], memory: Account) -> None:
        self._clock = clock
        self._memory = memory
        self._arriving: dict[tuple[int, int], _Arriving] = {}

    def take(self, peer: int, part: pb.SnapshotPart) -> Snapshot | None:
        """Adds a part; returns the snapshot after its last one.

        Raises SnapshotError and drops the snapshot if the part does not fit.
        """
        try:
            return self._take(peer, part)
        finally:
            self._count()

    def _take(self, peer: int, part: pb.SnapshotPart) -> Snapshot | None:
        key = (peer, part.group)
        arriving = self._arriving.pop(key, None)
        place = (
            part.term,
            part.index,
            part.index_term,
            part.size,
            part.checksum,
            part.configuration,
            part.to_instance,
        )
        if part.offset == 0:
            self._make_room(part.size)
            arriving = _Arriving(place, bytearray(), 0.0)
        if arriving is None or arriving.place != place or len(arriving.data) != part.offset:
            raise SnapshotError(f"the part at {part.offset} does not follow the part before it")
        if len(part.data) > part.size - part.offset or (part.size and not part.data):
            raise SnapshotError(f"size: not {part.size} bytes are coming, as was said")
        arriving.data += part.data
        arriving.at = self._clock()
        if len(arriving.data) < part.size:
            self._arriving[key] = arriving
            return None
        state = bytes(arriving.data)
        return Snapshot(
            part.group,
            part.term,
            part.index,
            part.index_term,
            state,
            part.checksum,
            part.configuration,
            part.to_instance,
        )

    def forget(self, peer: int) -> None:
        """Drops a peer's parts: its connection broke, and it will begin again."""
        for key in [key for key in self._arriving if key[0] == peer]:
            del self._arriving[key]
        self._count()

    def _count(self) -> None:
        size = sum(len(one.data) for one in self._arriving.values())
        self._memory.release(self._memory.held)
        self._memory.take(size)

    def _make_room(self, size: int) -> None:
        """Drops abandoned snapshots. Raises SnapshotError unless one more may begin."""
        stale = self._clock() - PART_TIMEOUT
        self._arriving = {key: one for key, one in self._arriving.items() if one.at >= stale}
        if size > MAX_SNAPSHOT_BYTES:
            raise SnapshotError(f"size: {size} is above the limit, {MAX_SNAPSHOT_BYTES}")
        promised = sum(one.place[3] for one in self._arriving.values())
        if self._arriving and promised + size > MAX_ARRIVING_BYTES:
            raise SnapshotError(f"size: other snapshots with {promised} bytes come first")
