"""Mutations of the rules for batches of Kafka's protocol."""

from __future__ import annotations

from typing import Any

from cluster.dedup import in_flight, last_seen, sequences, verdict
from cluster.dedup.last_seen import KAFKA_LIFETIME_MS, LastSeen
from cluster.dedup.verdict import KAFKA_IDS, BatchMeta, Kind, KnownProducer, Verdict
from cluster.kafka import ids
from cluster.partition import leader
from tests.sim.mutations import mutation

CAUGHT_BY = {
    "rebuilt-batches-compared": "a_batch_that_its_client_rebuilt_is_a_duplicate",
    "sequences-not-placed": "sequences_cross_the_wrap",
    "wrap-one-too-early": "sequences_cross_the_wrap",
    "wrap-by-the-last-wrap": "sequences_cross_the_wrap",
    "in-flight-not-counted-for-the-wrap": "sequences_in_flight_cross_the_wrap",
    "stale-sequences-taken": "a_batch_that_its_client_rebuilt_is_a_duplicate",
    "epoch-begins-anywhere": "a_client_raises_its_epoch_by_itself",
    "predecessor-continued": "after_an_open_only_a_first_batch_begins",
    "kafka-ids-live-a-lease": "an_idle_id_is_known_for_a_day",
    "kafka-ids-live-for-ever": "an_idle_id_is_known_for_a_day",
    "kafka-ids-leave-a-trace": "an_idle_id_is_known_for_a_day",
}
# The proof of an id is checked before the partition: seeds with foreign clients catch these.
CAUGHT_BY_SEEDS = ("foreign-ids-taken", "ids-of-other-principals-taken")


@mutation("repeats of Kafka clients are compared by their bytes")
def rebuilt_batches_compared() -> Any:
    def strict(batch: Any, meta: BatchMeta) -> bool:
        return bool(batch.crc == meta.crc and batch.count == meta.count)

    return [(verdict, "same_content", strict), (in_flight, "same_content", strict)]


@mutation("the wrap of a client's sequences is not known")
def sequences_not_placed() -> Any:
    return [(leader, "placed", lambda meta, following: meta)]


@mutation("a client's sequences wrap one too early")
def wrap_one_too_early() -> Any:
    def early(sequence: int, following: int) -> int:
        wrap = (1 << sequences.WRAP_BITS) - 1
        return int(sequence + max(0, (following - sequence + wrap // 2) // wrap) * wrap)

    return [(sequences, "nearest", early)]


@mutation("a sequence is put into the newest wrap, so repeats from before it are not recognized")
def wrap_by_the_last_wrap() -> Any:
    def forward(sequence: int, following: int) -> int:
        return sequence + (following >> sequences.WRAP_BITS << sequences.WRAP_BITS)

    return [(sequences, "nearest", forward)]


@mutation("the batches in flight are not counted where the wrap is")
def in_flight_not_counted_for_the_wrap() -> Any:
    def applied(self: in_flight.InFlight, pid: int, epoch: int) -> int:
        return self._map.next_sequence(pid, epoch)

    return [(in_flight.InFlight, "next_sequence", applied)]


@mutation("a Kafka client's stale sequences are appended")
def stale_sequences_taken() -> Any:
    check = LastSeen.check

    def trusting(self: LastSeen, meta: BatchMeta, **rest: Any) -> Verdict:
        found = check(self, meta, **rest)
        stale = found.kind in (Kind.DUPLICATE, Kind.OUT_OF_ORDER)
        if meta.kafka and stale and meta.last <= found.last_sequence:
            return Verdict(Kind.APPENDED, base_offset=rest["next_offset"])
        return found

    def recorded(self: LastSeen, meta: BatchMeta, *of_the_batch: Any, **pin: Any) -> None:
        known = self.known(meta.producer_id)
        if known is None or meta.prev in (known.last_sequence, -1):
            record(self, meta, *of_the_batch, **pin)

    record = LastSeen.record
    return [(LastSeen, "check", trusting), (LastSeen, "record", recorded)]


def _judging(change: Any) -> Any:
    """Patches `judge` where it is used."""
    judge = verdict.judge

    def changed(known: KnownProducer, meta: BatchMeta) -> Verdict | None:
        return change(judge, known, meta) if meta.kafka else judge(known, meta)

    return [(last_seen, "judge", changed), (in_flight, "judge", changed)]


@mutation("an epoch that a Kafka client raised begins at any sequence")
def epoch_begins_anywhere() -> Any:
    def anywhere(judge: Any, known: KnownProducer, meta: BatchMeta) -> Any:
        return None if meta.epoch > known.epoch else judge(known, meta)

    return _judging(anywhere)


@mutation("a Kafka client continues its predecessor after an open")
def predecessor_continued() -> Any:
    return _judging(lambda judge, known, meta: judge(known, meta._replace(kafka=False)))


@mutation("ids of Kafka clients live as long as a lease")
def kafka_ids_live_a_lease() -> Any:
    return [(last_seen, "KAFKA_LIFETIME_MS", 4000)]


@mutation("ids of Kafka clients are never forgotten")
def kafka_ids_live_for_ever() -> Any:
    return [(last_seen, "KAFKA_LIFETIME_MS", 1 << 60)]


@mutation("ids of Kafka clients leave their number behind")
def kafka_ids_leave_a_trace() -> Any:
    advance, expired = LastSeen.advance, LastSeen._is_expired
    gone: set[int] = set()

    def noting(self: LastSeen, time_ms: int, **rest: Any) -> int:
        late = max(time_ms, self.clock_ms) - KAFKA_LIFETIME_MS
        gone.update(one.producer_id for one in self.scan(KAFKA_IDS) if one.last_append_ms < late)
        return advance(self, time_ms, **rest)

    def is_expired(self: LastSeen, pid: int) -> bool:
        return pid in gone or expired(self, pid)

    return [(LastSeen, "advance", noting), (LastSeen, "_is_expired", is_expired)]


@mutation("an id of Kafka's protocol is taken without its proof")
def foreign_ids_taken() -> Any:
    return [(ids, "proves", lambda secret, producer_id, principal="": True)]


@mutation("an id of Kafka's protocol is good for any principal")
def ids_of_other_principals_taken() -> Any:
    proves = ids.proves

    def anybody(secret: bytes, producer_id: int, principal: str = "") -> bool:
        return proves(secret, producer_id, principal) or proves(secret, producer_id, "alice")

    return [(ids, "proves", anybody)]
