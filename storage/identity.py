"""Identity of a data directory: one node of one cluster, used by one process at a time.

`claim` is a node's first step with its directory, before RocksDB sees it. A refused directory is
not changed.

    DIR/lock           flock'ed while a node runs; holds its pid for the error of the next one
    DIR/identity.json  {"format": 5, "cluster_id": ..., "node_id": ..., "directory_id": ...,
                        "store": "none", "old" or "made", "members": [...], "founding": ...,
                        "cluster_version": only from format 6 on, "instance": only in format 7,
                        "admitted": {"1": its directory id, ...}, only of the node that founded}

The directory id is drawn when a directory is first used. The cluster remembers it: a node that
comes back with an emptied directory has another one, and may not vote or acknowledge as if it still
knew its promises. The id is in the store and in its commit log, too, and `store` says whether there
must be one.

The members are the node ids of the cluster's nodes, as the settings named them when it was founded;
they never change. The founding is a random number that all of them share. The node that founds the
cluster draws it, and admits the others, each with one directory for good; the others learn it then
(0: not yet). So two clusters of one name are told apart, a changed setting does not found a second
one, and an emptied directory cannot replace the admitted one.

The cluster version is the last one that this node knew its cluster to have agreed on: a release
that does not support it must not open the directory. Before the first agreement (version 1) the
format is 5, which older releases read; afterwards it is 6.

A directory that joined an existing cluster has an instance: the version of the metadata group's
configuration that added it. Its members are the founding nodes of the cluster. Such a directory has
format 7.

Formats 3 and 4 have no members. Format 3 has no `store`: such a directory has one, made by an older
version, without the directory id.
"""

from __future__ import annotations

import enum
import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from storage.errors import IdentityError, LockedError, MissingStoreError, StorageError
from storage.system import SYSTEM, System

FORMAT = 7
_OLD_FORMATS = (3, 4, 5, 6)
_FIRST_WITH_MEMBERS = 5
_FORMAT_BEFORE_UPGRADES = 5
_FORMAT_BEFORE_JOINING = 6
_FIRST_VERSION = 1  # of a cluster that was never upgraded
_LOCK = "lock"
_IDENTITY = "identity.json"
# Files that a new directory may have.
_IGNORED = frozenset({_LOCK, f"{_IDENTITY}.tmp", "lost+found", "processes"})
# Parts of a store.
_PARTS = ("", "rocksdb", "log", "synced")


class StoreState(enum.Enum):
    """State of the store in a data directory, by its identity."""

    NONE = "none"  # it may not exist yet
    OLD = "old"  # made by format 3: without a directory id
    MADE = "made"


@dataclass(frozen=True, slots=True)
class Identity:
    """Content of identity.json."""

    cluster_id: str
    node_id: int
    directory_id: int
    store: StoreState
    members: tuple[int, ...] = ()  # none: not recorded yet
    founding: int = 0
    cluster_version: int = _FIRST_VERSION
    instance: int = 0  # not 0: the directory joined
    # On the founding node: node id -> data directory that begins with the cluster.
    admitted: Mapping[int, int] = field(default_factory=dict)

    def pack(self) -> bytes:
        fields = {"format": FORMAT, **asdict(self), "store": self.store.value}
        if not self.admitted:
            del fields["admitted"]
        if not self.instance:
            fields["format"] = _FORMAT_BEFORE_JOINING
            del fields["instance"]
        if self.cluster_version == _FIRST_VERSION and not self.instance:
            fields["format"] = _FORMAT_BEFORE_UPGRADES
            del fields["cluster_version"]
        return json.dumps(fields).encode() + b"\n"


