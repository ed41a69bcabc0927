"""State machine of the metadata group, as its consensus group uses it.

Group --apply, pieces, restore--> MetadataMachine --> MetadataState (topics, placement, ids, names)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cluster.entries import METADATA, UPGRADE, CorruptEntryError
from cluster.metadata.state import MetadataState
from cluster.metadata.tables import Tables
from storage.kv import WriteBatch


class MetadataMachine:
    """The metadata group's state machine: MetadataState behind entry framing."""

    def __init__(self, state: MetadataState, on_applied: Callable[[int], None]) -> None:
        self.state = state
        self._on_applied = on_applied
        self.role_listener: Callable[[], None] = lambda: None

    def apply(self, index: int, term: int, data: bytes, batch: WriteBatch) -> bytes:
        if data[0] not in (METADATA, UPGRADE):
            raise CorruptEntryError(f"entry of type {data[0]} in the metadata log", index=index)
        result = self.state.apply(index, data[1:], upgrade=data[0] == UPGRADE)
        self._on_applied(index)
        return result

    def pieces(self) -> Iterator[bytes]:
        return self.state.pieces()

    def dump(self) -> bytes:
        """Returns the whole state at once, for tools and tests."""
        return self.state.dump()

    def load(self, state: bytes) -> Tables:
        """Loads a state for `restore`. Raises MetadataCorruptError, OlderReleaseError."""
        return self.state.parse(state)

    def restore(self, loaded: Tables | None, index: int) -> None:
        self.state.replace(loaded, index)

    def discard(self, batch: WriteBatch) -> None:
        """Does nothing: the metadata group has no data besides its state."""

    def on_role(self, *, leader: bool, ready: bool, term: int) -> None:
        self.role_listener()
