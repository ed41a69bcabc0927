"""Calls to the cluster: channels to its nodes, and a search for a node that answers.

Place in the flow: under every client. Any node answers metadata calls, so a call tries one node
after the other. Calls that only a leader answers name their address. Runs on the engine's loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from oncelog._engine.net.attempts import Attempts
from oncelog._engine.net.backoff import Backoff
from oncelog._engine.net.channels import ChannelPool
from oncelog._engine.net.founding import ClientFounding
from oncelog._engine.net.leaders import LeaderCache
from oncelog._engine.net.wrong_ports import certain, likely
from oncelog.config import ClientConfig
from oncelog.errors import (
    BrokerUnavailableError,
    ConfigError,
    InternalError,
    NotLeaderError,
    NotReadyError,
    OncelogError,
    OtherClusterError,
    RequestTimeoutError,
    RetriableError,
    UnknownTopicOrPartitionError,
)
from oncelog.types import TopicPartition
from oncelog.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    log_pb2_grpc,
    producer_pb2_grpc,
    security_pb2_grpc,
    transaction_pb2_grpc,
)
from oncelog.wire.status import from_rpc_error

log = logging.getLogger("oncelog.client")

# Time in which all nodes learn of a topic created elsewhere.
UNKNOWN_TOPIC_GRACE_S = 2.0
# Failures in a row to reach the named leader before another node is asked: a node that is cut off
# names an outdated leader.
MAX_LEADER_FAILURES = 4
# Rounds over all nodes without any answer ever, in which each port is certainly no node's.
WRONG_ROUNDS = 3
# No node of the cluster has answered, unless a node says so itself.
_SILENT = BrokerUnavailableError, RequestTimeoutError, OtherClusterError


class Cluster:
    """Channels, metadata, and unary calls with retries."""

    def __init__(self, config: ClientConfig, pool: ChannelPool | None = None) -> None:
        """pool: a channel pool shared with other clients. Raises ConfigError."""
        self.config = config
        self.leaders = LeaderCache()
        self.founding = ClientFounding()
        self.backoff = Backoff(
            config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, random.Random()
        )
        # A hanging node must not hold up news from another one.
        self._metadata_timeout_s = min(1.0, config.request_timeout_ms / 1000)
        self._pool = pool or ChannelPool(config)
        self._pool.join(self)
        self._preferred = random.choice(config.bootstrap_servers)
        # Nodes to ask after all others, in the order in which they were avoided.
        self._avoided: dict[str, None] = {}
        # With the failed attempts so far.
        self._refreshing: dict[
            frozenset[str], tuple[asyncio.Task[list[TopicPartition]], Attempts]
        ] = {}
        # Topics unknown to the last node asked: perhaps deleted.
        self._unknown: set[str] = set()
        self._has_answered = False  # any node, since the start

    # --- nodes -----------------------------------------------------------------------

    def channel(self, address: str) -> grpc.aio.Channel:
        return self._pool.channel(address)

    def addresses(self) -> list[str]:
        """Return all known nodes: the last one that answered, the others at random, avoided ones
        last.
        """
        known = dict.fromkeys([*self.leaders.nodes.values(), *self.config.bootstrap_servers])
        others = [a for a in known if a != self._preferred and a not in self._avoided]
        random.shuffle(others)
        avoided = [a for a in self._avoided if a in known and a != self._preferred]
        return [self._preferred, *others, *avoided]

    def avoid(self, address: str) -> None:
        """Ask the other nodes first, until they are avoided, too."""
        self._avoided.pop(address, None)
        self._avoided[address] = None
        if self._preferred == address:
            self._preferred = next((a for a in self.addresses() if a != address), address)

    def prefer_another(self) -> None:
        """Begin with another node next time: the first one knows too little."""
        self.avoid(self._preferred)

    def leader_failed(self, address: str, failures: int) -> None:
        """Note that a named leader did not serve, so often in a row.

        The node may be cut off and name itself, or no leader, until that ends; so ask other nodes.
        """
        self.avoid(address)
        if failures % MAX_LEADER_FAILURES == 0:
            self.prefer_another()

    async def close(self) -> None:
        for task, _ in self._refreshing.values():
            task.cancel()
        await self._pool.leave(self)

    def metrics(self) -> dict[str, int | float]:
        """Return whether any node answers: see `Reachability`."""
        return self._pool.reachability.metrics()

    # --- calls -----------------------------------------------------------------------

    async def call(
        self,
        method: Callable[[grpc.aio.Channel], Any],
        request: Any,
        *,
        timeout_s: float | None = None,
        address: str | None = None,
        attempt_timeout_s: float | None = None,
        on_retry: Callable[[OncelogError], None] | None = None,
        first: str = "",
    ) -> Any:
        """Call a unary method until it succeeds, fails for good, or time is up.

        `method` takes a channel and returns the stub's method. With `address` only that node is
        asked, once; `first`: the node to begin with. Raises the OncelogError of the last answer
        that a node gave, and OtherClusterError at once if no node of the client's own cluster
        answers.
        """
        limit = timeout_s if timeout_s is not None else self.config.request_timeout_ms / 1000
        deadline = time.monotonic() + limit
        one = attempt_timeout_s or self.config.request_timeout_ms / 1000
        if address is not None:
            return await self._call_one(address, method, request, min(one, limit))
        failures = 0
        attempts = Attempts()
        while True:
            targets = self.addresses()
            if first and not failures:
                targets = list(dict.fromkeys((first, *targets)))
            problems: list[RetriableError] = []
            for target in targets:
                remaining = deadline - time.monotonic()
                try:
                    answer = await self._call_one(
                        target, method, request, max(0.05, min(one, remaining))
                    )
                except RetriableError as error:
                    if isinstance(error, UnknownTopicOrPartitionError):
                        raise attempts.final(error) from None
                    attempts.failed(error)
                    problems.append(error)
                    if on_retry is not None:
                        on_retry(error)
                except OncelogError as error:
                    raise attempts.final(error) from None
                else:
                    self._has_answered = True
                    if target != first:
                        self._preferred = target
                    return answer
                if time.monotonic() >= deadline:
                    raise attempts.error()
            failures += 1
            self._check_round(problems, failures, attempts)
            pause = self.backoff.after(problems[-1], failures)
            if time.monotonic() + pause >= deadline:
                raise attempts.error()
            await asyncio.sleep(pause)

    def _check_round(
        self, problems: list[RetriableError], failures: int, attempts: Attempts
    ) -> None:
        """Raise the error of a round in which all nodes failed, if another one cannot help."""
        for error in problems:
            if isinstance(error, OtherClusterError):
                raise attempts.with_doubt(error)
        wrong = not self._has_answered and all(certain(error.message) for error in problems)
        if wrong and failures >= WRONG_ROUNDS:
            text = f"bootstrap_servers: {problems[-1].message}"
            raise ConfigError(text, "bootstrap_servers")

    async def call_leader(
        self,
        tp: TopicPartition,
        method: Callable[[grpc.aio.Channel], Any],
        request: Any,
        timeout_s: float | None = None,
    ) -> Any:
        """Call a unary method at a partition's leader; follow the leader when it changes."""
        limit = timeout_s if timeout_s is not None else self.config.request_timeout_ms / 1000
        deadline = time.monotonic() + limit
        failures, attempts = 0, Attempts()
        while True:
            address = self.leaders.address(tp)
            try:
                if not address:
                    raise NotReadyError(f"{tp} has no leader")
                return await self._call_one(
                    address, method, request, max(0.05, deadline - time.monotonic())
                )
            except RetriableError as error:
                failures += 1
                attempts.failed(error)
                hinted = isinstance(error, NotLeaderError) and bool(error.leader_address)
                if isinstance(error, NotLeaderError) and hinted:
                    self.leaders.hint(tp, error.leader_id, error.leader_address)
                else:
                    self.leaders.suspect(tp)
                self.leader_failed(address, failures)
                pause = 0.0 if hinted and failures == 1 else self.backoff.after(error, failures)
                if time.monotonic() + pause >= deadline:
                    raise attempts.error() from None
            except OncelogError as error:
                raise attempts.final(error) from None
            await asyncio.sleep(pause)
            if failures > 1 or not hinted:
                try:
                    await self.require_topic(tp.topic, max(0.05, deadline - time.monotonic()))
                except UnknownTopicOrPartitionError as error:
                    raise attempts.final(error) from None
                except RetriableError as error:
                    attempts.failed(error)
                    raise attempts.error() from None

    async def _call_one(
        self,
        address: str,
        method: Callable[[grpc.aio.Channel], Any],
        request: Any,
        timeout_s: float,
    ) -> Any:
        reachability, named = self._pool.reachability, self.founding.metadata
        try:
            call = method(self.channel(address))(request, timeout=timeout_s, metadata=named)
            answer = await call
            if not named:
                self.founding.learn(address, await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            problem = from_rpc_error(error)
            unsent = problem.unsent
            told = problem.from_node and not isinstance(problem, OtherClusterError)
            if isinstance(problem, BrokerUnavailableError | RequestTimeoutError):
                hint = certain(problem.message) or likely(problem.message)
                problem = type(problem)(": ".join(filter(None, (address, hint, problem.message))))
                problem.from_node, problem.unsent = told, unsent
            if isinstance(problem, _SILENT) and not told:
                reachability.failed(problem.message)
            else:
                reachability.answered(address)
            raise problem from None
        reachability.answered(address)
        return answer

    # --- metadata --------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Ask for topics' leaders; return partitions whose leader changed.

        Concurrent calls for the same topics share one request. A topic that does not exist is
        missing in the answer, without an error.
        """
        names = frozenset(topics)
        if names not in self._refreshing:
            attempts = Attempts()
            task = asyncio.create_task(self._refresh(names, attempts))
            self._refreshing[names] = task, attempts
            task.add_done_callback(lambda _: self._refreshing.pop(names, None))
        return await asyncio.shield(self._refreshing[names][0])

    async def _refresh(self, names: frozenset[str], attempts: Attempts) -> list[TopicPartition]:
        request = cluster_pb2.DescribeTopicsRequest(names=sorted(names))
        try:
            answer = await self.call(
                describe_topics,
                request,
                attempt_timeout_s=self._metadata_timeout_s,
                on_retry=attempts.failed,
            )
        except UnknownTopicOrPartitionError:
            # The node may be behind, or cut off: others are asked next.
            self.prefer_another()
            if len(names) == 1:
                self._unknown.update(names)
                return []
            changed: list[TopicPartition] = []
            for name in names:
                changed += await self.refresh([name])
            return changed
        self._unknown.difference_update(names)
        return self.leaders.update(answer)

    async def refresh_at(self, address: str, topic: str) -> None:
        """Take over a node's view of a topic. Raises the node's or the topic's OncelogError."""
        request = cluster_pb2.DescribeTopicsRequest(names=[topic])
        answer = await self.call(
            describe_topics,
            request,
            address=address,
            attempt_timeout_s=self._metadata_timeout_s,
        )
        self.leaders.update(answer)

    async def require_topic(self, topic: str, timeout_s: float) -> None:
        """Wait until the topic's metadata is known; raise UnknownTopicOrPartitionError.

        Without it in time, raises a node's refusal, or RequestTimeoutError. A missing topic is
        asked for again for a short while: it may have been created a moment ago through another
        node.
        """
        start = time.monotonic()
        failures, attempts = 0, Attempts()
        text = f"no metadata of topic {topic!r} within {timeout_s:g} s"
        while True:
            failures += 1
            answered = True
            left = max(0.05, start + timeout_s - time.monotonic())
            try:
                await asyncio.wait_for(self.refresh([topic]), left)
            except RetriableError as error:
                attempts.failed(error)
                if time.monotonic() - start >= timeout_s:
                    raise attempts.late(text) from error
                answered = False
            except TimeoutError:
                _, running = self._refreshing.get(frozenset([topic]), (None, Attempts()))
                if running.telling is not None:
                    attempts.failed(running.telling)
                raise attempts.late(text) from None
            if topic in self.leaders.topics and topic not in self._unknown:
                return
            # Without any answer, the topic may still exist.
            if answered and time.monotonic() - start >= min(timeout_s, UNKNOWN_TOPIC_GRACE_S):
                text = f"topic {topic!r} does not exist: oncelog topic create {topic}"
                raise UnknownTopicOrPartitionError(text, topic=topic)
            await asyncio.sleep(self.backoff.delay(min(failures, 4)))


def check_answers(asked: int, answered: int) -> None:
    """Raises InternalError if a node did not answer each question of a request once."""
    if answered != asked:
        raise InternalError(f"the node gave {answered} answers to {asked} questions")


def describe_topics(channel: grpc.aio.Channel) -> Any:
    return cluster_pb2_grpc.ClusterServiceStub(channel).DescribeTopics


def cluster_stub(channel: grpc.aio.Channel) -> Any:
    return cluster_pb2_grpc.ClusterServiceStub(channel)


def security_stub(channel: grpc.aio.Channel) -> Any:
    return security_pb2_grpc.SecurityServiceStub(channel)


def producer_stub(channel: grpc.aio.Channel) -> Any:
    return producer_pb2_grpc.ProducerServiceStub(channel)


def log_stub(channel: grpc.aio.Channel) -> Any:
    return log_pb2_grpc.LogServiceStub(channel)


def transaction_stub(channel: grpc.aio.Channel) -> Any:
    return transaction_pb2_grpc.TransactionServiceStub(channel)
