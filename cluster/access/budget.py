"""Budget of a node's calls: bytes of memory, or batches in progress.

    a call --take, release--> Account --> Budget, one for the node
           --room-----------> waits while the node holds much, and this call more than its share

A call that holds little goes on while others wait: the largest holder is slowed first. Callers
check `full` and refuse work beyond the limit. `hog` names the client that has held unread
answers for long while room is scarce (docs/adr/0034).
"""

from __future__ import annotations

import asyncio
from collections import Counter

UNREAD_S = 10.0  # seconds that a client may leave an answer unread while room is scarce


class Account:
    """Holdings of one call.

    client:        the connection that the call came over, as gRPC names it; "": not known yet.
    receiving:     waits for a message, of which any part may have come.
    blocked_since: an answer waits since then for its client to read it (loop time).
    """

    __slots__ = ("_budget", "_waiter", "blocked_since", "client", "held", "receiving")

    def __init__(self, budget: Budget, client: str) -> None:
        self._budget = budget
        self.client = client
        self._waiter: asyncio.Future[None] | None = None
        self.held = 0
        self.receiving = False
        self.blocked_since: float | None = None

    def take(self, amount: int) -> None:
        """Count memory that is already held; `Budget.full` says whether it may stay."""
        self.held += amount
        self._budget.used += amount

    def release(self, amount: int) -> None:
        self.held -= amount
        budget = self._budget
        budget.used -= amount
        if budget.waiting:
            if budget.used <= budget.slow:
                budget.wake_all()
            elif self._waiter is not None and not self.must_wait:
                self.wake()

    @property
    def must_wait(self) -> bool:
        budget = self._budget
        return budget.used > budget.slow and self.held > budget.share

    async def room(self) -> None:
        """Return when this call may take more."""
        while self.must_wait:
            assert self._waiter is None, "one task waits for a call"
            self._waiter = asyncio.get_running_loop().create_future()
            self._budget.waiting.add(self)
            try:
                await self._waiter
            finally:
                self._budget.waiting.discard(self)
                self._waiter = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Budget:
    """slow: above it, a call with more than its share waits. limit: above it, work is refused."""

    def __init__(self, limit: int, slow: int) -> None:
        assert 0 < slow <= limit
        self.limit = limit
        self.slow = slow
        self.used = 0
        self.waiting: set[Account] = set()
        self._accounts: dict[object, Account] = {}

    @property
    def full(self) -> bool:
        return self.used > self.limit

    @property
    def spare(self) -> int:
        """Return how much may be taken before any call is slowed."""
        return max(0, self.slow - self.used)

    @property
    def share(self) -> float:
        """Return how much each account may hold even when there is little room."""
        return self.slow / max(1, len(self._accounts))

    def of_call(self, client: str = "") -> Account:
        """Return the account of the current task's call; closed with the task."""
        task = asyncio.current_task()
        assert task is not None, "a call is a task"
        account = self._accounts.get(task)
        if account is None:
            account = self.open(task)
            task.add_done_callback(self.close)
        account.client = client or account.client
        return account

    def open(self, key: object, client: str = "") -> Account:
        """Open an account that lasts until `close`."""
        assert key not in self._accounts
        account = self._accounts[key] = Account(self, client)
        return account

    def close(self, key: object) -> None:
        account = self._accounts.pop(key)
        assert 0 <= account.held <= self.used, "more was released than taken"
        account.release(account.held)

    def wake_all(self) -> None:
        """Wake the waiting calls after room was freed."""
        for account in self.waiting:
            account.wake()

    def hog(self, now: float) -> str:
        """Return the client with the most unread answers if room is scarce; else "".

        now: loop time.
        """
        held = Counter[str]()
        if self.used > self.slow // 2:
            for account in self._accounts.values():
                since = account.blocked_since
                if since is not None and now - since >= UNREAD_S:
                    held[account.client] += account.held
        return max(held, key=held.__getitem__, default="")

    def receiving(self) -> Counter[str]:
        """Count the calls of each client that wait for a message."""
        return Counter(one.client for one in self._accounts.values() if one.receiving)
