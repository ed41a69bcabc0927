"""May a leader's snapshot take the place of all that a replica has?

Group.install --> check_snapshot --> journal, checkpoints and state are replaced
                         '--SnapshotError--> the sender; nothing has changed
"""

from __future__ import annotations

from cluster.consensus.environment import GroupConfig, StateMachine
from cluster.consensus.message import Snapshot, SnapshotError
from storage.keys import MAX_NUMBER


def check_snapshot(
    config: GroupConfig, machine: StateMachine, sender: int, snapshot: Snapshot, *, load: bool
) -> None:
    """Raises SnapshotError unless it is sound. load: its state is to be loaded, too."""
    name = config.name or f"group-{config.group}"
    if sender not in config.peers:
        raise SnapshotError(f"node {sender} has no replica of {name}")
    if not 0 < snapshot.index_term <= snapshot.term or not 0 < snapshot.index <= MAX_NUMBER:
        raise SnapshotError(f"snapshot of {name}: its index or terms cannot be")
    if not snapshot.is_whole:
        raise SnapshotError(f"snapshot of {name}: its checksum differs")
    if not load:
        return
    try:
        machine.check(snapshot.state)
    except Exception as error:
        # Of whatever kind: the state that is here has not been touched.
        raise SnapshotError(f"snapshot of {name} cannot be loaded: {error}") from error
