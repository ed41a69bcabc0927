"""Ownership of a data directory: its identity, and that only one process has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storage.errors import IdentityError, LockedError, StorageError
from storage.identity import StoreState, claim


def _contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_first_use_creates_and_later_use_checks(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "node1"
    claim(path, "prod", 1).release()
    with claim(path, "prod", 1) as lock:
        assert lock.path == path
    assert json.loads((path / "identity.json").read_text())["node_id"] == 1


@pytest.mark.parametrize(
    ("cluster", "node", "words"),
    [("other", 1, ["'prod'", "'other'"]), ("prod", 2, ["node 1", "node 2"])],
)
def test_of_another_cluster_or_node(
    tmp_path: Path, cluster: str, node: int, words: list[str]
) -> None:
    claim(tmp_path, "prod", 1).release()
    before = _contents(tmp_path)
    with pytest.raises(IdentityError) as caught:
        claim(tmp_path, cluster, node)
    assert all(word in str(caught.value) for word in [*words, str(tmp_path)])
    assert _contents(tmp_path) == before
    claim(tmp_path, "prod", 1).release()


def test_a_strangers_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(IdentityError, match=r"not empty.*thesis\.tex"):
        claim(tmp_path, "prod", 1)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": 99, "cluster_id": "prod", "node_id": 1}']
)
def test_unreadable_identity(tmp_path: Path, content: str) -> None:
    (tmp_path / "identity.json").write_text(content)
    with pytest.raises(IdentityError):
        claim(tmp_path, "prod", 1)


def test_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="file"):
        claim(tmp_path / "file", "prod", 1)


def test_second_claim_in_one_process(tmp_path: Path) -> None:
    with claim(tmp_path, "prod", 1):
        with pytest.raises(LockedError) as caught:
            claim(tmp_path, "prod", 1)
    assert caught.value.pid == os.getpid()


_HOLDER = """
import sys
from storage.identity import StoreState, claim
lock = claim(sys.argv[1], "prod", 1)
print("held", flush=True)
sys.stdin.read()
"""


def test_held_by_another_process_until_it_dies(tmp_path: Path, root: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        before = _contents(tmp_path)
        with pytest.raises(LockedError, match=str(holder.pid)) as caught:
            claim(tmp_path, "prod", 1)
        assert caught.value.pid == holder.pid
        assert str(tmp_path) in str(caught.value)
        assert _contents(tmp_path) == before
        holder.kill()
    claim(tmp_path, "prod", 1).release()


@pytest.mark.parametrize(
    "content",
    [b'\xfb"format": 3}', b"[" * 100_000, b'{"format": 3, "cluster_id": "c", "node_id": Infinity}'],
    ids=["not UTF-8", "nested", "infinite"],
)
def test_an_identity_of_strange_bytes_is_an_error_with_its_name(
    tmp_path: Path, content: bytes
) -> None:
    claim(tmp_path, "prod", 1).release()
    (tmp_path / "identity.json").write_bytes(content)
    with pytest.raises(IdentityError, match=r"identity\.json is not readable"):
        claim(tmp_path, "prod", 1)


# -- members ------------------------------------------------------------------------------


def test_the_node_that_founds_admits_one_directory_for_each_node(tmp_path: Path) -> None:
    with claim(tmp_path / "1", "prod", 1) as first:
        assert not first.admit(2, 22), "it has founded nothing yet"
        first.found([3, 1, 2])
        drawn = first.founding
        assert first.members == (1, 2, 3) and drawn > 0
        assert first.admit(2, 22) and not first.admit(2, 23)
    with claim(tmp_path / "1", "prod", 1) as again:
        again.check_members([1, 2, 3])
        assert again.founding == drawn
        assert again.admit(2, 22) and not again.admit(2, 23) and again.admit(3, 33)
        assert again.has_admitted == {1: again.directory_id, 2: 22, 3: 33}
        assert not again.admit(1, 11)
    with claim(tmp_path / "2", "prod", 2) as other:
        assert other.founding == 0
        other.note_founding([1, 2, 3], drawn)
        assert not other.admit(3, 33), "only the node that founded says so"
    with claim(tmp_path / "2", "prod", 2) as other:
        other.check_members([1, 2, 3])
        assert other.founding == drawn and other.store is StoreState.NONE


@pytest.mark.parametrize("members", [(1, 2, 3), (2,), (1, 2)])
def test_a_setting_does_not_change_the_members(tmp_path: Path, members: tuple[int, ...]) -> None:
    with claim(tmp_path, "prod", 2) as lock:
        lock.note_founding([2, 7], 5)
    before = _contents(tmp_path)
    with claim(tmp_path, "prod", 2) as lock:
        with pytest.raises(IdentityError) as caught:
            lock.check_members(members)
    named = ", ".join(map(str, members))
    assert "the nodes 2, 7, " in str(caught.value) and f"names {named}:" in str(caught.value)
    assert _contents(tmp_path)["identity.json"] == before["identity.json"]


@pytest.mark.parametrize("fields", [{"format": 4, "store": "made"}, {"format": 3}])
def test_a_directory_of_before_takes_its_setting_once(tmp_path: Path, fields: Any) -> None:
    old = {"cluster_id": "prod", "node_id": 1, "directory_id": 5, **fields}
    (tmp_path / "identity.json").write_text(json.dumps(old))
    with claim(tmp_path, "prod", 1) as lock:
        lock.check_members([1, 2, 3])
        lock.found([1, 2, 3])
        store, drawn = lock.store, lock.founding
    assert drawn
    with claim(tmp_path, "prod", 1) as lock:
        assert (lock.directory_id, lock.store, lock.founding) == (5, store, drawn)
        with pytest.raises(IdentityError):
            lock.check_members([1])
