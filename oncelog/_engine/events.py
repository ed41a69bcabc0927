"""Events of all nodes: each node tells its own, the client merges them.

Place in the flow: `oncelog.Admin` waits for `EventCalls.all`, and takes one event after the other
from an `EventFollower`. A node without an answer is named; the events of the others are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc.aio

from oncelog._engine.net.cluster import Cluster, cluster_stub
from oncelog.errors import OncelogError
from oncelog.events import EventFilter, NodeEvent, NodeEvents
from oncelog.v1 import cluster_pb2, observe_pb2, observe_pb2_grpc
from oncelog.wire.status import from_rpc_error

_ANSWER_S = 5.0  # that a node gets for its events
_PAUSE_S = 1.0  # before a node that broke off is asked again
_WAITING = 1000  # events that a slow reader of a follower leaves unread


class EventCalls:
    """Runs on the engine's loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def nodes(self) -> dict[int, str]:
        answer = await self._cluster.call(
            lambda channel: cluster_stub(channel).DescribeCluster,
            cluster_pb2.DescribeClusterRequest(),
        )
        return {node.node_id: node.address for node in answer.nodes if node.address}

    async def all(self, wanted: EventFilter) -> NodeEvents:
        """Return the newest `limit` events of each node that answers."""
        nodes = await self.nodes()
        asked = [self._of_node(address, wanted) for address in nodes.values()]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        events, problems = list[NodeEvent](), dict[int, str]()
        for node_id, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, list):
                events += answer
            elif isinstance(answer, OncelogError):
                problems[node_id] = answer.message
            else:
                raise answer
        if problems and len(problems) == len(nodes):
            raise next(answer for answer in answers if isinstance(answer, OncelogError))
        events.sort(key=lambda event: event.last_ms)
        return NodeEvents(tuple(events), problems)

    async def _of_node(self, address: str, wanted: EventFilter) -> list[NodeEvent]:
        return [event async for event in self.stream(address, wanted, follow=False)]

    async def stream(
        self, address: str, wanted: EventFilter, *, follow: bool
    ) -> AsyncIterator[NodeEvent]:
        """Yield one node's events. Raises OncelogError."""
        request = observe_pb2.ListEventsRequest(
            kinds=wanted.kinds,
            resource=wanted.resource,
            name=wanted.name,
            producer_id=wanted.producer_id,
            since_ms=wanted.since_ms,
            limit=wanted.limit,
            follow=follow,
        )
        stub = observe_pb2_grpc.ObserveServiceStub(self._cluster.channel(address))
        call: Any = stub.ListEvents(
            request,
            timeout=None if follow else _ANSWER_S,
            metadata=self._cluster.founding.metadata,
        )
        try:
            async for answer in call:
                for event in answer.events:
                    yield _event(event)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        finally:
            call.cancel()


class EventFollower:
    """Merges the streams of all nodes; `next` returns one event after the other."""

    def __init__(self, calls: EventCalls, wanted: EventFilter) -> None:
        self._calls = calls
        self._wanted = wanted
        self._queue = asyncio.Queue[NodeEvent](_WAITING)
        self._tasks: list[asyncio.Task[None]] = []

    async def next(self) -> NodeEvent:
        if not self._tasks:
            await self._calls.all(replace(self._wanted, limit=1))  # raises if no node answers
            for node_id, address in (await self._calls.nodes()).items():
                self._tasks.append(asyncio.create_task(self._follow(node_id, address)))
        return await self._queue.get()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, node_id: int, address: str) -> None:
        """Follow a node, also after it was away. A restarted node has forgotten its events."""
        wanted, last = self._wanted, (0, 0)
        while True:
            try:
                async for event in self._calls.stream(address, wanted, follow=True):
                    if (event.event_id, event.last_ms) != last:  # it was the last one before
                        await self._queue.put(event)
                    last = event.event_id, event.last_ms
                    wanted = replace(wanted, since_ms=event.last_ms)
            except OncelogError:
                await asyncio.sleep(_PAUSE_S)
                address = (await self._address(node_id)) or address

    async def _address(self, node_id: int) -> str:
        try:
            return (await self._calls.nodes()).get(node_id, "")
        except OncelogError:
            return ""


def _event(event: observe_pb2.Event) -> NodeEvent:
    return NodeEvent(
        event.node_id,
        event.id,
        event.kind,
        event.resource,
        event.name,
        event.partition,
        event.first_ms,
        event.last_ms,
        event.count,
        event.verdict,
        event.producer_id,
        event.epoch,
        event.first_sequence,
        event.last_sequence,
        event.offset,
        event.principal,
        event.address,
        event.text,
    )
