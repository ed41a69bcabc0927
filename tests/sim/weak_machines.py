"""Mutations of what holds where nodes differ, loops are slow and stores are not there."""

from __future__ import annotations

from typing import Any
from unittest import mock

import cluster.consensus.group as group_module
import cluster.partition.machine as machine_module
from cluster.partition.replica import Partition
from storage.identity import DirectoryLock
from storage.kv import WriteBatch
from tests.sim.mutations import mutation


@mutation("a directory whose store is gone is opened as a new one")
def empty_store_opened() -> Any:
    return [(DirectoryLock, "check_store", lambda self, path: None)]


@mutation("all that is committed is applied in one round")
def applied_in_one_round() -> Any:
    return [(group_module, "MAX_APPLY_PER_ADVANCE", 1 << 40)]


@mutation("each replica expires producers by its own copy of the lifetime")
def own_lifetime_applied() -> Any:
    apply, unpack = Partition.apply, machine_module.unpack_batch

    def by_own(self: Partition, index: int, term: int, data: bytes, batch: WriteBatch) -> object:
        own = self.policy.lease_lifetime_ms
        with mock.patch.object(
            machine_module, "unpack_batch", lambda entry: unpack(entry)._replace(lifetime_ms=own)
        ):
            return apply(self, index, term, data, batch)

    return [(Partition, "apply", by_own)]
