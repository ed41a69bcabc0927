"""Mutations of the rules for carried batches."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from cluster.cleaning import by_key, passes
from cluster.entries import KeyTombstone
from cluster.node.cleaning.cleaner import BrokenOffError, Cleaner
from cluster.partition.carried import CarriedRanges
from cluster.partition.leader import Leadership
from cluster.partition.machine import Loaded, PartitionMachine
from cluster.partition.stored_batches import StoredBatches
from tests.sim.mutations import mutation

CAUGHT_BY = {
    "guard-ignored": "a_cleaning_that_is_out_of_date_changes_nothing",
    "carried-batches-cut": "a_cleaning_that_is_out_of_date_changes_nothing",
    "carried-index-forgotten": "the_log_is_kept_for_a_carried_batch",
    "log-kept-from-the-first-batch": "the_log_is_kept_for_batches_behind_a_carried_one",
    "rows-ahead-believed": "a_replica_that_starts_again_keeps_its_log",
    "carried-missing-from-snapshot": "a_follower_that_was_away_gets_what_was_carried",
    "log-start-beside-a-carried-batch": "the_log_start_waits_for_a_carried_batch",
    "tombstones-renewed": "a_tombstone_goes_after_its_time",
    "tombstones-go-at-once": "a_tombstone_goes_after_its_time",
    "unknown-keys-go": "a_topic_is_cleaned_by_key",
    "newest-of-the-read-part": "a_topic_is_cleaned_by_key",
    "refused-batch-passed-over": "a_cleaning_ends_at_a_batch_that_was_not_carried",
    "records-taken-for-blanks": "the_log_knows_the_blanks_below_its_start",
    "hole-missing-from-the-state": "the_log_knows_the_blanks_below_its_start",
}


@mutation("each cleaning gives a tombstone a new time")
def tombstones_renewed() -> Any:
    mark = by_key._mark
    return [(by_key, "_mark", lambda offset, known, terms: mark(offset, {}, terms))]


@mutation("a tombstone goes when it is carried for the first time")
def tombstones_go_at_once() -> Any:
    return [(by_key, "_mark", lambda offset, known, terms: KeyTombstone(offset, -1))]


@mutation("a cleaning takes records whose keys it has not seen")
def unknown_keys_go() -> Any:
    kept = by_key.kept

    def careless(batch: Any, newest: Any, terms: Any) -> Any:
        return kept(batch, dict.fromkeys(batch.payload.keys(), 1 << 40) | newest, terms)

    return [(passes, "kept", careless)]


@mutation("a cleaning keeps the first record of a key in each batch")
def newest_of_the_read_part() -> Any:
    def add(self: by_key.NewestByKey, batch: Any, *, always: bool = False) -> bool:
        for offset, key in enumerate(batch.payload.keys(), batch.base_offset):
            self.offsets.setdefault(key, offset)
        return True

    def oldest(batch: Any, newest: Any, terms: Any) -> Any:
        later = {key: 1 << 40 for key, at in newest.items() if at < batch.base_offset}
        return kept(batch, newest | later, terms)

    kept = by_key.kept
    return [(by_key.NewestByKey, "add", add), (passes, "kept", oldest)]


@mutation("a cleaning goes on behind a batch that was not carried")
def refused_batch_passed_over() -> Any:
    carry = Cleaner._carry

    def on(self: Cleaner, partition: Any, piece: Any) -> Any:
        with suppress(BrokenOffError):
            yield from carry(self, partition, piece)

    return [(Cleaner, "_carry", on)]


@mutation("a carried batch replaces batches that are newer than its read")
def guard_ignored() -> Any:
    judge = CarriedRanges.judge

    def unguarded(self: CarriedRanges, entry: Any, *rest: int) -> bool:
        return judge(self, entry._replace(guard=1 << 62), *rest)

    return [(CarriedRanges, "judge", unguarded)]


@mutation("a carried batch replaces a part of another one")
def carried_batches_cut() -> Any:
    def cutting(self: CarriedRanges, entry: Any, log_start: int, next_offset: int) -> bool:
        first, after = self._overlapping(entry.base_offset, entry.base_offset + entry.record_count)
        inside = all(
            entry.base_offset <= one.base_offset
            and one.end <= entry.base_offset + entry.record_count
            for one in self._ranges[first:after]
        )
        return not inside or all(one.raft_index <= entry.guard for one in self._ranges[first:after])

    return [(CarriedRanges, "judge", cutting)]


@mutation("the log is dropped beyond carried batches")
def carried_index_forgotten() -> Any:
    return [(CarriedRanges, "oldest_index", lambda self, default: default)]


@mutation("the log is kept from the entry of the first batch on")
def log_kept_from_the_first_batch() -> Any:
    def first(self: StoredBatches, applied_index: int) -> Any:
        return self.log_start, self.index.at(self.log_start)

    return [(StoredBatches, "first_plain", first)]


@mutation("a row that is ahead of the state is taken for the first batch's")
def rows_ahead_believed() -> Any:
    first_plain = StoredBatches.first_plain

    def believing(self: StoredBatches, applied_index: int) -> Any:
        return first_plain(self, 1 << 62)

    return [(StoredBatches, "first_plain", believing)]


@mutation("snapshots do not hold the carried ranges")
def carried_missing_from_snapshot() -> Any:
    restore = PartitionMachine.restore

    def without(self: PartitionMachine, loaded: Loaded | None) -> None:
        restore(self, loaded)
        self.stored.carried = CarriedRanges()

    return [(PartitionMachine, "restore", without)]


@mutation("the log's start moves while a carried batch is in flight")
def log_start_beside_a_carried_batch() -> Any:
    return [(Leadership, "carry", Leadership.propose)]


@mutation("a record behind the last blank goes as a blank")
def records_taken_for_blanks() -> Any:
    count = by_key._blanks_behind
    return [(by_key, "_blanks_behind", lambda group: min(count(group) + 1, len(_rows(group))))]


def _rows(group: Any) -> range:
    return range(group[0].batch.base_offset, group[-1].batch.end)


@mutation("a saved state does not hold the blanks below the log's start")
def hole_missing_from_the_state() -> Any:
    load = CarriedRanges.load

    def without(data: bytes, log_start: int, next_offset: int) -> CarriedRanges:
        loaded = load(data, log_start, next_offset)
        loaded.hole = 0
        return loaded

    return [(CarriedRanges, "load", without)]
