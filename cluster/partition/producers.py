"""Producers of a replica: the last-seen map, opens and releases. Applied.

    PartitionMachine --open, release, advance--> ProducerTable --> LastSeen
                                                      |
                  leader.py: rules for proposals, facts of the metadata

A name's producer id is remembered here until the name has expired, no matter how long it is idle:
its entry is pinned. The leader knows from its copy of the metadata which ids names hold, and says
so in the entry (HELD), so that apply needs nothing but the entry. This is safe although copies lag
behind each other:

* A name's id is the name's from the entry that issued it, and it is never given back to a name that
  gave it up. A leader that knows the id therefore knows whether it was ever a name's, and pins it
  with the first thing that it stores.
* Only an id that a copy knows to be issued and held by no name is released.
* A released id is below the expiry watermark or idle, so a batch of it is PRODUCER_EXPIRED. Only an
  open could bring it back, from a leader whose copy still has the name. So each release leaves the
  copy's index behind, and an open on behalf of a name counts only with a copy that is at least as
  new.
"""

from __future__ import annotations

from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import Kind, Verdict
from cluster.entries import HELD, OpenProducerEntry, ReleaseEntry

NAMES_BEHIND = Verdict(Kind.NOT_READY, message="the leader's copy of the producer names is behind")


class ProducerTable:
    """The last-seen map of one replica, with the releases that it has applied.

    names_index: the newest index of the metadata log by which ids were released.
    """

    def __init__(self, capacity: int) -> None:
        self.last_seen = LastSeen(capacity=capacity)
        self.names_index = 0

    def restore(self, last_seen: LastSeen, names_index: int) -> None:
        self.last_seen = last_seen
        self.names_index = names_index

    def open(self, entry: OpenProducerEntry, clock_ms: int) -> Verdict:
        """Raises the producer's epoch, unless the verdict refuses it."""
        pin = bool(entry.flags & HELD)
        if pin and entry.metadata_index < self.names_index:
            return NAMES_BEHIND
        return self.last_seen.open(entry.producer_id, entry.epoch, clock_ms, pin=pin)

    def release(self, entry: ReleaseEntry) -> None:
        """Releases these ids: no name holds them any more."""
        self.names_index = max(self.names_index, entry.metadata_index)
        for producer_id in entry.producer_ids:
            self.last_seen.release(producer_id)
