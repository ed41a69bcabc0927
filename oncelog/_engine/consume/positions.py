"""Offsets to start from: where a group stands, where a log begins and ends.

Place in the flow: `fetcher` asks for partitions that have no position yet, `Consumer` for
what its user wants to know. Leaders answer, or replicas where those will do.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence

from oncelog import errors
from oncelog._engine.consume.groups import CommitTerms, Groups
from oncelog._engine.consume.membership import Membership
from oncelog._engine.consume.routes import Routes
from oncelog._engine.net.cluster import Cluster, check_answers, log_stub
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.verdicts import partition_error_name

log = logging.getLogger("oncelog.consumer")


class Positions:
    def __init__(self, config: ConsumerConfig, cluster: Cluster, routes: Routes) -> None:
        self._config = config
        self._cluster = cluster
        self._routes = routes
        self.groups = Groups(cluster)
        self.member_id = str(uuid.uuid4())
        self.membership: Membership[TopicPartition] = Membership()  # what `member` goes by

    async def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group stands, if there is one.

        Raises FencedMemberError for a member that has lost one of them.
        """
        if self._config.group_id is None or not tps:
            return {}
        terms = None
        if self.membership.connection:
            owned = self.membership.owned
            if not owned.keys() >= set(tps):
                raise errors.FencedMemberError("the group has taken a partition back")
            terms = CommitTerms(self.member_id, 0, owned)
        found = await self.groups.committed(self._config.group_id, tps, terms=terms)
        return {tp: known.offset for tp, known in found.items() if known is not None}

    async def known(self, tps: Sequence[TopicPartition], limit_s: float) -> None:
        """Wait, at most so long, until these partitions are known: a node may be behind."""
        deadline, failures = time.monotonic() + limit_s, 0
        while unknown := {tp.topic for tp in tps if self._cluster.leaders.leader(tp) is None}:
            if time.monotonic() >= deadline:
                return
            if failures:
                await asyncio.sleep(self._cluster.backoff.delay(failures))
                self._cluster.prefer_another()
            failures += 1
            await self._refresh_or_raise(unknown, deadline)

    async def list_offsets(
        self, queries: dict[TopicPartition, str | int], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return offsets: "earliest", "latest" or a timestamp (µs) for each partition.

        Follows leader changes for `timeout_s` (default request_timeout_ms, but at least as
        long as an election takes), then raises the last error. -1: no such record.
        """
        limit = max(timeout_s or self._config.request_timeout_ms / 1000, 0.1)
        deadline = time.monotonic() + limit
        found: dict[TopicPartition, int] = {}
        failures = 0
        while True:
            open_queries = {tp: what for tp, what in queries.items() if tp not in found}
            try:
                await self._list_once(open_queries, found)
            except errors.RetriableError as error:
                failures += 1
                if time.monotonic() >= deadline:
                    raise
                log.debug("list offsets: %s", error)
            if len(found) == len(queries):
                return found
            await asyncio.sleep(self._cluster.backoff.delay(failures))
            await self._refresh_or_raise({tp.topic for tp in open_queries}, deadline)

    async def _refresh_or_raise(self, topics: set[str], deadline: float) -> None:
        for topic in topics:
            left = max(0.1, deadline - time.monotonic())
            await self._cluster.require_topic(topic, left)

    async def _list_once(
        self, queries: dict[TopicPartition, str | int], found: dict[TopicPartition, int]
    ) -> None:
        by_node: dict[str, list[TopicPartition]] = {}
        for tp in queries:
            address = self._routes.address(tp)
            if not address:
                raise errors.NotReadyError(f"{tp} has no leader")
            by_node.setdefault(address, []).append(tp)
        problems: list[errors.OncelogError] = []
        for address, tps in by_node.items():
            request = log_pb2.ListOffsetsRequest(
                queries=[_query(tp, queries[tp]) for tp in tps],
                any_replica=self._config.any_replica,
            )
            try:
                answer: log_pb2.ListOffsetsResponse = await self._cluster.call(
                    lambda channel: log_stub(channel).ListOffsets, request, address=address
                )
            except errors.RetriableError as error:
                problems.append(error)
                for tp in tps:
                    self._routes.failed(tp, address)
                continue
            problems += self._take_offsets(tps, answer.results, address, found)
        if problems:
            raise problems[0]

    def _take_offsets(
        self,
        tps: list[TopicPartition],
        results: Sequence[log_pb2.OffsetResult],
        address: str,
        found: dict[TopicPartition, int],
    ) -> list[errors.OncelogError]:
        problems: list[errors.OncelogError] = []
        check_answers(len(tps), len(results))
        for tp, result in zip(tps, results, strict=True):
            if result.error == log_pb2.PARTITION_ERROR_NONE:
                found[tp] = result.offset
                continue
            self._routes.leads_elsewhere(tp, address, result.leader_id, result.leader_address)
            text = f"{tp}: {result.message or partition_error_name(result.error)}"
            elsewhere = self._routes.damaged(tp, address, result.error)
            if result.error == log_pb2.PARTITION_ERROR_STORAGE and not elsewhere:
                raise errors.CorruptLogError(text, topic=tp.topic, partition=tp.partition)
            problems.append(errors.NotReadyError(text))
        return problems


def _query(tp: TopicPartition, what: str | int) -> log_pb2.OffsetQuery:
    query = log_pb2.OffsetQuery(topic=tp.topic, partition=tp.partition)
    if what == "earliest":
        query.earliest = True
    elif what == "latest":
        query.latest = True
    else:
        assert isinstance(what, int)
        query.timestamp_us = what
    return query


__all__ = ["Positions"]
