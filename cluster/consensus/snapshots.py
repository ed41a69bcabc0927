"""Snapshots of a leader: made there, checked by the receiver, installed in place of its state.

leader:   base_reading --> a thread --> Snapshot
receiver: checking --> a thread --> Checked --between two rounds--> is_held --> replace_by
                                                    '--SnapshotError--> the sender; nothing changed

The thread looks at the snapshot alone. The log, the term and the members may change meanwhile, so
they are compared when it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.consensus.configuration import Placed, pack_placed, unpack_placed
from cluster.consensus.environment import GroupConfig, StateMachine
from cluster.consensus.message import Snapshot, SnapshotError, checksum_of
from cluster.consensus.raft import Raft
from storage.errors import CorruptionError
from storage.keys import MAX_NUMBER


def base_reading(group: int, raft: Raft, peer: int) -> Callable[[], Snapshot]:
    """Makes the snapshot at the log's base as it is now. Any thread may run it.

    It raises storage.CorruptionError, or StorageError while the state is not written yet.
    """
    journal, checkpoints = raft.journal, raft.checkpoints
    index, index_term = journal.base_index, journal.base_term
    placed = journal.configuration_at(index)
    configuration = pack_placed(placed) if placed.index else b""
    term, theirs = raft.core.term, raft.members.instance_of(peer)

    def read() -> Snapshot:
        state = checkpoints.state_at(index)
        checksum = checksum_of(group, index, index_term, state, configuration)
        return Snapshot(group, term, index, index_term, state, checksum, configuration, theirs)

    return read


def replace_by(raft: Raft, snapshot: Snapshot, founding: Placed) -> None:
    """Replaces log and checkpoints; founding: in force if the snapshot has no configuration."""
    placed = unpack_placed(snapshot.configuration) if snapshot.configuration else founding
    # The configuration in force was committed, so the leader's state comes after it.
    assert placed.configuration.version >= raft.members.version
    raft.checkpoints.replace(snapshot.index, snapshot.index_term, snapshot.state)
    raft.journal.reset(snapshot.index, snapshot.index_term, placed)


@dataclass(frozen=True, slots=True)
class Checked:
    """A received snapshot that a thread has checked.

    fault: why it is damaged; empty: it is as the leader made it.
    loaded: its state; an error: why it does not load.
    """

    snapshot: Snapshot
    fault: str
    loaded: object


def checking(machine: StateMachine, snapshot: Snapshot) -> Callable[[], Checked]:
    """Makes the check of a snapshot without the replica's state. Any thread may run it."""

    def check() -> Checked:
        fault = ""
        try:
            fault = _fault(snapshot)
            return Checked(snapshot, fault, None if fault else machine.load(snapshot.state))
        except Exception as error:  # noqa: BLE001 - of any kind: a start would meet it
            return Checked(snapshot, fault, error)

    return check


def _fault(snapshot: Snapshot) -> str:
    if not 0 < snapshot.index_term <= snapshot.term or not 0 < snapshot.index <= MAX_NUMBER:
        return "its index or terms cannot be"
    if not snapshot.is_whole:
        return "its checksum differs"
    try:
        if snapshot.configuration:
            unpack_placed(snapshot.configuration)
    except CorruptionError as error:
        return str(error)
    return ""


def is_held(config: GroupConfig, raft: Raft, checked: Checked) -> bool:
    """Returns whether its last entry is held already. Raises SnapshotError unless it is sound."""
    journal, snapshot = raft.journal, checked.snapshot
    name = config.name or f"group-{config.group}"
    if snapshot.to_instance != config.instance:
        text = f"it is for instance {snapshot.to_instance}, this one is {config.instance}"
        raise SnapshotError(f"snapshot of {name}: {text}")
    if checked.fault:
        raise SnapshotError(f"snapshot of {name}: {checked.fault}")
    if snapshot.index <= journal.applied_index or (
        snapshot.index <= journal.last_index
        and journal.term_at(snapshot.index) == snapshot.index_term
    ):
        return True
    if isinstance(checked.loaded, Exception):
        text = f"snapshot of {name} cannot be loaded: {checked.loaded}"
        raise SnapshotError(text) from checked.loaded
    return False
