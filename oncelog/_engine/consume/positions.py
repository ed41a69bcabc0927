"""Start offsets: a group's committed offsets, and the two ends of a log.

Place in the flow: `fetcher` asks for partitions that have no position yet, `Consumer` for its user.
Leaders answer, or replicas if the settings allow them.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from oncelog import errors
from oncelog._engine.consume.groups import CommitTerms, Groups
from oncelog._engine.consume.membership import MemberOwnerships
from oncelog._engine.consume.routes import Routes
from oncelog._engine.net.attempts import Attempts
from oncelog._engine.net.cluster import (
    MAX_LEADER_FAILURES,
    Cluster,
    check_answers,
    log_stub,
)
from oncelog.config import ConsumerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.verdicts import partition_error_name

log = logging.getLogger("oncelog.consumer")

_MOST_NAMED = 5  # partitions, in one error


class LagQuery(NamedTuple):
    """Query for the time from this offset's batch to the newest one, in milliseconds."""

    offset: int


# "earliest", "latest", a timestamp (us), a lag in time, or "deleted": the end of the records that
# were deleted. It is below the log's start if compaction had removed all those in between before.
Query = str | int | LagQuery


class Positions:
    def __init__(self, config: ConsumerConfig, cluster: Cluster, routes: Routes) -> None:
        self._config = config
        self._cluster = cluster
        self._routes = routes
        self.groups = Groups(cluster)
        self.member_id = str(uuid.uuid4())
        self.membership: MemberOwnerships[TopicPartition] = (
            MemberOwnerships()
        )  # shared with `member`

    def end_membership(self) -> None:
        """Become another member: the one that has left does not come back."""
        self.member_id = str(uuid.uuid4())
        self.membership = MemberOwnerships()

    async def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's offsets, if there is a group.

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
        """Return offsets: "earliest", "latest", "deleted" or a timestamp (µs) for each partition.

        Follows leader changes for `timeout_s` (default request_timeout_ms, but at least as long as
        an election takes), then raises an error that names the partitions. -1: no such record.
        """
        found, problems = await self.find_offsets(queries, timeout_s)
        if problems:
            raise _of_partitions(problems)
        return found

    async def find_offsets(
        self, queries: Mapping[TopicPartition, Query], timeout_s: float | None = None
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, errors.OncelogError]]:
        """Return the offsets found in time, and the errors of the others."""
        limit = max(timeout_s or self._config.request_timeout_ms / 1000, 0.1)
        deadline = time.monotonic() + limit
        found: dict[TopicPartition, int] = {}
        final: dict[TopicPartition, errors.OncelogError] = {}
        attempts: defaultdict[TopicPartition, Attempts] = defaultdict(Attempts)
        failures = 0
        while True:
            left = {tp: at for tp, at in queries.items() if tp not in found and tp not in final}
            problems = await self.find_now(left, found)
            for tp, error in problems.items():
                attempts[tp].failed(error)
            final |= {tp: error for tp, error in problems.items() if not error.retriable}
            left = {tp: left[tp] for tp in problems if tp not in final}
            if not left or time.monotonic() >= deadline:
                late = {tp: attempts[tp].error() for tp in left}
                return found, final | late
            failures += 1
            await asyncio.sleep(self._cluster.backoff.delay(failures))
            final |= await self.ask_again(list(left), failures, deadline)

    async def find_both_ends(
        self, tps: Sequence[TopicPartition], timeout_s: float
    ) -> tuple[
        dict[TopicPartition, int],
        dict[TopicPartition, int],
        dict[TopicPartition, errors.OncelogError],
    ]:
        """Return log start offsets, high watermarks and errors: a partition is in both or has one.

        Leaders are asked for first: another client may not have read these topics yet.
        """
        if tps:
            with suppress(errors.RetriableError):
                await self._cluster.refresh({tp.topic for tp in tps})
        (starts, no_start), (ends, no_end) = await asyncio.gather(
            self.find_offsets(dict.fromkeys(tps, "earliest"), timeout_s),
            self.find_offsets(dict.fromkeys(tps, "latest"), timeout_s),
        )
        return starts, ends, no_start | no_end

    async def find_now(
        self, queries: Mapping[TopicPartition, Query], found: dict[TopicPartition, int]
    ) -> dict[TopicPartition, errors.OncelogError]:
        """Ask each leader once; put offsets into `found`, return the errors of the others.

        Nodes are asked at the same time: a hanging node holds up no other's answer.
        """
        problems: dict[TopicPartition, errors.OncelogError] = {}
        by_node: dict[str, list[TopicPartition]] = {}
        for tp in queries:
            address = self._routes.address(tp, for_records=False)
            if address:
                by_node.setdefault(address, []).append(tp)
            else:
                problems[tp] = errors.NotReadyError(f"{tp} has no leader")

        async def ask(address: str, tps: list[TopicPartition]) -> None:
            try:
                await self._ask(address, {tp: queries[tp] for tp in tps}, found, problems)
            except errors.OncelogError as error:
                problems.update(dict.fromkeys(tps, error))
                if error.retriable:
                    for tp in tps:
                        self._routes.failed(tp, address)

        await asyncio.gather(*(ask(address, tps) for address, tps in by_node.items()))
        return problems

    async def ask_again(
        self, tps: Sequence[TopicPartition], failures: int, deadline: float
    ) -> dict[TopicPartition, errors.OncelogError]:
        """Ask for leaders, after so many failures. Returns an error for missing partitions."""
        if failures % MAX_LEADER_FAILURES == 0:
            self._cluster.prefer_another()
        gone: dict[TopicPartition, errors.OncelogError] = {}
        for topic in dict.fromkeys(tp.topic for tp in tps):
            try:
                left = max(0.1, deadline - time.monotonic())
                await self._cluster.require_topic(topic, left)
            except errors.UnknownTopicOrPartitionError as error:
                gone |= {tp: error for tp in tps if tp.topic == topic}
            except errors.RetriableError as error:
                log.debug("list offsets: %s", error)
        return gone | {tp: partition_gone(tp) for tp in self._cluster.leaders.gone(tps)}

    async def _refresh_or_raise(self, topics: set[str], deadline: float) -> None:
        for topic in topics:
            left = max(0.1, deadline - time.monotonic())
            await self._cluster.require_topic(topic, left)

    async def _ask(
        self,
        address: str,
        queries: Mapping[TopicPartition, Query],
        found: dict[TopicPartition, int],
        problems: dict[TopicPartition, errors.OncelogError],
    ) -> None:
        request = log_pb2.ListOffsetsRequest(
            queries=[_query(tp, at) for tp, at in queries.items()],
            any_replica=self._config.any_replica,
        )
        answer: log_pb2.ListOffsetsResponse = await self._cluster.call(
            lambda channel: log_stub(channel).ListOffsets, request, address=address
        )
        check_answers(len(queries), len(answer.results))
        for tp, result in zip(queries, answer.results, strict=True):
            if result.error == log_pb2.PARTITION_ERROR_NONE:
                found[tp] = result.offset
                if queries[tp] == "deleted":
                    found[tp] -= result.blanks_below
                if isinstance(queries[tp], LagQuery):
                    found[tp] = result.behind_ms if result.HasField("behind_ms") else -1
                continue
            self._routes.leads_elsewhere(tp, address, result.leader_id, result.leader_address)
            text = f"{tp}: {result.message or partition_error_name(result.error)}"
            elsewhere = self._routes.damaged(tp, address, result.error)
            if result.error == log_pb2.PARTITION_ERROR_STORAGE and not elsewhere:
                problems[tp] = errors.CorruptLogError(text, topic=tp.topic, partition=tp.partition)
            else:
                problems[tp] = errors.NotReadyError(text)


