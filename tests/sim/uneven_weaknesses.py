"""Mutations of the rules for nodes that differ, slow loops and missing stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import cluster.consensus.applying as applying_module
import cluster.consensus.proposals as proposals_module
import cluster.partition.leader as leader_module
import cluster.partition.machine as machine_module
from cluster.entries import unpack_batch
from cluster.metadata.producer_names import NameState
from cluster.partition.replica import Partition
from cluster.partition.retention import freed_by
from storage.identity import DirectoryLock
from storage.kv import WriteBatch
from tests.sim.mutations import mutation


@mutation("a directory whose store is gone is opened as a new one")
def empty_store_opened() -> Any:
    return [(DirectoryLock, "check_store", lambda self, path: None)]


@mutation("all that is committed is applied in one round")
def applied_in_one_round() -> Any:
    limits = [(applying_module, "MAX_APPLY_PER_ADVANCE"), (proposals_module, "MAX_SLICE_ENTRIES")]
    return [(module, name, 1 << 40) for module, name in limits]


@mutation("each replica expires producers by its own copy of the lifetime")
def own_lifetime_applied() -> Any:
    apply = Partition.apply

    def by_own(self: Partition, index: int, term: int, data: bytes, batch: WriteBatch) -> object:
        own = self.policy.lease_lifetime_ms
        with mock.patch.object(
            machine_module,
            "unpack_batch",
            lambda entry: unpack_batch(entry)._replace(lifetime_ms=own),
        ):
            return apply(self, index, term, data, batch)

    return [(Partition, "apply", by_own)]


@mutation("ages are kept in 31 bits of milliseconds, which is 24 days")
def ages_in_31_bits() -> Any:
    def short(policy: Any, *rest: Any) -> Any:
        cut = policy.retention_ms & 0x7FFFFFFF
        return freed_by(replace(policy, retention_ms=cut), *rest)

    return [(leader_module, "freed_by", short)]


@mutation("a record's age is counted to the newest record, not to now")
def age_by_the_newest_record() -> Any:
    def at_rest(policy: Any, stored: Any, now_ms: int, stamp_ms: int) -> Any:
        times = [place.append_time_ms for place in stored.index.all_from(stored.log_start)]
        return freed_by(policy, stored, max(times, default=now_ms), stamp_ms)

    return [(leader_module, "freed_by", at_rest)]


@mutation("a name is never given up")
def names_kept() -> Any:
    return [(NameState, "lapsed", lambda self, now_ms, expiry_ms: False)]
