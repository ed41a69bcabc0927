"""Replay budget of a node: limits the log its replicas apply again at a start.

    entry applied -> Checkpoints.applied -> total over the limit?
    Driver.begin  -> overdue() -> these replicas save their state, into the same write

Each replica saves by itself after `checkpoint_bytes` of its own. That bounds the start of a node
with a few busy partitions, but hundreds of them, each below its own limit, add up to more than a
disk reads in a reasonable time. So the node has a limit too: the replica with most to apply again
saves first (RocksDB: max_total_wal_size).
"""

from __future__ import annotations

import heapq
from typing import Protocol

ENTRY_BYTES = 16 * 1024  # cost of applying an entry beside its bytes, in bytes read
# Save early only if that spares a start several times the bytes written.
WORTH = 4
MAX_SAVES = 8  # in one round of the node's loop, which all groups wait for


class ReplayingGroup(Protocol):
    """group: its id. replay_cost, state_bytes: of the log since the state, of the state."""

    group: int
    replay_cost: int
    state_bytes: int


class ReplayBudget:
    """Replicas of one node and the log each would apply again. The driver owns it."""

    def __init__(self, limit: int) -> None:
        """limit: bytes, where an entry counts as its own and ENTRY_BYTES."""
        assert limit > 0
        self.limit = limit
        self.total = 0
        self._look_above = limit  # no need to look at all members below this total
        self._members: dict[int, ReplayingGroup] = {}

    def join(self, member: ReplayingGroup) -> None:
        """Adds a member, in place of the group's former one."""
        self.leave(member.group)
        self._members[member.group] = member
        self.total += member.replay_cost

    def leave(self, group: int) -> None:
        member = self._members.pop(group, None)
        if member is not None:
            self.saved(member)

    def has(self, member: ReplayingGroup) -> bool:
        """Whether it is still the group's member."""
        return self._members.get(member.group) is member

    def applied(self, member: ReplayingGroup, size: int) -> None:
        """Counts an applied entry of `size` bytes."""
        member.replay_cost += size + ENTRY_BYTES
        self.total += size + ENTRY_BYTES

    def saved(self, member: ReplayingGroup) -> None:
        """Resets its count: a start has nothing of it to apply again."""
        self.total -= member.replay_cost
        member.replay_cost = 0
        assert self.total >= 0

    def overdue(self) -> list[int]:
        """Returns the groups that should save now, those with most to apply again first."""
        too_much = self.total - self.limit
        if too_much <= 0:
            self._look_above = self.limit
        if self.total <= self._look_above:
            return []
        worth_it = (
            member
            for member in self._members.values()
            if member.replay_cost >= max(1, WORTH * member.state_bytes)
        )
        groups = []
        for member in heapq.nlargest(
            MAX_SAVES, worth_it, key=lambda one: (one.replay_cost, -one.group)
        ):
            if too_much > 0:
                groups.append(member.group)
                too_much -= member.replay_cost
        # No member can help now, but one may after some more entries.
        self._look_above = self.limit if groups else self.total + self.limit // 16
        return groups
