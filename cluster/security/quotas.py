"""Quotas of principals at one node, and their use. Pure, but for a clock.

    Pace (calls), Appender (batches) --Usage--> Quotas --rows--> the metadata group

A rate is a bucket that fills by its value each second, to one second's worth at most. Use is
taken out of it, even beyond its content. An overdrawn principal waits until the bucket is filled
again, so that the rate holds over time for messages of any size. A count is the number at one
moment. A node counts only its own traffic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

IN_BYTES, OUT_BYTES, REQUESTS = "in_bytes_per_s", "out_bytes_per_s", "requests_per_s"
NEW_PRODUCERS = "producer_ids_per_s"
RATES = (IN_BYTES, OUT_BYTES, REQUESTS, NEW_PRODUCERS)
PRODUCERS = "producer_ids"  # in one partition
TRANSACTIONS, STAGED_BYTES = "open_transactions", "staged_bytes"
STREAMS, CONNECTIONS = "streams", "connections"
NAMES = (*RATES, PRODUCERS, TRANSACTIONS, STAGED_BYTES, STREAMS, CONNECTIONS)
ALL = "*"
MAX_VALUE = 2**50
MAX_QUOTAS = 10_000
MAX_CHARS = 255
MAX_TRACKED = 10_000  # principals
FRESH_S = 60.0  # a producer id may be on its way to the partition for so long
LOOK_S = 0.1  # between two looks for ended things among those counted
MAX_ENDED = 10_000  # counted transactions that may have ended
_NO_LIMITS: Mapping[str, int] = {}


class QuotaRow(NamedTuple):
    """value 0: no limit, even if "*" has one."""

    principal: str
    name: str
    value: int


class ExceededError(Exception):
    """A quota is used up. retry_after_s: seconds until it is not; 0: not known."""

    def __init__(self, quota: str, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.quota = quota
        self.retry_after_s = retry_after_s


def fault(quota: QuotaRow) -> str:
    """Return the fault of a quota, beginning with the field. Empty: none."""
    if not 1 <= len(quota.principal) <= MAX_CHARS or not quota.principal.isprintable():
        return f"principal: must have 1..{MAX_CHARS} printable characters"
    if quota.name not in NAMES:
        return f"name: {quota.name!r} must be one of {', '.join(NAMES)}"
    if not 0 <= quota.value <= MAX_VALUE:
        return f"value: {quota.value} must be 0..{MAX_VALUE}"
    return ""


class Bucket:
    """Rest of a rate; negative if it is overdrawn."""

    __slots__ = ("_at", "_left", "rate")

    def __init__(self, rate: int, now: float) -> None:
        assert rate > 0
        self.rate = rate
        self._left = float(rate)
        self._at = now

    def wait(self, now: float) -> float:
        """Return the seconds until it is not overdrawn."""
        self._left = min(float(self.rate), self._left + max(0.0, now - self._at) * self.rate)
        self._at = now
        return max(0.0, -self._left / self.rate)

    def take(self, amount: int, now: float) -> None:
        self.wait(now)
        self._left -= amount

    @property
    def is_full(self) -> bool:
        return self._left >= self.rate


@dataclass(slots=True)
class _Producers:
    """Producer ids of one partition, and since when each was let in."""

    since: dict[int, float] = field(default_factory=dict)
    looked_at: float = float("-inf")


class Usage:
    """One principal's use of this node, and its limits."""

    def __init__(self, quotas: Quotas, principal: str) -> None:
        self._quotas = quotas
        self.principal = principal
        self._limits: Mapping[str, int] = _NO_LIMITS
        self._buckets: dict[str, Bucket] = {}
        self._streams = 0
        self._connections = Counter[str]()  # calls in progress of each
        self._beginning = 0
        self._transactions: dict[int, Hashable] = {}  # number -> key of its begin
        self._staged: dict[int, int] = {}  # transaction -> bytes
        self._staged_bytes = 0  # of all of them
        self._staged_looked_at = float("-inf")
        self._producers: dict[int, _Producers] = {}  # by group

    def limits(self) -> Mapping[str, int]:
        """Return the limits in force now; empty: none."""
        self._quotas.refresh()
        return self._limits

    def set_limits(self, limits: Mapping[str, int], now: float) -> None:
        self._limits = limits
        self._buckets = {
            name: self._bucket(name, limits[name], now) for name in RATES if name in limits
        }

    def _bucket(self, name: str, rate: int, now: float) -> Bucket:
        """Keep a bucket if its rate stays: another quota's change must not clear its debt."""
        known = self._buckets.get(name)
        return known if known is not None and known.rate == rate else Bucket(rate, now)

    @property
    def is_idle(self) -> bool:
        """Return whether dropping it loses nothing."""
        now = self._quotas.clock()
        return (
            not (self._connections or self._transactions or self._staged or self._producers)
            and not self._beginning
            and all(bucket.wait(now) == 0 and bucket.is_full for bucket in self._buckets.values())
        )

    # -- rates --------------------------------------------------------------------------

    def wait(self, names: Iterable[str]) -> tuple[float, str]:
        """Return the seconds until none of these rates is overdrawn, and the slowest rate."""
        longest, slowest = 0.0, ""
        if self.limits():
            now = self._quotas.clock()
            for name in names:
                bucket = self._buckets.get(name)
                seconds = 0.0 if bucket is None else bucket.wait(now)
                if seconds > longest:
                    longest, slowest = seconds, name
        return longest, slowest

    def take(self, name: str, amount: int) -> None:
        bucket = self._buckets.get(name)
        if bucket is not None:
            bucket.take(amount, self._quotas.clock())

    def delayed(self, name: str, seconds: float) -> None:
        """Count the delay for the metrics."""
        self._quotas.delayed[name] += seconds

    def exceeded(self, name: str, text: str, retry_after_s: float = 0.0) -> ExceededError:
        self._quotas.refused[name] += 1
        return ExceededError(name, f"{name} of {self.principal}: {text}", retry_after_s)

    # -- counts -------------------------------------------------------------------------

    def _check(self, name: str, used: int) -> None:
        """Raises ExceededError if one more is too much."""
        limit = self.limits().get(name, 0)
        if limit and used >= limit:
            raise self.exceeded(name, f"{used} are used, the limit is {limit}")

    @contextmanager
    def call(self, connection: str, *, stream: bool) -> Iterator[None]:
        """Count one call in progress. Raises ExceededError."""
        if connection not in self._connections:
            self._check(CONNECTIONS, len(self._connections))
        if stream:
            self._check(STREAMS, self._streams)
        self._connections[connection] += 1
        self._streams += stream
        try:
            yield
        finally:
            self._streams -= stream
            self._connections[connection] -= 1
            if not self._connections[connection]:
                del self._connections[connection]

    @contextmanager
    def begin(self, nonce: Hashable) -> Iterator[Callable[[int], None]]:
        """Begin one transaction; the yielded function takes its number.

        A begin repeated after a lost answer does not count again. Raises ExceededError.
        """
        self._forget_ended(self._transactions)
        if nonce not in self._transactions.values():
            self._check(TRANSACTIONS, len(self._transactions) + self._beginning)
        self._beginning += 1
        try:
            yield lambda number: self._transactions.update({number: nonce})
        finally:
            self._beginning -= 1

    def may_begin_after(self, transaction: int) -> bool:
        """Return whether one more may be begun as soon as this one has ended."""
        self._forget_ended(self._transactions)
        limit = self.limits().get(TRANSACTIONS, 0)
        others = len(self._transactions.keys() - {transaction}) + self._beginning
        return not limit or others < limit

    def begun_next(self, transaction: int, nonce: Hashable) -> None:
        self._transactions[transaction] = nonce

    def check_staging(self) -> None:
        """Raises ExceededError if nothing more may be staged."""
        limit = self.limits().get(STAGED_BYTES, 0)
        if limit and self._staged_bytes >= limit:
            self._look_at_staged()
            self._check(STAGED_BYTES, self._staged_bytes)

    def staged(self, transaction: int, size: int) -> None:
        if STAGED_BYTES in self._limits:
            self._staged[transaction] = self._staged.get(transaction, 0) + size
            self._staged_bytes += size
            if len(self._staged) > MAX_ENDED:
                self._look_at_staged()

    def _look_at_staged(self) -> None:
        """Drop ended transactions. Not again at once: a refusal must cost little."""
        now = self._quotas.clock()
        if now - self._staged_looked_at >= LOOK_S:
            self._staged_looked_at = now
            self._forget_ended(self._staged)
            self._staged_bytes = sum(self._staged.values())

    def _forget_ended(self, of: dict[int, Hashable] | dict[int, int]) -> None:
        for number in [one for one in of if not self._quotas.is_open(one)]:
            del of[number]

    def check_producer(self, group: int, producer_id: int, is_known: Callable[[int], bool]) -> None:
        """Count a producer id that is new to a partition. Raises ExceededError.

        is_known: whether the partition has it.
        """
        if PRODUCERS not in self.limits():
            self._producers.clear()
            return
        now = self._quotas.clock()
        known = self._producers.setdefault(group, _Producers())
        if producer_id in known.since:
            return
        if len(known.since) >= self._limits[PRODUCERS] and now - known.looked_at >= LOOK_S:
            # The partition forgets ids with expired leases; it evicts none to make room.
            known.looked_at = now
            known.since = {
                pid: since
                for pid, since in known.since.items()
                if now - since < FRESH_S or is_known(pid)
            }
        self._check(PRODUCERS, len(known.since))
        known.since[producer_id] = now


