"""The part of a partition that opens producers, lets go of them, and asks who may write.

    OpenProducer --> open_producer --OPEN_PRODUCER--> apply: LastSeen.open
    node's duty  --> look_after_producers --RELEASE_PRODUCERS--> apply: LastSeen.release

A name's producer id is remembered here until the name has expired, however long
it is idle: its entry is pinned. The leader knows which ids a name holds from its
copy of the metadata and says so in the entry (HELD), so that apply needs nothing
but the entry. What makes that safe though copies lag behind each other:

* A name's id is the name's from the entry that issued it, and it is never given
  back to a name that gave it up. A leader that knows the id therefore knows
  whether it was ever a name's, and pins it with the first thing that it stores.
* Only what a copy knows to be issued and held by nobody is released.
* A released id is below the expiry watermark or idle, so a batch of it is
  PRODUCER_EXPIRED. Only an open could bring it back, from a leader whose copy
  still has the name. So each release leaves the copy's index behind, and an open
  on behalf of a name counts only with a copy that is at least as new.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from cluster.consensus.group import Group
from cluster.consensus.proposals import Abandoned, Outcome
from cluster.dedup.in_flight import InFlight, Kind, LastSeen, Verdict
from cluster.dedup.verdict import fenced
from cluster.entries import (
    HELD,
    OPEN_PRODUCER,
    RELEASE_PRODUCERS,
    OpenProducerEntry,
    ReleaseEntry,
    pack_open_producer,
    pack_release,
    unpack_open_producer,
    unpack_release,
)
from cluster.partition.types import Answer, AnswerTo, Policy

MAX_RELEASED = 10_000  # producer ids in one entry

_BEHIND = Verdict(Kind.NOT_READY, message="the leader's copy of the producer names is behind")


class ProducerContract:
    """Mixed into `Partition`, which provides what is declared here."""

    policy: Policy
    last_seen: LastSeen
    group: Group | None
    clock_ms: int
    storage_full: Callable[[], bool]
    producers_throttled: int  # new producers refused, the map being full
    _in_flight: InFlight | None
    _next_token: int
    _now_ms: Callable[[], int]
    _touch: Callable[[], None]

    names_index: int
    """The newest index of the metadata log by which ids were released. Replicated."""

    # -- what the metadata says (leader) --------------------------------------------

    def held_flag(self, producer_id: int) -> int:
        """HELD if a name holds the id, for an entry of this leader."""
        return HELD if producer_id and self.policy.names.holder(producer_id) is not None else 0

    def veto(self, producer_id: int, epoch: int) -> Verdict | None:
        """Why a producer may not append, though this partition's own state would let it."""
        if not producer_id:
            return None
        names = self.policy.names
        held = names.holder(producer_id)
        if held is not None and epoch < held.fence_epoch:
            return fenced(epoch, held.epoch)
        if producer_id >= self.policy.expired_below():
            return None
        if held is None and names.is_issued(producer_id):
            text = f"producer_id: the lease of {producer_id} has ended"
            return Verdict(Kind.PRODUCER_EXPIRED, message=text)
        if self.last_seen.known(producer_id) is None:
            text = f"producer_id: {producer_id} has to open the partition before it writes"
            return Verdict(Kind.PRODUCER_EXPIRED, message=text)
        return None

    # -- open -----------------------------------------------------------------------

    def open_producer(self, producer_id: int, epoch: int, answer_to: AnswerTo) -> None:
        """Raises the producer's epoch here. `answer_to` is called once, always.

        APPENDED: done and applied; `last_sequence` and `base_offset` are those of the
        producer's last record (-1: none). Else FENCED, PRODUCER_EXPIRED, THROTTLED,
        INVALID_BATCH, NOT_LEADER, NOT_READY or STORAGE_FULL.
        """
        refused = self._not_able()
        in_flight = self._in_flight
        if refused is not None or in_flight is None:
            answer_to(refused or Answer(Verdict(Kind.NOT_READY)))
            return
        held = self.policy.names.holder(producer_id)
        verdict = in_flight.check_open(producer_id, epoch, pin=held is not None)
        certain = verdict.kind in (Kind.INVALID_BATCH, Kind.THROTTLED)
        self.producers_throttled += verdict.kind is Kind.THROTTLED
        if verdict.kind is Kind.APPENDED:
            # An open makes the id known, so only these two speak against it.
            if held is not None and epoch < held.fence_epoch:
                verdict, certain = fenced(epoch, held.epoch), True
            elif held is None:
                veto = self.veto(producer_id, epoch)
                verdict, certain = veto or verdict, veto is not None
        if verdict.kind is Kind.APPENDED:
            self._propose_open(in_flight, producer_id, epoch, held is not None, answer_to)
        elif certain:
            answer_to(Answer(verdict))
        else:
            self._refuse_open(producer_id, epoch, held is not None, answer_to)

    def _not_able(self) -> Answer | None:
        """Why this node cannot propose now."""
        group = self.group
        assert group is not None
        if not group.is_leader:
            return Answer(Verdict(Kind.NOT_LEADER), leader_id=group.leader_id)
        if self._in_flight is None:
            return Answer(Verdict(Kind.NOT_READY))
        if self.storage_full():
            return Answer(Verdict(Kind.STORAGE_FULL, message="the leader's disk is full"))
        if self.policy.names.applied_index < self.names_index:
            return Answer(_BEHIND)
        return None

    def _propose_open(
        self, in_flight: InFlight, producer_id: int, epoch: int, pin: bool, answer_to: AnswerTo
    ) -> None:
        token = self._next_token = self._next_token + 1
        in_flight.add_open(producer_id, epoch, token, pin=pin)

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Abandoned):
                answer_to(Answer(Verdict(Kind.NOT_LEADER), leader_id=outcome.leader_id))
                return
            assert isinstance(outcome.result, Answer)
            if self._in_flight is in_flight:
                accepted = outcome.result.verdict.kind is Kind.APPENDED
                in_flight.applied(token, accepted)
            answer_to(outcome.result)

        entry = OpenProducerEntry(
            HELD if pin else 0,
            epoch,
            producer_id,
            max(self._now_ms(), self.clock_ms),
            self.policy.lease_lifetime_ms,
            self.policy.expired_below(),
            self.policy.names.applied_index,
        )
        self._propose_entry(pack_open_producer(entry), done)

    def _refuse_open(self, producer_id: int, epoch: int, pin: bool, answer_to: AnswerTo) -> None:
        """Says no once this node is sure that it still leads and that the applied state says so."""

        def confirmed(outcome: Outcome) -> None:
            if isinstance(outcome, Abandoned):
                answer_to(Answer(Verdict(Kind.NOT_LEADER), leader_id=outcome.leader_id))
                return
            verdict = self.last_seen.check_open(producer_id, epoch, pin=pin)
            if verdict.kind is Kind.APPENDED:
                self.open_producer(producer_id, epoch, answer_to)
            else:
                answer_to(Answer(verdict))

        self.confirm(confirmed)

    def confirm(self, done: Callable[[Outcome], None]) -> None:
        """Calls `done` once an entry of this term committed after all proposed before, or not."""
        assert self.group is not None
        self.group.confirm(done)
        self._touch()

    def propose(self, data: bytes, done: Callable[[Outcome], None]) -> Answer | None:
        """Proposes an entry; if this node cannot, says why and `done` is not called."""
        refused = self._not_able()
        if refused is None:
            self._propose_entry(data, done)
        return refused

    def _propose_entry(self, data: bytes, done: Callable[[Outcome], None]) -> None:
        assert self.group is not None
        self.group.propose(data, done)
        self._touch()

    # -- time and names (leader) ------------------------------------------------------

    def look_after_producers(self) -> None:
        """Releases ids that names gave up, and lets time pass where nobody writes."""
        if self._not_able() is not None:
            return
        names = self.policy.names
        gone = tuple(
            islice(
                (
                    producer_id
                    for producer_id in self.last_seen.pinned()
                    if names.is_issued(producer_id) and names.holder(producer_id) is None
                ),
                MAX_RELEASED,
            )
        )
        overdue = len(self.last_seen) and self.policy.expired_below() > self.last_seen.expired_below
        if gone or overdue:
            self.move_time(lambda outcome: None, gone)

    def move_time(self, done: Callable[[Outcome], None], released: tuple[int, ...] = ()) -> None:
        """Proposes an entry that brings log time and watermark to now, and releases ids."""
        entry = ReleaseEntry(
            max(self._now_ms(), self.clock_ms),
            self.policy.lease_lifetime_ms,
            self.policy.expired_below(),
            self.policy.names.applied_index if released else 0,
            released,
        )
        self._propose_entry(pack_release(entry), done)

    # -- apply ------------------------------------------------------------------------

    def apply_producers(self, kind: int, data: bytes) -> object:
        """Applies an entry of this module's kinds; it decides, as for batches."""
        if kind == OPEN_PRODUCER:
            return self._apply_open(unpack_open_producer(data))
        assert kind == RELEASE_PRODUCERS, f"entry of unknown type {kind}"
        entry = unpack_release(data)
        self._advance(entry)
        self.names_index = max(self.names_index, entry.metadata_index)
        for producer_id in entry.producer_ids:
            self.last_seen.release(producer_id)
        return None

    def _apply_open(self, entry: OpenProducerEntry) -> Answer:
        self._advance(entry)
        pin = bool(entry.flags & HELD)
        if pin and entry.metadata_index < self.names_index:
            return Answer(_BEHIND, entry.stamp_ms)
        verdict = self.last_seen.open(entry.producer_id, entry.epoch, self.clock_ms, pin=pin)
        return Answer(verdict, entry.stamp_ms)

    def _advance(self, entry: OpenProducerEntry | ReleaseEntry) -> None:
        self.clock_ms = max(self.clock_ms, entry.stamp_ms)
        self.last_seen.advance(
            self.clock_ms, lifetime_ms=entry.lifetime_ms, expired_below=entry.expired_below
        )