class DirectoryLock:
    """The right to use a directory; ends with `release` or with the process."""

    def __init__(self, path: Path, identity: Identity, descriptor: int, system: System) -> None:
        self.path = path
        self._identity = identity
        self._descriptor = descriptor
        self._system = system

    @property
    def directory_id(self) -> int:
        """The directory's id: random, 1 to 2**63 - 1, drawn when it was new."""
        return self._identity.directory_id

    @property
    def store(self) -> StoreState:
        return self._identity.store

    def check_store(self, path: Path) -> None:
        """Raises MissingStoreError when there should be a store and it is not whole."""
        if self.store is StoreState.NONE:
            return
        missing = [str(path / part) for part in _PARTS if not (path / part).exists()]
        if missing:
            raise MissingStoreError(
                f"data directory {self.path} was used before, and {missing[0]} is missing: is a "
                f"volume not mounted? Put it back as it was, and start again. If it is lost, the "
                f"node's promises are lost with it: keep {self.path} aside as a whole, so that the "
                f"cluster sees a node that lost its data"
            )

    def note_store(self) -> None:
        """Records that there is a store, with the directory id. Raises OSError."""
        if self.store is not StoreState.MADE:
            self._write(replace(self._identity, store=StoreState.MADE))

    @property
    def members(self) -> tuple[int, ...]:
        """Node ids of the cluster, rising; none before its founding is known."""
        return self._identity.members

    @property
    def founding(self) -> int:
        """The cluster's founding: random, 1 to 2**63 - 1, equal on all members; 0: unknown yet."""
        return self._identity.founding

    @property
    def instance(self) -> int:
        """The instance of the metadata group's replica here; 0: a founding one."""
        return self._identity.instance

    def note_joined(self, members: Iterable[int], founding: int, instance: int) -> None:
        """Records the cluster's answer to a join. Raises StorageError if it cannot be written."""
        assert founding > 0 and instance > 0 and not self.founding, "a new directory joins once"
        self._note(members=tuple(sorted(members)), founding=founding, instance=instance)

    def check_members(self, members: Iterable[int]) -> None:
        """Raises IdentityError if the settings name other members than the founding ones."""
        named, known = tuple(sorted(members)), self._identity.members
        if known and known != named:
            raise IdentityError(
                f"data directory {self.path} is of a cluster with the nodes "
                f"{_listed(known)}, and the setting `nodes` names {_listed(named)}: a "
                f"cluster's members cannot be changed by a setting. Put `nodes` back as it was, "
                f"on all nodes"
            )

    def found(self, members: Iterable[int]) -> None:
        """Founds a cluster of these nodes. Raises StorageError if it cannot be written."""
        assert not self.founding, "a cluster is founded once"
        own = {self._identity.node_id: self.directory_id}
        self._note_founding(members, self._system.random_number(), own)

    def note_founding(self, members: Iterable[int], founding: int) -> None:
        """Records that the founding node admits this one. Raises StorageError."""
        assert founding > 0 and not self.founding, "it is learned once"
        self._note_founding(members, founding, {})

    def _note_founding(
        self, members: Iterable[int], founding: int, admitted: Mapping[int, int]
    ) -> None:
        self._note(members=tuple(sorted(members)), founding=founding, admitted=admitted)

    def admit(self, node: int, directory: int) -> bool:
        """Whether the node begins with the cluster, with this directory; the first one wins.

        Only the founding node decides this. Raises StorageError.
        """
        admitted = self._identity.admitted
        if admitted and node not in admitted:
            self._note(admitted={**admitted, node: directory})
        return self._identity.admitted.get(node) == directory

    @property
    def has_admitted(self) -> Mapping[int, int]:
        """Returns node -> its directory on the founding node; empty elsewhere."""
        return self._identity.admitted

    def _note(self, **changes: Any) -> None:
        try:
            self._write(replace(self._identity, **changes))
        except OSError as error:
            raise StorageError(f"data directory {self.path}: {error}") from error

    def check_cluster_version(self, oldest: int, newest: int) -> None:
        """Raises IdentityError unless a release with these versions may open it."""
        version = self._identity.cluster_version
        if not oldest <= version <= newest:
            raise IdentityError(
                f"data directory {self.path} is of a cluster at version {version}, and this "
                f"release takes part in versions {oldest} to {newest}: start a release that "
                f"knows version {version}"
            )

    def note_cluster_version(self, version: int) -> None:
        """Records the agreed version of the cluster. Raises OSError."""
        assert version >= self._identity.cluster_version, "it never falls"
        if version > self._identity.cluster_version:
            self._write(replace(self._identity, cluster_version=version))

    def _write(self, identity: Identity) -> None:
        self._system.write_atomically(self.path / _IDENTITY, identity.pack())
        self._identity = identity

    def release(self) -> None:
        """Lets the next process in. May be called more than once."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.release()


def claim(
    path: str | os.PathLike[str], cluster_id: str, node_id: int, system: System = SYSTEM
) -> DirectoryLock:
    """Creates the directory if need be, locks it, and checks or writes its identity.

    Raises LockedError when a running process holds it, IdentityError when it belongs to another
    cluster or node or is not a data directory at all, and StorageError when it cannot be used.
    """
    directory = Path(path)
    try:
        system.make_directory(directory)
        # Before the lock file is made: another cluster's directory stays as it is.
        if not (directory / _IDENTITY).exists():
            _refuse_strangers(directory)
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"data directory {directory}: {error}") from error
    try:
        _lock(directory, descriptor)
        identity = _check_identity(directory, cluster_id, node_id, system)
        _note_pid(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise StorageError(f"data directory {directory}: {error}") from error
    except BaseException:
        os.close(descriptor)
        raise
    return DirectoryLock(directory, identity, descriptor, system)


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
        # The pid only serves an error's text. On a full disk the node must start, to be read.
        return


def _check_identity(directory: Path, cluster_id: str, node_id: int, system: System) -> Identity:
    """Checks the identity, or draws and writes a new one."""
    try:
        content = (directory / _IDENTITY).read_bytes()
    except FileNotFoundError:
        _refuse_strangers(directory)
        new = Identity(cluster_id, node_id, system.random_number(), StoreState.NONE)
        system.write_atomically(directory / _IDENTITY, new.pack())
        return new
    found = parse(directory, content)
    if found.cluster_id != cluster_id:
        raise IdentityError(
            f"data directory {directory} belongs to cluster {found.cluster_id!r}, "
            f"this node is of cluster {cluster_id!r}: check data_dir and cluster_id"
        )
    if found.node_id != node_id:
        raise IdentityError(
            f"data directory {directory} belongs to node {found.node_id}, this is node {node_id}: "
            "check data_dir and node_id"
        )
    return found


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _refuse_strangers(directory: Path) -> None:
    strange = sorted({entry.name for entry in directory.iterdir()} - _IGNORED)
    if strange:
        raise IdentityError(
            f"data directory {directory} is not empty and has no {_IDENTITY}: it holds "
            f"{', '.join(strange[:3])}{', ...' if len(strange) > 3 else ''}. Give an empty one"
        )


def parse(directory: Path, content: bytes) -> Identity:
    """Parses identity.json. Raises IdentityError."""
    try:
        fields = json.loads(content.decode())
        found = fields["format"]
        if found not in (*_OLD_FORMATS, FORMAT):
            raise IdentityError(
                f"data directory {directory} has format {found}, "
                f"this version reads {_listed(_OLD_FORMATS)} and {FORMAT}"
            )
        store = StoreState.OLD if found == _OLD_FORMATS[0] else StoreState(fields["store"])
        cluster_id, node_id = str(fields["cluster_id"]), int(fields["node_id"])
        old = Identity(cluster_id, node_id, int(fields["directory_id"]), store)
        if found < _FIRST_WITH_MEMBERS:
            return old
        members = tuple(int(member) for member in fields["members"])
        admitted = {int(one): int(held) for one, held in fields.get("admitted", {}).items()}
        known = replace(old, members=members, founding=int(fields["founding"]), admitted=admitted)
        if found < _FORMAT_BEFORE_JOINING:
            return known
        known = replace(known, cluster_version=int(fields["cluster_version"]))
        if found < FORMAT:
            return known
        return replace(known, instance=int(fields["instance"]))
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        # Not UTF-8, not JSON, another kind of value, Infinity, or nested without end.
        raise IdentityError(f"{directory / _IDENTITY} is not readable: {error!r}") from error
