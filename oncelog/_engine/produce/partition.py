"""Window of one partition: order, retries, and the effect of each verdict.

Place in the flow: the sender asks `next()` for a batch, reports answers, broken connections and
time, and carries out the returned `Reaction`. Pure: no IO, the clock's reading is an argument.

The rules that make a retry safe:

- sequences are given when a batch is first sent, and never change after that;
- the window holds the batches in flight, in order. After any failure, all unacknowledged
  batches in it are sent again from the head on, the same bytes;
- a batch behind a retried one may be answered OUT_OF_ORDER. The head, sent when all before it
  was acknowledged, may not: then this producer cannot go on;
- a batch that a node rejected for good consumed no sequence. The batches behind it in the
  window can never be stored under the same producer id, because the gap stays; so they are
  sealed again under a new one (a reset, of this partition only);
- that holds only while no attempt of the rejected batch is unaccounted for. If one is, the
  outcome is unknown, and everything behind it fails as unknown too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from oncelog import errors
from oncelog._engine.net.backoff import Backoff
from oncelog._engine.produce.accumulator import Accumulator
from oncelog._engine.produce.batches import OpenBatch
from oncelog._engine.produce.outcomes import (
    Obstacles,
    Reaction,
    Stats,
    gap_after,
    lost_with_topic,
    not_acknowledged,
    not_sent,
    not_stored_again,
    of_batch,
    with_outcome,
)
from oncelog._engine.produce.sealing import NO_IDENTITY, LeasedIdentity, SealedBatch, seal
from oncelog._engine.produce.transaction import ProducerTransaction
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire.verdicts import NOT_STORED, RETRIABLE, STORED, error_of, is_understood

log = logging.getLogger("oncelog.producer")

V = log_pb2


class PartitionSender:
    """The window of one partition. Used on the engine's thread only."""

    def __init__(
        self,
        tp: TopicPartition,
        accumulator: Accumulator,
        *,
        idempotent: bool,
        leased: bool,
        max_in_flight: int,
        retries: int,
        codec: int,
        level: int | None,
        backoff: Backoff,
        stats: Stats,
        on_done: Callable[[OpenBatch], None],
    ) -> None:
        self.tp = tp
        self._accumulator = accumulator
        self._idempotent = idempotent
        self._leased = leased  # False: the user gave the producer id; there is no other
        self._max_in_flight = max_in_flight
        self._retries = retries
        self._codec = codec
        self._level = level
        self._backoff = backoff
        self._stats = stats
        self._on_done = on_done  # called once for each batch, after its delivery
        self.window: deque[SealedBatch] = deque()
        self._cursor = 0  # window[:cursor] was sent since the last rewind
        self.again: deque[OpenBatch] = deque()  # to be sealed again, before the waiting batches
        self.retry_at = 0.0
        self.obstacles = Obstacles()
        self._failures = 0
        self.identity = NO_IDENTITY
        self._prev_sequence = -1
        self._topic_id = 0  # of the topic in which `identity` began
        # The application's own sequence that was stored last; -1: none.
        self.stored_given = -1
        self._dead = idempotent  # no batch may be sealed with `identity` any more
        self._resets = 0  # since the last acknowledgement
        self._made_anew = False  # the topic was recreated while a transaction wrote to it
        # A batch with the application's own sequences has failed. Later ones must not be stored:
        # `prev_sequence` would hide the gap, and a copy would lose records unseen.
        self._gap: errors.ProducerFatalError | None = None
        # Start of a transaction here: previous sequence, application's sequence.
        self._before: tuple[ProducerTransaction, int, int] | None = None

    # --- identity --------------------------------------------------------------------

    def needs_identity(self, now: float, current: LeasedIdentity | None) -> bool:
        """Tell whether `adopt` must come before the next batch can be sealed."""
        return not self.window and self._identity_over(now, current)

    def _identity_over(self, now: float, current: LeasedIdentity | None) -> bool:
        """Tell whether no further batch may be sealed with the identity; the window drains."""
        if not self._idempotent:
            return False
        newer = current is not None and current.serial > self.identity.serial
        return self._dead or newer or now >= self.identity.expire_at

    @property
    def was_reset(self) -> bool:
        """True if this partition needs an identity that it has not used yet."""
        return self._dead and self.identity is not NO_IDENTITY

    def has_used_up(self, identity: LeasedIdentity) -> bool:
        return self.was_reset and self.identity.serial >= identity.serial

    def adopt(self, identity: LeasedIdentity, last_sequence: int, topic_id: int) -> None:
        """Go on with this identity after `last_sequence` (-1: from the start)."""
        assert not self.window, "an identity changes only when nothing is on its way"
        self.identity = identity
        self._topic_id = topic_id
        self._prev_sequence = last_sequence
        self._dead = self._made_anew = False

    # --- what to send ----------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return not self.window and not self.again

    def next(self, now: float, current: LeasedIdentity | None) -> SealedBatch | Reaction:
        """Return the next batch to send or, if there is none now, the sender's next steps."""
        if now < self.retry_at or self._gap is not None:
            return Reaction(fatal=self._gap)
        while self._cursor < len(self.window):
            sealed = self.window[self._cursor]
            self._cursor += 1
            if not sealed.acked:
                return sealed
        if len(self.window) >= self._max_in_flight or self._identity_over(now, current):
            return Reaction()
        fresh = self._seal_next()
        if fresh is None:
            return Reaction(fatal=self._gap)
        if self._idempotent:
            self._prev_sequence = fresh.last_sequence
        self.window.append(fresh)
        self._cursor = len(self.window)
        return fresh

    def _seal_next(self) -> SealedBatch | None:
        while self._gap is None:
            batch = self.again.popleft() if self.again else self._accumulator.take(self.tp)
            if batch is None:
                break
            deadline = batch.created + self._accumulator.delivery_timeout_s
            self._note_begin(batch.transaction)
            try:
                return seal(
                    batch, self.identity, self._prev_sequence, deadline, self._codec, self._level
                )
            except Exception as error:  # no error may stop the other batches
                log.exception("%s: a batch cannot be encoded", self.tp)
                failure = errors.InvalidBatchError(f"{self.tp}: cannot be encoded: {error}")
                failure.outcome = "never_sent"
                self.fail_batch(batch, failure)
        return None

    def _note_begin(self, transaction: ProducerTransaction | None) -> None:
        if transaction is not None and (self._before is None or self._before[0] is not transaction):
            self._before = (transaction, self._prev_sequence, self.stored_given)

    def sent(self, sealed: SealedBatch, attempt_id: int, now: float) -> None:
        """Note that an attempt was handed to the connection; answers will name `attempt_id`."""
        if sealed.attempts:
            self._stats.batches_retried += 1
        else:
            sealed.first_sent_at = now
            self._stats.batches_sent += 1
            self._stats.records_sent += sealed.batch.record_count
            self._stats.bytes_sent += sealed.size
        sealed.attempts += 1
        sealed.attempt_id = attempt_id
        sealed.sent_at = now
        sealed.refused = False
        sealed.sent_as_head = sealed is self._head()

    def _head(self) -> SealedBatch | None:
        return next((sealed for sealed in self.window if not sealed.acked), None)

    # --- events ----------------------------------------------------------------------

    def on_result(
        self, sealed: SealedBatch, attempt_id: int, result: log_pb2.BatchResult, now: float
    ) -> Reaction:
        verdict = result.verdict
        if sealed.acked or sealed not in self.window:
            return Reaction()  # a second answer, or one for an abandoned batch
        if verdict in STORED:
            return self._stored(sealed, result, now)  # true for any attempt
        if sealed.attempt_id != attempt_id:
            return Reaction()  # says nothing about the attempt in flight
        sealed.attempt_id = 0
        if verdict in RETRIABLE or verdict == V.VERDICT_UNSPECIFIED:
            return self._try_again(sealed, result, now)
        if verdict == V.VERDICT_OUT_OF_ORDER and not (
            sealed is self._head() and sealed.sent_as_head
        ):
            sealed.refused = True
            if sealed is self._head():
                self._rewind(now)
            return Reaction()
        sealed.ambiguous |= not is_understood(verdict)
        error = error_of(result, self.tp)
        error.outcome = "unknown" if sealed.ambiguous else "not_stored"
        if isinstance(error, errors.ProducerExpiredError) and self._leased:
            return self._refused(sealed, error, now)
        if isinstance(error, errors.FencedError):
            self._fenced(sealed)
        if isinstance(error, errors.UnknownProducerError):
            return Reaction(fatal_unless_recreated=error)
        if isinstance(error, errors.ProducerFatalError):
            return Reaction(fatal=error)
        return self._refused(sealed, error, now)

    def roll_back(self, transaction: ProducerTransaction) -> None:
        """Free the sequences of a transaction that aborts; late copies name the transaction."""
        if self._before is None or self._before[0] is not transaction:
            return
        assert self.idle, "its batches have failed"
        _, self._prev_sequence, self.stored_given = self._before
        self._before = None
        self._failures = self._resets = 0
        self.retry_at = 0.0
        self._dead = self._made_anew

    def _fenced(self, sealed: SealedBatch) -> None:
        """Fail the batches sent behind a fenced one, too: the node will reject them all.

        A partition's epoch never falls, and a node takes the batches of a stream in order.
        """
        window = list(self.window)
        for other in window[window.index(sealed) + 1 :]:
            other.attempt_id = 0

    def _stored(self, sealed: SealedBatch, result: log_pb2.BatchResult, now: float) -> Reaction:
        sealed.acked = True
        sealed.attempt_id = 0
        self._failures = self._resets = 0
        duplicate = result.verdict == V.VERDICT_DUPLICATE
        stats = self._stats
        stats.duplicates += duplicate
        if not sealed.abandoned:
            stats.batches_acked += 1
            stats.records_acked += sealed.batch.record_count
            stats.max_ack_latency_s = max(stats.max_ack_latency_s, now - sealed.first_sent_at)
            if sealed.batch.sequences is not None:
                self.stored_given = max(self.stored_given, sealed.last_sequence)
            transaction = sealed.batch.transaction
            if transaction is not None:
                transaction.staged(self.tp, sealed.batch.record_count, sealed.last_sequence)
                sealed.batch.delivery.run = transaction.run(self.tp)
            sealed.batch.delivery.succeed(result.base_offset, duplicate)
            self._on_done(sealed.batch)
        self._pop_acked(now)
        self._reset_if_abandoned()
        return Reaction()

    def _pop_acked(self, now: float) -> None:
        window = self.window
        while window and window[0].acked:
            window.popleft()
            self._cursor = max(0, self._cursor - 1)
        if window and window[0].refused:
            # It is the head now: the gap before it, the reason of its rejection, is filled.
            self._rewind(now)

    def _try_again(self, sealed: SealedBatch, result: log_pb2.BatchResult, now: float) -> Reaction:
        self._failures += 1
        reaction = Reaction()
        delay = self._backoff.delay(self._failures)
        if result.verdict == V.VERDICT_NOT_LEADER:
            if result.leader_address and self._failures == 1:
                reaction.leader_hint = (result.leader_id, result.leader_address)
                delay = 0.0  # a fresh hint needs no pause
            else:
                reaction.leader_lost = True
        elif result.verdict in (V.VERDICT_NOT_READY, V.VERDICT_UNKNOWN_TOPIC_OR_PARTITION):
            reaction.leader_lost = True
        sealed.ambiguous |= result.verdict not in NOT_STORED
        sealed.unanswered |= result.verdict in (V.VERDICT_TIMEOUT, V.VERDICT_UNSPECIFIED)
        self._rewind(now, delay)
        return reaction

    def on_connection_lost(self, now: float) -> None:
        """Note that no answer will come for the attempts in flight."""
        if any(sealed.attempt_id for sealed in self.window):
            self._failures += 1
            # The first retry goes at once: a new leader may already be known.
            self._rewind(now, self._backoff.delay(self._failures - 1))

    def on_leader_changed(self, now: float) -> None:
        """Go on at another node, at once."""
        self._rewind(now)

    def send_again(self, now: float) -> None:
        """Send a batch again after an answer of unknown meaning."""
        self._failures += 1
        self._rewind(now, self._backoff.delay(self._failures))

    def _rewind(self, now: float, delay: float = 0.0) -> None:
        for sealed in self.window:
            if sealed.attempt_id:
                sealed.ambiguous = sealed.unanswered = True
                sealed.attempt_id = 0
            sealed.refused = False
            if sealed.attempts > self._retries and not sealed.acked:
                sealed.deadline = now  # no retries are left
        self._cursor = 0
        self.retry_at = now + delay

    # --- refused for good ------------------------------------------------------------

    def _refused(self, sealed: SealedBatch, error: errors.DeliveryError, now: float) -> Reaction:
        if sealed.batch.transaction is not None:
            return self._staging_failed(sealed.batch.transaction, error)
        certain = not sealed.ambiguous or (
            # Offsets only grow: a delayed copy will be rejected for the same reason.
            isinstance(error, errors.OffsetMismatchError)
            and error.next_offset > sealed.batch.expected_offset
        )
        error.outcome = "not_stored" if certain else "unknown"
        position = self.window.index(sealed)
        if not self._idempotent:
            # Batches without sequences do not depend on each other.
            del self.window[position]
            self._cursor -= position < self._cursor
            self._fail([sealed], error)
            self._pop_acked(now)
            return Reaction()  # without sequences, so without a gap
        behind = list(self.window)[position + 1 :]
        for other in [sealed, *behind]:
            self.window.remove(other)
        self._cursor = min(self._cursor, len(self.window))
        if isinstance(error, errors.ProducerExpiredError) and certain:
            # Its records are valid: they need another producer id.
            return self._seal_again([sealed, *behind], error)
        self._fail([sealed], error)
        if not certain:
            self._dead = True
            self._stats.resets += 1
            unknown = errors.DeliveryTimeoutError(
                f"{self.tp}: a batch before it was refused and its outcome is not known"
            )
            self._fail(behind, unknown)
            return Reaction(fatal=self._gap)
        if not behind:
            self._prev_sequence = sealed.prev_sequence
            return Reaction(fatal=self._gap)
        return self._seal_again(behind, error)

    def _staging_failed(
        self, transaction: ProducerTransaction, error: errors.DeliveryError
    ) -> Reaction:
        """Fail a transaction that cannot be committed any more; its stored records are dropped."""
        self._accumulator.fail_transaction(transaction, error)
        self.fail_all(error)
        return Reaction()

    # --- another topic of the name ---------------------------------------------------

    def is_of(self, topic_id: int) -> bool:
        """Tell whether this is the topic in which the batches' sequences began."""
        return topic_id == self._topic_id

    def on_topic_created_anew(self) -> Reaction:
        """Handle a topic that was deleted and recreated; its leader does not know this producer.

        An unanswered batch may have been stored in the deleted topic: it fails. A rejected batch
        and those behind it are in neither topic: they go to the new one, under a new producer id,
        so that no delayed copy can take their place.
        """
        what = f"{self.tp}: the topic was deleted and created anew"
        if not self._leased:
            what += "; the given producer id cannot go on: make a new producer"
            return Reaction(fatal=errors.ProducerFatalError(what))
        if any(sealed.batch.sequences is not None for sealed in self.window):
            self._gap = lost_with_topic(self.tp, self.stored_given)
            self._accumulator.refuse(self._gap)
            return Reaction(fatal=self._gap)
        left = [sealed for sealed in self.window if not sealed.acked]
        if left and left[0].batch.transaction is not None:
            self._made_anew = True
            return self._staging_failed(left[0].batch.transaction, errors.DeliveryError(what))
        self.window.clear()
        self._cursor = 0
        sure = next((n for n, sealed in enumerate(left) if not sealed.unanswered), len(left))
        gone = errors.DeliveryError(f"{what} while this was on its way")
        gone.outcome = "unknown"
        self._fail(left[:sure], gone)
        return self._seal_again(left[sure:], gone)

    def _seal_again(self, behind: list[SealedBatch], error: errors.DeliveryError) -> Reaction:
        if not self._leased or self._resets >= 3:
            # Records behind a rejected one would need another producer id.
            fatal = errors.ProducerFatalError(
                f"{self.tp}: {error.message}; the batches behind it need a new producer id"
            )
            for sealed in behind:
                self.window.append(sealed)
            return Reaction(fatal=fatal)
        self._resets += 1
        self._stats.resets += 1
        self._dead = True
        for other in reversed(behind):
            if not other.abandoned:
                self.again.appendleft(other.batch)
        return Reaction(fatal=self._gap)

    def _fail(self, batches: list[SealedBatch], error: errors.OncelogError) -> None:
        for sealed in batches:
            if not sealed.abandoned and not sealed.acked:
                self.fail_batch(sealed.batch, error)

    def fail_batch(self, batch: OpenBatch, error: errors.OncelogError) -> None:
        self._stats.records_failed += batch.record_count
        if batch.transaction is not None:
            self._accumulator.fail_transaction(batch.transaction, error)
        if self._gap is None:
            self._gap = gap_after(batch, error)
            if self._gap is not None:
                # Before the failure is reported: an application that sees it may send the next
                # records.
                self._accumulator.refuse(self._gap)
        batch.delivery.fail(of_batch(error, batch.delivery))
        self._on_done(batch)

    # --- time ------------------------------------------------------------------------

    def expire_unsent(self, batch: OpenBatch) -> Reaction:
        """Fail a batch whose delivery timeout was over before it was taken out to be sent."""
        error = not_sent(self.tp, self._accumulator.delivery_timeout_s, str(self.obstacles))
        self.fail_batch(batch, error)
        return Reaction(fatal=self._gap)

    def expire(self, now: float) -> Reaction:
        """Fail batches that are past their delivery timeout.

        A sent batch may be stored, so it keeps its place in the window while batches behind it are
        alive. When none is, the window is given up and the partition goes on under a new producer
        id.
        """
        for sealed in self.window:
            if sealed.acked or sealed.abandoned or sealed.deadline > now:
                continue
            sealed.abandoned = True
            error = not_acknowledged(self.tp, sealed.attempts, str(self.obstacles))
            self.fail_batch(sealed.batch, error)
        limit = now - self._accumulator.delivery_timeout_s
        while self.again and self.again[0].created <= limit:
            batch = self.again.popleft()
            self.fail_batch(batch, not_stored_again(self.tp, str(self.obstacles)))
        self._reset_if_abandoned()
        return Reaction(fatal=self._gap)

    def _reset_if_abandoned(self) -> None:
        if not self.window or any(not s.acked and not s.abandoned for s in self.window):
            return
        unsent = all(s.attempts == 0 for s in self.window)
        self._prev_sequence = self.window[0].prev_sequence if unsent else self._prev_sequence
        if self._idempotent and not unsent:
            self._dead = True
            self._stats.resets += 1
        self.window.clear()
        self._cursor = 0

    def fail_all(self, error: errors.OncelogError) -> None:
        """Fail all batches in flight: the producer stops, or its transaction."""
        for sealed in self.window:
            if not sealed.acked and not sealed.abandoned:
                ambiguous = sealed.ambiguous or sealed.attempt_id
                ambiguous = ambiguous and sealed.batch.transaction is None
                outcome: errors.Outcome = "unknown" if ambiguous else "not_stored"
                self.fail_batch(sealed.batch, with_outcome(error, outcome))
        for batch in self.again:
            self.fail_batch(batch, with_outcome(error, "not_stored"))
        self.window.clear()
        self.again.clear()
        self._cursor = 0

    def oldest_attempt(self) -> float | None:
        """Return the time of the oldest unanswered attempt."""
        return min((s.sent_at for s in self.window if s.attempt_id), default=None)
