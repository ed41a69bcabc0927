"""Offsets that open transactions have staged in a partition of `__offsets`. Deterministic, pure.

    StageOffsets entry --OffsetsTable--> StagedOffsetsTable --marker--> stored, or dropped

A transaction's calls for one group are kept in the order of their numbers, until its marker: a
commit stores those that its decision names. Only one transaction at a time may stage an offset,
and no other commits it meanwhile. Otherwise the marker would undo later moves, or the staged
offset would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cluster.v1 import offsets_pb2 as pb

MAX_STAGED = 10_000  # offsets of one transaction and group, all calls together

Key = tuple[str, int]  # topic, partition


class StagedOffsetsTable:
    """Staged offsets by transaction and group. `len`: how many groups have some."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, list[pb.StageOffsets]]] = {}
        # group -> offset -> the transaction that has staged it
        self._holders: dict[str, dict[Key, int]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    # -- looking at it ------------------------------------------------------------------

    def transactions(self) -> Iterable[int]:
        return self._calls.keys()

    def calls(self, transaction_id: int, group: str) -> list[pb.StageOffsets]:
        """Return the calls, the oldest first."""
        return self._calls.get(transaction_id, {}).get(group, [])

    def of(self, transaction_id: int) -> dict[str, tuple[int, int]]:
        """Map groups to (offsets of all calls together, number of the last call)."""
        groups = self._calls.get(transaction_id, {})
        return {group: (_count(calls), calls[-1].number) for group, calls in groups.items()}

    def holders(self, group: str) -> Mapping[Key, int]:
        """Map offsets to the transaction that has staged them."""
        return self._holders.get(group, {})

    def all_calls(self) -> Iterator[pb.StageOffsets]:
        """Yield the calls by transaction, group and number."""
        for _, groups in sorted(self._calls.items()):
            for _, calls in sorted(groups.items()):
                yield from calls

    # -- apply --------------------------------------------------------------------------

    def add(self, call: pb.StageOffsets) -> None:
        """Add a checked call."""
        groups = self._calls.setdefault(call.transaction_id, {})
        groups.setdefault(call.group, []).append(call)
        holders = self._holders.setdefault(call.group, {})
        for record in call.offsets:
            holders[record.topic, record.partition] = call.transaction_id

    def end(self, transaction_id: int) -> dict[str, list[pb.StageOffsets]]:
        """Remove and return the transaction's staged offsets, by group."""
        groups = self._calls.pop(transaction_id, {})
        for group in groups:
            holders = self._holders[group]
            left = {key: number for key, number in holders.items() if number != transaction_id}
            if left:
                self._holders[group] = left
            else:
                del self._holders[group]
        return groups


def _count(calls: Iterable[pb.StageOffsets]) -> int:
    return sum(len(call.offsets) for call in calls)
