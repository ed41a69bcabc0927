"""pysyncobj is the version whose private names we borrow, and they are there."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import pytest
from pysyncobj import syncobj

from cluster.consensus import port
from tests.unit.consensus.raft_parts import Parts

SOURCE = inspect.getsource(syncobj)


def test_version_is_the_one_that_was_read() -> None:
    assert version("pysyncobj") == "0.3.17"


@pytest.mark.parametrize("name", port.BORROWED)
def test_borrowed_name_exists(name: str) -> None:
    assert f"self.__{name}" in SOURCE or f"def __{name}" in SOURCE


@pytest.mark.parametrize(
    "name", ["monotonicTime", "random", "createJournal", "createPoller", "PIPE_NOTIFIER_ENABLED"]
)
def test_patched_global_is_used_by_the_core(name: str) -> None:
    assert SOURCE.count(name) > 1


def test_core_unpickles_nothing() -> None:
    """No entry and no message of a peer makes the core load a pickle."""
    parts = Parts()
    parts.fill(1, 1)
    loaded: list[bytes] = []
    pickle = syncobj.pickle
    original = pickle.loads
    pickle.loads = loaded.append
    try:
        entries = [(b"\x00" + b"cos\nsystem\n", 4, 2), (b"\x02evil", 5, 2), (b"\x03evil", 6, 2)]
        message = {"type": "append_entries", "term": 2, "commit_index": 6, "entries": entries}
        parts.core.deliver(2, {**message, "prevLogIdx": 3, "prevLogTerm": 1})
        for _ in range(3):
            parts.now += 1
            parts.core.tick()
    finally:
        pickle.loads = original
    assert parts.core.commit_index == 6
    assert not loaded


def test_clocks_of_two_cores_do_not_mix() -> None:
    early, late = Parts(now=10.0), Parts(now=1000.0)
    assert 11.0 <= early.core.election_deadline <= 12.0
    assert 1001.0 <= late.core.election_deadline <= 1002.0
    early.core.tick()
    assert early.core.term == 0, "its own clock has not reached its deadline"


def test_higher_term_makes_a_leader_follow() -> None:
    parts = Parts()
    parts.lead(1)
    parts.core.see_term(5, 3)
    assert parts.core.term == 5
    assert not parts.core.is_leader
    assert parts.journal.voted_for == 0, "seeing a term is no vote"


def test_leader_steps_down_when_nobody_answers() -> None:
    parts = Parts()
    parts.lead(1)
    parts.now += 2.1
    parts.core.tick()
    assert not parts.core.is_leader
