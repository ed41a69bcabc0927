"""Quotas of gRPC calls: the rates that delay each method, and the transactions that it begins.

    Guarding --Limited--> Pace, Usage.begin

gRPC's flow control carries the wait of a stream to its client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

from cluster.access.quotas import Pace
from cluster.security.quotas import IN_BYTES, NEW_PRODUCERS, OUT_BYTES, REQUESTS, Usage
from cluster.services.requests import Undecodable

# A repeated begin, after a lost answer, has the same key. A sink has one batch at a time.
_BEGINS: Mapping[str, Callable[[Any], Hashable]] = {
    "/oncelog.v1.TransactionService/BeginTransaction": lambda one: (one.producer_id, one.nonce),
    "/oncelog.v1.SinkService/BeginBatch": lambda request: request.sink,
}
# A delay would end the session or transaction that these keep alive: they only count.
_UNDELAYED = frozenset(
    {
        "/oncelog.v1.GroupService/JoinGroup",
        "/oncelog.v1.GroupService/GroupHeartbeat",
        "/oncelog.v1.TransactionService/KeepTransactionsAlive",
    }
)
# A call does not wait for the rate of the direction that it does not use.
_RATES = {
    "/oncelog.v1.LogService/Produce": (REQUESTS, IN_BYTES),
    "/oncelog.v1.LogService/ProduceStream": (REQUESTS, IN_BYTES),
    "/oncelog.v1.LogService/Fetch": (REQUESTS, OUT_BYTES),
    "/oncelog.v1.LogService/Subscribe": (REQUESTS, OUT_BYTES),
    "/oncelog.v1.ProducerService/LeaseProducer": (REQUESTS, IN_BYTES, OUT_BYTES, NEW_PRODUCERS),
}
_OTHER = (REQUESTS, IN_BYTES, OUT_BYTES)


class Limited(Pace):
    """One method's calls, for any principal."""

    def __init__(self, method: str) -> None:
        super().__init__(() if method in _UNDELAYED else _RATES.get(method, _OTHER))
        self._begins = _BEGINS.get(method)
        self._commits = method == "/oncelog.v1.TransactionService/CommitTransaction"

    async def answer(self, usage: Usage, request: Any, call: Callable[[], Awaitable[Any]]) -> Any:
        """Answer one request. Raises ExceededError."""
        await self.admit(usage, request)
        if self._begins is not None and not isinstance(request, Undecodable):
            with usage.begin(self._begins(request)) as begun:
                answer = await call()
                begun(answer.transaction_id)
        elif self._commits and not isinstance(request, Undecodable):
            answer = await _committed(usage, request, call)
        else:
            answer = await call()
        self.answered(usage, answer)
        return answer


async def _committed(usage: Usage, request: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    """Commit; the next transaction replaces the ending one, if the quota allows it.

    Otherwise the caller begins the next transaction itself, and gets the refusal.
    """
    number = request.transaction_id
    if request.HasField("begin_next") and not usage.may_begin_after(number):
        request.ClearField("begin_next")
    answer = await call()
    if answer is not None and answer.HasField("next"):
        begun = (request.producer_id, request.begin_next.nonce)
        usage.begun_next(answer.next.transaction_id, begun)
    return answer
