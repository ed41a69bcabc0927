"""Leaders of groups as far as this node knows, and waiting for a change.

own replicas (Group.leader_id) --+
peers that began to lead ---------+--> Leaders.leader_of, wait_until
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from cluster.consensus.message import LeaderNotice


class KnowsLeader(Protocol):
    """Knowledge of this node's own replica. `Group` is one."""

    @property
    def leader_id(self) -> int: ...
    @property
    def term(self) -> int: ...


class Leaders:
    """The leaders that this node knows of. groups: its own replicas, by group id."""

    def __init__(self, groups: Mapping[int, KnowsLeader]) -> None:
        self._groups = groups
        self._announced: dict[int, tuple[int, int]] = {}  # group -> (term, leader)
        self._changed = asyncio.Event()

    def leader_of(self, group_id: int) -> tuple[int, int]:
        """Return (node id or 0, term).

        A new leader's announcement counts before this node's own replica: a replica that has
        stopped, or cannot write to a full disk, still leads in its old term.
        """
        group = self._groups.get(group_id)
        term, leader = self._announced.get(group_id, (0, 0))
        if group is not None and term <= group.term:
            return group.leader_id, group.term
        return leader, term

    def announced(self, message: LeaderNotice) -> bool:
        """Note that a node leads. Returns False if that, or something newer, is known."""
        at, known = (message.term, message.leader), self._announced.get(message.group, (0, 0))
        if at[0] < known[0] or at == known:
            return False
        self._announced[message.group] = at
        self.notify()
        return True

    def forget(self, group_id: int) -> None:
        """Forget what was announced of a group."""
        self._announced.pop(group_id, None)

    def announcement(self, group_id: int) -> tuple[int, int]:
        """Return the newest announcement of the group: (term, leader)."""
        return self._announced[group_id]

    def notify(self) -> None:
        """Wake the waiters after a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_until(self, holds: Callable[[], bool], timeout: float) -> bool:
        """Check at each change; returns whether it holds before the timeout (seconds)."""
        try:
            async with asyncio.timeout(timeout):
                while not holds():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for_leaders(self, group_ids: Collection[int], timeout: float) -> bool:
        """Return whether each group has a known leader before the timeout."""
        return await self.wait_until(
            lambda: all(self.leader_of(gid)[0] for gid in group_ids), timeout
        )
