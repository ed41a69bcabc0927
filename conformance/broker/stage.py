"""Shared state of one node's services: the cluster, the lies, the journal, ways to answer.

services --call, facts, the truth--> Stage.answer --> Journal
                                                  --> Script: a lie, or none
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from cluster.rpc.errors import abort
from cluster.services.errors import ON_PURPOSE, to_public
from conformance.broker.cluster import Cluster
from conformance.broker.journal import Journal
from conformance.broker.lies import Lie, Script
from conformance.broker.payloads import cut_anew
from oncelog import errors
from oncelog.v1 import log_pb2 as pb
from oncelog.v1.producer_pb2 import (
    OpenedPartition,
    OpenProducerRequest,
    OpenProducerResponse,
)
from oncelog.wire.reasons import BY_REASON

T = TypeVar("T", bound=Message)


class Stage:
    """Stage of one node. `act` carries out a case's step on the cluster or its nodes."""

    def __init__(
        self,
        node_id: int,
        cluster: Cluster,
        script: Script,
        journal: Journal,
        act: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self._script = script
        self._journal = journal
        self._act = act

    def note(self, call: str, facts: Mapping[str, Any], message: Any) -> dict[str, Any]:
        """Adds the node's id to the facts, notes the call, and returns the facts."""
        known = {**facts, "node": self.node_id}
        self._journal.add(call, known, message)
        return known

    def find(self, call: str, facts: Mapping[str, Any]) -> Lie | None:
        return self._script.find(call, facts)

    async def happen(self, lie: Lie) -> None:
        for step in lie.then:
            await self._act(step)

    async def answer(
        self,
        call: str,
        facts: Mapping[str, Any],
        request: Any,
        context: Any,
        truth: Callable[[Lie | None], Awaitable[T]],
    ) -> T:
        """Answers a call, or ends it with the status of a lie or an error."""
        lie = self.find(call, self.note(call, facts, request))
        try:
            if lie is None:
                return await truth(None)
            return await self._lied(lie, context, truth)
        except ON_PURPOSE as error:
            await abort(context, to_public(error, self.cluster.addresses))

    async def _lied(self, lie: Lie, context: Any, truth: Callable[[Lie | None], Awaitable[T]]) -> T:
        instead = bool(lie.answer or lie.status or lie.grpc)
        answer = None if instead and not lie.store else await truth(lie)
        await self.happen(lie)
        if lie.delay_ms:
            await asyncio.sleep(lie.delay_ms / 1000)
        if lie.answer == "none":
            await asyncio.Event().wait()  # until the client gives up
        if lie.grpc:
            await context.abort(getattr(grpc.StatusCode, lie.grpc), "by the script")
        if lie.status:
            raise self.error(lie)
        assert answer is not None, "what is not instead of the answer leaves it"
        for name in lie.set:
            answer.ClearField(name)
        ParseDict(dict(lie.set), answer)
        return answer

    def error(self, lie: Lie) -> errors.OncelogError:
        if lie.status == "NOT_LEADER":
            return self.cluster.not_leader(lie.leader)
        return BY_REASON[lie.status]("by the script", **lie.details)

    def cut_anew(self, lie: Lie, request: pb.FetchRequest, answer: pb.FetchResponse) -> None:
        """Replaces the batches of each partition by others with the same records."""
        for asked, found in zip(request.partitions, answer.partitions, strict=True):
            log = self.cluster.partitions[asked.topic, asked.partition].records()
            del found.batches[:]
            found.batches.extend(cut_anew(log, lie.cut_anew, asked.offset))

    def refused(self, lie: Lie, request: Any) -> Message:
        """Answer to a call about partitions that has the lie's error for each of them."""
        why: dict[str, Any] = {"message": "by the script", "leader_id": lie.leader}
        why["leader_address"] = self.cluster.addresses.get(lie.leader, "")
        if isinstance(request, OpenProducerRequest):
            opened = [
                OpenedPartition(topic=one.topic, partition=one.partition, error=lie.error, **why)
                for one in request.partitions
            ]
            return OpenProducerResponse(partitions=opened)
        why["error"] = getattr(pb, "PARTITION_ERROR_" + lie.error)
        if isinstance(request, pb.ListOffsetsRequest):
            results = [
                pb.OffsetResult(topic=one.topic, partition=one.partition, offset=-1, **why)
                for one in request.queries
            ]
            return pb.ListOffsetsResponse(results=results)
        records = [
            pb.PartitionRecords(topic=one.topic, partition=one.partition, **why)
            for one in request.partitions
        ]
        return pb.FetchResponse(partitions=records)
