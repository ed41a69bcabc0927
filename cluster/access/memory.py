"""Memory accounting of one call: its request, once received, and its answer, until it is taken.

a protocol --has_room, received, answered--> Account --> Budget, one for the node
"""

from __future__ import annotations

import asyncio

from cluster.access.budget import Account, Budget
from oncelog.errors import ThrottledError

CALL_BYTES = 32 * 1024  # of memory that a call takes beside its messages
SMALL_BYTES = 2 * CALL_BYTES  # a smaller call is answered once received
# A request is held raw and decoded, an answer here and by the protocol's library.
COPIES = 2
NO_MEMORY = "this node's memory for clients (client_memory_bytes) is used"


def has_room(memory: Budget) -> bool:
    """Return whether one more call may begin; its account then takes CALL_BYTES."""
    return memory.used + CALL_BYTES <= memory.limit


def received(memory: Budget, account: Account, size: int) -> None:
    """Count a request of `size` bytes. Raises ThrottledError if it may not stay."""
    account.take(COPIES * size)
    if memory.full and account.held > SMALL_BYTES:
        raise ThrottledError(NO_MEMORY)


def answered(account: Account, size: int) -> None:
    """Count an answer of `size` bytes, which now waits for its client."""
    account.take(COPIES * size)
    account.blocked_since = asyncio.get_running_loop().time()