class Quotas:
    """Quotas of one node. Asked on its event loop only.

    rows: those in force, the same object until they change.
    is_open: whether a transaction has not ended.
    exempt: principals without limits, so that an operator can always lift them.
    delayed, refused: by quota, for the metrics.
    """

    def __init__(
        self,
        rows: Callable[[], Sequence[QuotaRow]],
        clock: Callable[[], float],
        is_open: Callable[[int], bool],
        exempt: Iterable[str] = (),
    ) -> None:
        self._rows = rows
        self.clock = clock
        self.is_open = is_open
        self._exempt = frozenset(exempt)
        self._known: Sequence[QuotaRow] = ()
        self._of: dict[str, dict[str, int]] = {}
        self._usages: dict[str, Usage] = {}
        self.delayed = dict.fromkeys(RATES, 0.0)
        self.refused = dict.fromkeys(NAMES, 0)

    def usage(self, principal: str) -> Usage:
        found = self._usages.get(principal)
        if found is None:
            if len(self._usages) >= MAX_TRACKED:
                self._usages = {p: one for p, one in self._usages.items() if not one.is_idle}
            found = self._usages[principal] = Usage(self, principal)
            self.refresh()
            found.set_limits(self._limits_of(principal), self.clock())
        return found

    def refresh(self) -> None:
        """Apply the quotas that are in force now."""
        rows = self._rows()
        if rows is self._known:
            return
        self._known = rows
        self._of = {}
        for row in rows:
            self._of.setdefault(row.principal, {})[row.name] = row.value
        now = self.clock()
        for principal, usage in self._usages.items():
            usage.set_limits(self._limits_of(principal), now)

    def _limits_of(self, principal: str) -> Mapping[str, int]:
        if principal in self._exempt:
            return _NO_LIMITS
        values = {**self._of.get(ALL, {}), **self._of.get(principal, {})}
        return {name: value for name, value in values.items() if value}
