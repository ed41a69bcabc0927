"""Leader watch: asks until each partition with something to send has a leader to send to.

Place in the flow: `sender` names topics with possibly changed leaders, and leaders that have
rejected; the answers go to the cluster's `leaders`. Runs on the engine's loop; other threads call
`ask` only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from oncelog import errors
from oncelog._engine.net.backoff import Backoff
from oncelog._engine.net.cluster import MAX_LEADER_FAILURES, Cluster
from oncelog.types import TopicPartition

log = logging.getLogger("oncelog.producer")


class LeaderWatch:
    """wanted: the partitions that have something to send.

    is_open: whether there is a connection to this address.
    on_round: called after each round of questions to nodes.
    """

    def __init__(
        self,
        cluster: Cluster,
        loop: asyncio.AbstractEventLoop,
        *,
        wanted: Callable[[], Iterable[TopicPartition]],
        is_open: Callable[[str], bool],
        on_round: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._loop = loop
        self._wanted = wanted
        self._is_open = is_open
        self._on_round = on_round
        self.failure: errors.OncelogError | None = None  # of the last round
        self._stale: set[str] = set()
        self._any_stale = asyncio.Event()
        # Leaders that rejected, with their terms: a new leader is there or will be.
        self._suspected: dict[TopicPartition, tuple[str, int]] = {}

    def mark_stale(self, topic: str) -> None:
        self._stale.add(topic)
        self._any_stale.set()

    def ask(self, topic: str) -> None:  # from any thread
        self._loop.call_soon_threadsafe(self.mark_stale, topic)

    def suspect(self, tp: TopicPartition, refused: str) -> None:
        """Doubt the named leader. Ask other nodes until one of them names another leader.

        It may be cut off, and still name itself. So does a node that is cut off with it, or one
        that has not learned of the election yet.
        """
        self._cluster.avoid(refused)
        self._cluster.leaders.suspect(tp)
        leader = self._cluster.leaders.leader(tp)
        if leader is not None and leader.address == refused:
            self._suspected[tp] = (refused, leader.term)
        self.mark_stale(tp.topic)

    def leads(self, tp: TopicPartition) -> None:
        """Note that it has answered as a leader does, after all."""
        if self._suspected:
            self._suspected.pop(tp, None)

    def _is_suspected(self, tp: TopicPartition) -> bool:
        leader = self._cluster.leaders.leader(tp)
        return leader is not None and self._suspected.get(tp) == (leader.address, leader.term)

    def _is_found(self, tp: TopicPartition) -> bool:
        return self._is_open(self._cluster.leaders.address(tp)) and not self._is_suspected(tp)

    async def run(self) -> None:
        """Ask for the leaders of stale topics, again and again until all have one."""
        pace = Backoff(0.02, 0.25)
        rounds = 0
        while True:
            await self._any_stale.wait()
            self._any_stale.clear()
            topics, self._stale = self._stale, set()
            try:
                await self._cluster.refresh(topics)
                self.failure = None
            except errors.OncelogError as error:
                log.debug("no metadata: %s", error)
                self.failure = error
            lacking = {tp.topic for tp in self._wanted() if not self._is_found(tp)} & topics
            self._on_round()
            rounds = rounds + 1 if lacking or self._stale else 1
            await asyncio.sleep(pace.delay(rounds))
            if lacking:
                if rounds % MAX_LEADER_FAILURES == 0:
                    self._cluster.prefer_another()
                self._stale |= lacking
                self._any_stale.set()
