"""A data directory belongs to one node of one cluster, and to one process at a time.

`claim` is the first thing a node does with its directory, before RocksDB sees
it. Nothing is changed in a directory that is refused.

    DIR/lock           flock'ed while a node runs; holds its pid for the error of the next one
    DIR/identity.json  {"format": 3, "cluster_id": ..., "node_id": ..., "directory_id": ...}

The directory id is drawn when a directory is first used. The cluster remembers
it: a node that comes back with an emptied directory has another one, and may
not vote or acknowledge as if it still knew what it had promised.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from types import TracebackType

from storage.errors import IdentityError, LockedError, StorageError

FORMAT = 3
_LOCK = "lock"
_IDENTITY = "identity.json"
# What a directory may hold and still count as new.
_IGNORED = frozenset({_LOCK, f"{_IDENTITY}.tmp", "lost+found"})


class DirectoryLock:
    """The right to use a directory; ends with `release` or with the process.

    directory_id: random, 1 to 2**63 - 1, drawn when the directory was new.
    """

    def __init__(self, path: Path, directory_id: int, descriptor: int) -> None:
        self.path, self.directory_id = path, directory_id
        self._descriptor = descriptor

    def release(self) -> None:
        """Lets the next process in. May be called more than once."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def claim(path: str | os.PathLike[str], cluster_id: str, node_id: int) -> DirectoryLock:
    """Creates the directory if need be, locks it and checks or writes whose it is.

    Raises LockedError when a running process holds it, IdentityError when it
    belongs to another cluster or node or is not a data directory at all, and
    StorageError when it cannot be used.
    """
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Before the lock file is made: a stranger's directory stays as it is.
        if not (directory / _IDENTITY).exists():
            _refuse_strangers(directory)
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"data directory {directory}: {error}") from error
    try:
        _lock(directory, descriptor)
        directory_id = _check_identity(directory, cluster_id, node_id)
        _note_pid(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise StorageError(f"data directory {directory}: {error}") from error
    except BaseException:
        os.close(descriptor)
        raise
    return DirectoryLock(directory, directory_id, descriptor)


def _lock(directory: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        pid = int(text) if text.isdecimal() else 0
        holder = f"the running process {pid}" if pid else "another process"
        raise LockedError(f"data directory {directory} is held by {holder}", pid=pid) from error


def _note_pid(descriptor: int) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        # Only for the text of an error. On a full disk the node must start, to be read.
        return


def _check_identity(directory: Path, cluster_id: str, node_id: int) -> int:
    """Returns the directory id, drawn and written if the directory is new."""
    try:
        content = (directory / _IDENTITY).read_bytes()
    except FileNotFoundError:
        _refuse_strangers(directory)
        return _write_identity(directory, cluster_id, node_id)
    found_cluster, found_node, directory_id = _parse(directory, content)
    if found_cluster != cluster_id:
        raise IdentityError(
            f"data directory {directory} belongs to cluster {found_cluster!r}, "
            f"this node is of cluster {cluster_id!r}"
        )
    if found_node != node_id:
        raise IdentityError(
            f"data directory {directory} belongs to node {found_node}, this is node {node_id}"
        )
    return directory_id


def _refuse_strangers(directory: Path) -> None:
    strange = sorted({entry.name for entry in directory.iterdir()} - _IGNORED)
    if strange:
        raise IdentityError(
            f"data directory {directory} is not empty and has no {_IDENTITY}: it holds "
            f"{', '.join(strange[:3])}{', ...' if len(strange) > 3 else ''}"
        )


def _parse(directory: Path, content: bytes) -> tuple[str, int, int]:
    try:
        identity = json.loads(content.decode())
        if identity["format"] != FORMAT:
            raise IdentityError(
                f"data directory {directory} has format {identity['format']}, "
                f"this version reads {FORMAT}"
            )
        cluster_id, node_id = str(identity["cluster_id"]), int(identity["node_id"])
        return cluster_id, node_id, int(identity["directory_id"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        # Not UTF-8, not JSON, another kind of value, Infinity, or nested without end.
        raise IdentityError(f"{directory / _IDENTITY} is not readable: {error!r}") from error


def _write_identity(directory: Path, cluster_id: str, node_id: int) -> int:
    directory_id = 1 + secrets.randbelow(2**63 - 1)
    identity = {
        "format": FORMAT,
        "cluster_id": cluster_id,
        "node_id": node_id,
        "directory_id": directory_id,
    }
    write_atomically(directory / _IDENTITY, json.dumps(identity).encode() + b"\n")
    return directory_id


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces a file: after a crash there is the old content or the new, durable on return."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
