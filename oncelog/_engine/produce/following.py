"""Following transaction: begun by a commit for its producer's next begin, which saves a call.

Place in the flow: `transactions` asks here whether a commit shall begin another one, hands in the
new one, and takes it when the application begins. It is aborted if it is not taken soon: an open
transaction keeps the cluster from forgetting ended ones. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncelog._engine.produce.sealing import LeasedIdentity
from oncelog.v1 import transaction_pb2 as pb

# An application that begins so soon after a commit is expected to do so again; the following
# transaction is kept for so long.
SOON_S = 1.0
# It is kept for this part of the idle time at most: its first sign of life is due then.
_IDLE_SHARE = 4


@dataclass(frozen=True, slots=True)
class Terms:
    """Owner of the transaction, and the times that the application asked for."""

    identity: LeasedIdentity
    idle_timeout_ms: int
    total_timeout_ms: int


class Following:
    """State of one producer. `begun`: the transaction that waits to be taken."""

    def __init__(self) -> None:
        self.begun: pb.BeginTransactionResponse | None = None
        self.terms: Terms | None = None  # of the newest transaction
        self.is_expected = False
        self._ended_at = float("-inf")

    def note_begin(self, terms: Terms, now: float) -> None:
        self.terms = terms
        self.is_expected = now - self._ended_at < SOON_S

    def note_end(self, now: float) -> None:
        self._ended_at = now

    def keep(self, begun: pb.BeginTransactionResponse) -> float:
        """Keep a transaction; returns the seconds until it may no longer be taken."""
        assert self.begun is None, "the one before was taken or aborted"
        self.begun = begun
        return min(SOON_S, begun.idle_timeout_ms / 1000 / _IDLE_SHARE)

    def take(self) -> pb.BeginTransactionResponse | None:
        begun, self.begun = self.begun, None
        return begun
