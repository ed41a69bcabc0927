"""Lag of this node's groups: asks the partitions' leaders for their ends, each 5 s.

    committed offsets here --LocateOffsets--> leaders --starts, ends, times--> GroupLags --> metrics

Only a node with a metrics page asks. The time of an offset is that of its batch's append, from the
index: no batch is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from cluster.metadata.state import MetadataState
from cluster.metrics.groups import TopicLag
from cluster.node.leadership.leaders import Leaders
from cluster.node.links.peers import Peers
from cluster.partition.append_times import append_time_ms
from cluster.partition.group_state import GroupState
from cluster.partition.replica import Partition
from cluster.services.fair_turns import Turn
from cluster.transport.calls import PeerCallError
from cluster.transport.versions import REQUESTS
from cluster.v1 import peer_pb2 as pb
from oncelog.lag import records_behind

log = logging.getLogger(__name__)

PERIOD = 5.0  # seconds
ASK_TIMEOUT = 2.0  # seconds
MAX_ASKED = 1000  # partitions in one request

# node -> group id -> committed offsets
_Wanted = dict[int, dict[int, set[int]]]


class _Located(NamedTuple):
    """An offset's place in its partition. Times in milliseconds; 0: not known."""

    log_start_offset: int
    high_watermark: int
    newest_ms: int
    time_ms: int


class GroupLags:
    """Lags as of the last look. partitions: this node's replicas, by group id.

    groups: the groups with offsets on this node that the page shows.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataState,
        partitions: Mapping[int, Partition],
        leaders: Leaders,
        peers: Peers,
        groups: Callable[[], Iterable[tuple[str, GroupState]]],
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._leaders = leaders
        self._peers = peers
        self._groups = groups
        self._lags: dict[str, dict[str, TopicLag]] = {}

    async def run(self) -> None:
        """Look forever."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD)

    async def look(self) -> None:
        """Ask the leaders of all partitions that groups here have committed."""
        wanted: _Wanted = {}
        committed: list[tuple[str, dict[str, dict[int, int]]]] = []
        turn = Turn()
        for name, state in self._groups():
            topics = self._by_topic(state)
            committed.append((name, topics))
            for gid, offset in self._positions(topics):
                leader = self._leaders.leader_of(gid)[0]
                wanted.setdefault(leader, {}).setdefault(gid, set()).add(offset)
            if turn.spend(0, 1 + len(state)):
                await asyncio.sleep(0)
        wanted.pop(0, None)  # they have no leader
        located: dict[tuple[int, int], _Located] = {}
        await asyncio.gather(*(self._ask(node, by, located) for node, by in wanted.items()))
        self._lags = {name: self._lags_of(topics, located) for name, topics in committed}

    def lags(self, group: str) -> dict[str, TopicLag]:
        """Return a group's lag in each topic that it has committed; any thread."""
        return self._lags.get(group, {})

    def _lags_of(
        self,
        topics: Mapping[str, Mapping[int, int]],
        located: Mapping[tuple[int, int], _Located],
    ) -> dict[str, TopicLag]:
        found: dict[str, TopicLag] = {}
        for topic, offsets in topics.items():
            lag = found[topic] = TopicLag()
            known = self._metadata.topic(topic)
            for index, partition in enumerate(() if known is None else known.partitions):
                if index not in offsets:
                    lag.uncommitted += 1
                    continue
                place = located.get((partition.group_id, offsets[index]))
                if place is None:
                    lag.unknown += 1
                else:
                    _add(lag, offsets[index], place)
        return found

    def _by_topic(self, state: GroupState) -> dict[str, dict[int, int]]:
        """Map topics that still exist to the offsets of their partitions."""
        found: dict[str, dict[int, int]] = {}
        for (topic, index), committed in state.items():
            known = self._metadata.topic(topic)
            if known is not None and known.topic_id == committed.topic_id:
                found.setdefault(topic, {})[index] = committed.offset
        return found

    def _positions(self, topics: Mapping[str, Mapping[int, int]]) -> Iterator[tuple[int, int]]:
        for topic, offsets in topics.items():
            for index, offset in offsets.items():
                gid = self._metadata.group_of(topic, index)
                if gid is not None:
                    yield gid, offset

    async def _ask(
        self, node: int, by: Mapping[int, set[int]], found: dict[tuple[int, int], _Located]
    ) -> None:
        left = iter(by.items())
        while part := [*islice(left, MAX_ASKED)]:
            asked = {gid: sorted(offsets) for gid, offsets in part}
            request = pb.LocateOffsetsRequest(
                partitions=[
                    pb.OffsetsOfGroup(group=gid, offsets=offsets) for gid, offsets in asked.items()
                ]
            )
            for one in (await self._answer(node, request)).partitions:
                head = (one.log_start_offset, one.high_watermark, one.newest_ms)
                for offset, time_ms in zip(asked[one.group], one.times_ms, strict=True):
                    found[one.group, offset] = _Located(*head, time_ms)

    async def _answer(
        self, node: int, request: pb.LocateOffsetsRequest
    ) -> pb.LocateOffsetsResponse:
        if node == self._node_id:
            return await self.here(request)
        link = self._peers.links.get(node)
        if link is None or not link.up or link.version < REQUESTS["locate_offsets"]:
            return pb.LocateOffsetsResponse()
        try:
            async with asyncio.timeout(ASK_TIMEOUT):
                response = await link.ask(pb.Request(locate_offsets=request))
        except (PeerCallError, TimeoutError) as error:
            log.info("node %d did not say where offsets lie: %s", node, error)
            return pb.LocateOffsetsResponse()
        return response.locate_offsets

    async def here(self, request: pb.LocateOffsetsRequest) -> pb.LocateOffsetsResponse:
        """Answer for the partitions that this node leads."""
        response, turn = pb.LocateOffsetsResponse(), Turn()
        for asked in request.partitions:
            partition = self._partitions.get(asked.group)
            if partition is None or not partition.group.is_leader or partition.closed:
                continue
            end = partition.high_watermark
            times = [await append_time_ms(partition, offset) for offset in asked.offsets]
            newest = await append_time_ms(partition, end - 1) if end else 0
            response.partitions.add(
                group=asked.group,
                log_start_offset=partition.log_start_offset,
                high_watermark=end,
                newest_ms=newest,
                times_ms=times,
            )
            if turn.spend(0, 1 + len(times)):
                await asyncio.sleep(0)
        return response


def _add(lag: TopicLag, offset: int, located: _Located) -> None:
    lag.records += records_behind(offset, located.log_start_offset, located.high_watermark)
    if located.time_ms and located.newest_ms:
        lag.seconds = max(lag.seconds, (located.newest_ms - located.time_ms) / 1000)
