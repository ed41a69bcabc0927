"""What a node does by itself, now and then: snapshots, preferred leaders, retention."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import grpc

from cluster.config import NodeConfig
from cluster.consensus.driver import Driver
from cluster.consensus.group import Group
from cluster.metadata.state import MetadataState
from cluster.node.metadata_proposer import Controller
from cluster.node.replicas import Replicas
from cluster.transport.link import PeerLink
from storage.errors import StorageError

log = logging.getLogger(__name__)

LOOK_PERIOD = 0.5  # seconds between looks at leaders and at followers that need a snapshot
RECLAIM_PERIOD = 600.0
CAUGHT_UP_ENTRIES = 8  # a preferred leader this little behind may take over


class Duties:
    """The periodic work of one node.

    linked_since: node -> when its link came up, by the monotonic clock.
    reclaim: frees the space of trimmed entries; blocks, called in a thread.
    """

    def __init__(
        self,
        config: NodeConfig,
        driver: Driver,
        replicas: Replicas,
        controller: Controller,
        metadata: MetadataState,
        links: Mapping[int, PeerLink],
        linked_since: Mapping[int, float],
        reclaim: Callable[[], None],
    ) -> None:
        self._config, self._driver, self._replicas = config, driver, replicas
        self._controller, self._metadata = controller, metadata
        self._links, self._linked_since = links, linked_since
        self._reclaim_storage = reclaim
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[tuple[int, int]] = set()

    def start(self) -> None:
        self._spawn(self._every(LOOK_PERIOD, self._look))
        self._spawn(self._every(self._config.retention_check_ms / 1000, self._retain))
        self._spawn(self._reclaim())

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _every(self, period: float, duty: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(period)
            try:
                duty()
            except StorageError as error:
                log.warning("a duty was not done this time: %s", error)

    async def _reclaim(self) -> None:
        """Gives the space of trimmed entries back to the disk, off the event loop."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(RECLAIM_PERIOD)
            try:
                await loop.run_in_executor(None, self._reclaim_storage)
            except StorageError as error:
                log.warning("trimmed space was not given back: %s", error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a duty failed", exc_info=task.exception())

    def _look(self) -> None:
        for gid, group in self._driver.groups.items():
            while group.snapshots_due:
                peer = group.snapshots_due.pop()
                if (gid, peer) not in self._sending:
                    self._sending.add((gid, peer))
                    self._spawn(self._send_snapshot(gid, peer, group))
            self._give_back(gid, group)

    def _give_back(self, gid: int, group: Group) -> None:
        """Lets a partition's preferred node lead again once it has been back for a while."""
        found = self._metadata.partition(gid)
        if found is None or not group.is_ready:
            return
        preferred = found[2].replicas[0]
        since = self._linked_since.get(preferred)
        delay = self._config.preferred_leader_delay_ms / 1000
        if preferred == self._config.node_id or since is None:
            return
        if time.monotonic() - since < delay:
            return
        # To a node that is silent, hung or with a full disk, proposals would wait in vain.
        behind = group.follower_lag().get(preferred, CAUGHT_UP_ENTRIES + 1)
        if behind <= CAUGHT_UP_ENTRIES and group.is_responsive(preferred):
            group.transfer(preferred)
            self._driver.touch(gid)

    async def _send_snapshot(self, gid: int, peer: int, group: Group) -> None:
        index, installed = group.journal.base_index, False
        try:
            snapshot = group.base_snapshot()
            log.info("sending snapshot partition=%s peer=%d index=%d", group.name, peer, index)
            result = await self._links[peer].send_snapshot(snapshot)
            installed = result.installed
        except (grpc.aio.AioRpcError, StorageError) as error:
            log.warning("snapshot not sent partition=%s peer=%d: %s", group.name, peer, error)
            if isinstance(error, StorageError) and gid in self._replicas.by_group:
                self._replicas.by_group[gid].unreadable(error)
        finally:
            self._sending.discard((gid, peer))
            group.snapshot_sent(peer, index, installed)
            if gid in self._driver.groups:
                self._driver.touch(gid)

    def _retain(self) -> None:
        for partition in list(self._replicas.by_group.values()):
            group = partition.group
            if group.failed is not None:
                continue
            try:
                partition.retain()
                partition.compact()
            except StorageError as error:
                log.warning("retention was not done partition=%s: %s", group.name, error)
                partition.unreadable(error)
        self._controller.compact()
