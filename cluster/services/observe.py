"""ObserveService: the node's recent events, for callers that may see their resource.

ListEvents --> Recorder.read --rights--> messages, and again after each change
"""

from __future__ import annotations

import asyncio
from functools import partial

from cluster.events.recorder import AUDIT, KINDS, MAX_EVENTS, Event
from cluster.security.caller import CALLER
from cluster.security.permissions import ALL, Authorizer, Need
from cluster.services.context import NodeContext
from cluster.services.requests import Write, decoded, in_range, invalid, not_negative
from oncelog.v1 import observe_pb2 as pb

DEFAULT_EVENTS = 1000
PAGE = 500  # events in a message
PACE = 0.2  # seconds between a follower's messages: a storm is one event that counts
RESOURCES = ("", "topic", "group", "producer", "cluster")


class ObserveService:
    """Answers for one node. permissions: None if all is allowed."""

    def __init__(self, node: NodeContext, permissions: Authorizer | None) -> None:
        self.node = node
        self._permissions = permissions

    async def ListEvents(self, request: pb.ListEventsRequest, write: Write) -> None:
        _check(decoded(request))
        recorder, principal = self.node.metrics.events, CALLER.get().principal

        def wanted(event: Event) -> bool:
            return _matches(request, event) and self._may_see(principal, event)

        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        wake = partial(loop.call_soon_threadsafe, changed.set)
        end = recorder.wake(lambda: changed.is_set() or wake())
        try:
            kinds, limit = set(request.kinds), request.limit or DEFAULT_EVENTS
            events, seen = recorder.read(wanted, kinds=kinds, limit=limit)
            await self._write(events, write)
            while request.follow:
                await changed.wait()
                await asyncio.sleep(PACE)
                changed.clear()
                events, seen = recorder.read(wanted, kinds=kinds, after=seen)
                if events:
                    await self._write(events, write)
        finally:
            end()

    async def _write(self, events: list[Event], write: Write) -> None:
        for at in range(0, len(events) or 1, PAGE):
            page = [self._message(event) for event in events[at : at + PAGE]]
            await write(pb.ListEventsResponse(events=page))

    def _message(self, event: Event) -> pb.Event:
        return pb.Event(
            id=event.id,
            node_id=self.node.config.node_id,
            kind=event.kind,
            resource=event.resource,
            name=event.name,
            partition=event.partition,
            first_ms=event.first_ms,
            last_ms=event.last_ms,
            count=event.count,
            verdict=event.verdict,
            producer_id=event.producer_id,
            epoch=event.epoch,
            first_sequence=event.first_sequence,
            last_sequence=event.last_sequence,
            offset=event.offset,
            principal=event.principal,
            address=event.address,
            text=event.text,
        )

    def _may_see(self, principal: str, event: Event) -> bool:
        if self._permissions is None:
            return True
        if event.kind == AUDIT:
            return self._permissions.allows(principal, Need("alter", "cluster"))
        if event.resource == "cluster":
            return self._permissions.allows(principal, Need("describe", "cluster"))
        return self._permissions.allows(
            principal, Need("describe", event.resource, event.name or ALL)
        )


def _check(request: pb.ListEventsRequest) -> None:
    """Raises InvalidRequestError."""
    for kind in request.kinds:
        if kind not in KINDS:
            raise invalid("kinds", f"{kind[:40]!r} is not one of {', '.join(KINDS)}")
    if request.resource not in RESOURCES:
        known = ", ".join(RESOURCES[1:])
        raise invalid("resource", f"{request.resource[:40]!r} is not one of {known}")
    in_range("limit", request.limit, 0, MAX_EVENTS)
    not_negative(request, "producer_id", "since_ms")


def _matches(request: pb.ListEventsRequest, event: Event) -> bool:
    return (
        event.last_ms >= request.since_ms
        and request.resource in ("", event.resource)
        and request.name in ("", event.name)
        and request.producer_id in (0, event.producer_id)
    )
