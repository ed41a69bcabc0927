"""Snapshots of a leader: made there, checked by the receiver, installed in place of its state.

base_reading --> a thread --> check_snapshot --> replace_by: journal and checkpoints
                         '--SnapshotError--> the sender; nothing has changed
"""

from __future__ import annotations

from collections.abc import Callable

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


def check_snapshot(
    config: GroupConfig, machine: StateMachine, raft: Raft, snapshot: Snapshot
) -> bool:
    """Returns whether its last entry is held already. Raises SnapshotError unless it is sound."""
    journal = raft.journal
    held = snapshot.index <= journal.applied_index or (
        snapshot.index <= journal.last_index
        and journal.term_at(snapshot.index) == snapshot.index_term
    )
    name = config.name or f"group-{config.group}"
    if snapshot.to_instance != config.instance:
        text = f"it is for instance {snapshot.to_instance}, this one is {config.instance}"
        raise SnapshotError(f"snapshot of {name}: {text}")
    if not 0 < snapshot.index_term <= snapshot.term or not 0 < snapshot.index <= MAX_NUMBER:
        raise SnapshotError(f"snapshot of {name}: its index or terms cannot be")
    if not snapshot.is_whole:
        raise SnapshotError(f"snapshot of {name}: its checksum differs")
    if snapshot.configuration:
        try:
            unpack_placed(snapshot.configuration)
        except CorruptionError as error:
            raise SnapshotError(f"snapshot of {name}: {error}") from error
    if held:
        return True
    try:
        machine.check(snapshot.state)
    except Exception as error:
        # Any kind of error: the state here has not been touched.
        raise SnapshotError(f"snapshot of {name} cannot be loaded: {error}") from error
    return False
