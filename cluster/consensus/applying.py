"""Committed entries of one replica: runs them through its state machine in log order.

    committed and durable --memory, else ReadAhead--> StateMachine.apply --> index by index
                                                            '--due, or to be compared--> a save

The replica applies nothing while a save is in progress or an entry is read from the disk. Other
replicas go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cluster.consensus.configuration import CONFIGURATION
from cluster.consensus.environment import Environment, StateMachine
from cluster.consensus.port import NO_OP
from cluster.consensus.raft import Raft
from cluster.consensus.read_ahead import ReadAhead

MAX_APPLY_PER_ADVANCE = 256


class Applying:
    """The applying of one replica; lives as long as `raft`.

    configure(index): puts the configuration of that entry into force.
    """

    def __init__(
        self,
        group: int,
        raft: Raft,
        machine: StateMachine,
        env: Environment,
        configure: Callable[[int], object],
    ) -> None:
        self._raft = raft
        self._machine = machine
        self._batch = env.batch
        self._configure = configure
        self._ahead = ReadAhead(group, raft.journal, env.reads)

    def has_work(self, commit_index: int) -> bool:
        """Whether `step` has work to do."""
        raft = self._raft
        if raft.journal.applied_index >= commit_index:
            return raft.checkpoints.is_saving
        return raft.checkpoints.is_saving or not self._ahead.is_reading

    def step(self, commit_index: int) -> Iterator[tuple[int, bytes, object]]:
        """Applies a part of the committed entries; yields index, entry and result."""
        journal, checkpoints, check = self._raft.journal, self._raft.checkpoints, self._raft.check
        if checkpoints.is_saving:
            checkpoints.save_on()
        stop = min(commit_index, journal.applied_index + MAX_APPLY_PER_ADVANCE)
        while journal.applied_index < stop and not checkpoints.is_saving:
            index = journal.applied_index + 1
            found = journal.in_memory(index) or self._ahead.entry(index, stop)
            if found is None:
                break  # its read is in progress
            data, result = found[0], None
            if data[0] == CONFIGURATION:
                result = self._configure(index)
            elif data != NO_OP:
                result = self._machine.apply(index, journal.term_at(index), data, self._batch())
            journal.applied_index = index
            checkpoints.applied(len(data))
            if index == check.at:
                check.save()
            yield index, data, result
        self._ahead.step_ends()
        if checkpoints.due:
            checkpoints.save()

    def close(self) -> None:
        self._ahead.close()