def partition_gone(tp: TopicPartition) -> errors.UnknownTopicOrPartitionError:
    text = f"topic {tp.topic!r} has no partition {tp.partition}"
    return errors.UnknownTopicOrPartitionError(text, topic=tp.topic, partition=tp.partition)


def _of_partitions(
    problems: Mapping[TopicPartition, errors.OncelogError],
) -> errors.OncelogError:
    """Return the first problem, with the names of all partitions that have one."""
    tps = sorted(problems)
    more = f" and {len(tps) - _MOST_NAMED} more" if len(tps) > _MOST_NAMED else ""
    error = next((one for one in problems.values() if not one.retriable), problems[tps[0]])
    twin = copy.copy(error)
    names = ", ".join(map(str, tps[:_MOST_NAMED]))
    twin.args = (f"no offsets of {names}{more}: {error.message}",)
    return twin


def _query(tp: TopicPartition, what: Query) -> log_pb2.OffsetQuery:
    query = log_pb2.OffsetQuery(topic=tp.topic, partition=tp.partition)
    if what in ("earliest", "deleted"):
        query.earliest = True
    elif what == "latest":
        query.latest = True
    elif isinstance(what, LagQuery):
        query.behind = what.offset
    else:
        assert isinstance(what, int)
        query.timestamp_us = what
    return query
