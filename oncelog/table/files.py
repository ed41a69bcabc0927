"""Table of a topic: places, files in an object store, and the rules of a commit, in any format.

Place in the flow: `run` and `merge` commit here; `verify` and the Spark reader read here. The rows
of a commit and the positions after them are one step. A commit is tried once, as the version after
the one that was read. If it is refused, or its answer is lost, the caller reads the table again and
decides by the positions. Objects are put with If-None-Match under names that are never used again,
and never deleted here: a late commit may name them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

from oncelog.errors import FatalError, MissingExtraError
from oncelog.table.layout import PARTITION_COLUMNS, BuiltFile
from oncelog.types import ClusterInfo

_CLUSTER: Final = "oncelog.cluster"
_TOPIC: Final = "oncelog.topic"
_OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
_TRIES_S: Final = 120  # all attempts of an object store's request together


class TableError(FatalError):
    """The table cannot take, or does not hold, the topic's records; the message has the cause."""

    reason = "TABLE"


class CommitUnknownError(Exception):
    """A commit was refused, or its answer is lost: read the table's position."""


class TableFile(NamedTuple):
    """A file of one partition, as the table names it."""

    path: str
    size: int
    first: int
    records: int
    blanks: int = 0  # offsets whose records compaction had removed
    moments: tuple[int, int] = (0, 0)  # lowest and highest timestamp; of files to add

    @property
    def end(self) -> int:
        return self.first + self.records + self.blanks


@dataclass(frozen=True, slots=True, order=True)
class TablePartition:
    """A partition of a topic; a topic that was deleted and created again has another id."""

    topic_id: int
    partition: int

    @property
    def application(self) -> str:
        return f"oncelog/{self.topic_id}/{self.partition}"

    @property
    def values(self) -> dict[str, str]:
        return {"topic_id": str(self.topic_id), "partition": str(self.partition)}

    def new_path(self, first: int) -> str:
        folder = "/".join(f"{name}={self.values[name]}" for name in PARTITION_COLUMNS)
        return f"{folder}/{first:020}-{uuid4().hex}.parquet"


def import_obstore() -> Any:
    try:
        import obstore
    except ImportError as error:
        raise MissingExtraError("oncelog table", "obstore", "table") from error
    return obstore


def table_url(to: str, name: str) -> str:
    """Return the URL of the table `name` below `to`; a path without a scheme becomes absolute.

    Catalogs and SQL use dots between names, so dots of the name become `_`.
    """
    scheme = urlsplit(to).scheme
    if scheme == "file":
        to = urlsplit(to).path
    elif scheme and scheme not in _OBJECT_STORES:
        known = ", ".join(_OBJECT_STORES)
        raise TableError(f"to: {scheme}:// is not supported; give a path, file:// or {known}")
    if not scheme or scheme == "file":
        to = str(Path(to).absolute())
    return f"{to.rstrip('/')}/{name.replace('.', '_')}"


def owner_of(cluster: ClusterInfo) -> str:
    """Name a cluster; one that was founded again with the same id is another one."""
    return f"{cluster.cluster_id}/{cluster.founding}"


class TopicTable(ABC):
    """One version of the table of a topic; `refresh` goes to the newest."""

    merges = False  # whether `replace` is there

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = _object_store(url)
        self._files: dict[TablePartition, list[TableFile]] = {}
        self._files_of: object = None  # the version

    @abstractmethod
    def refresh(self) -> None:
        """Go to the newest version."""

    @property
    @abstractmethod
    def version(self) -> int: ...

    @property
    def state(self) -> object:
        """Return a value that is another one after every change of the table."""
        return self.version

    @abstractmethod
    def _position(self, place: TablePartition) -> int | None: ...

    @abstractmethod
    def _list(self) -> dict[TablePartition, list[TableFile]]: ...

    @abstractmethod
    def _add(
        self,
        files: Sequence[tuple[TablePartition, TableFile]],
        positions: Mapping[TablePartition, int],
    ) -> None:
        """Commit files and positions, once, after this version. Raises CommitUnknownError."""

    def replace(self, place: TablePartition, old: Sequence[TableFile], new: TableFile) -> None:
        """Put one file in the place of others with the same rows. Raises CommitUnknownError."""
        raise NotImplementedError

    def position(self, place: TablePartition) -> int | None:
        """Return the next offset of a partition; None: the table has nothing of it."""
        found = self._position(place)
        if found is None and self.files(place):
            raise TableError(
                f"{self.url}: the position {place.application} is gone, but its files are there; "
                "choose another --name"
            )
        return found

    def places(self) -> list[TablePartition]:
        """Return the partitions that have files, of all topics that had the name."""
        self._read_files()
        return sorted(self._files)

    def files(self, place: TablePartition) -> list[TableFile]:
        """Return the files of a partition in offset order."""
        self._read_files()
        return self._files.get(place, [])

    def _read_files(self) -> None:
        if self._files_of != self.state:
            listed = self._list()
            self._files = {
                place: sorted(files, key=lambda file: file.first) for place, files in listed.items()
            }
            self._files_of = self.state

    def commit(self, files: Iterable[tuple[TablePartition, TableFile]]) -> None:
        """Add files of any partitions, which go on at their positions, and move the positions.

        Raises CommitUnknownError, also if this version has other positions.
        """
        added, ends = list(files), dict[TablePartition, int]()
        for place, file in added:
            at = ends.get(place, self.position(place))
            if at not in (None, file.first):
                raise CommitUnknownError(f"{self.url}: {place} is at {at}, not {file.first}")
            ends[place] = file.end
        self._add(added, ends)

    def put(self, place: TablePartition, built: BuiltFile) -> TableFile:
        """Store a file under a new name; no version of the table has it yet."""
        obstore = import_obstore()
        path = place.new_path(built.first)
        with named(self.url):
            try:
                obstore.put(self._store, path, memoryview(built.data).cast("B"), mode="create")
            except obstore.exceptions.AlreadyExistsError:
                # Nobody else knows the name: an earlier attempt of this request was stored.
                if obstore.head(self._store, path)["size"] != len(built.data):
                    raise
            if "://" not in self.url:
                _sync(Path(self.url) / path)
        blanks = built.end - built.first - built.records
        return TableFile(path, len(built.data), built.first, built.records, blanks, built.moments)

    def spark_path(self, path: str) -> str:
        """Return a file's URL as Spark's file systems name it."""
        scheme, separator, rest = self.url.partition("://")
        if not separator:
            return f"file://{self.url}/{path}"
        return f"{'s3a' if scheme == 's3' else scheme}://{rest}/{path}"

    def get(self, path: str) -> Any:
        """Return the bytes of a file."""
        obstore = import_obstore()
        with named(self.url):
            return memoryview(obstore.get(self._store, path).bytes())


@contextmanager
def named(url: str, *faults: type[BaseException]) -> Iterator[None]:
    """Turn errors of the store, and `faults` of a library, into a TableError with the URL."""
    try:
        yield
    except (*faults, OSError, import_obstore().exceptions.BaseError) as error:
        raise TableError(f"{url}: {error}") from error


def check_owner(url: str, found: Mapping[str, str], owner: Mapping[str, str]) -> None:
    """Raise TableError if the table's properties name another topic or cluster."""
    for name, wanted in owner.items():
        if found.get(name) != wanted:
            raise TableError(
                f"{url}: {name} is {found.get(name)!r}, not {wanted!r}; "
                "choose another --name or --to"
            )


def owner_properties(cluster: str | None, topic: str) -> dict[str, str]:
    """Return the properties of a table that name its owner; `cluster`: None if it is known."""
    return {_TOPIC: topic} if cluster is None else {_CLUSTER: cluster, _TOPIC: topic}


def check_no_other(url: str, folder: str) -> None:
    """Raise TableError if a table of another format, which has this folder, is at the URL.

    The clean-up of each deletes the files of the other.
    """
    with named(url):
        if any(import_obstore().list(_object_store(url), prefix=folder)):
            raise TableError(f"{url}: a table of another format is there; choose another --name")


def _object_store(url: str) -> Any:
    from obstore.store import LocalStore, from_url

    if "://" not in url:
        return LocalStore(url, mkdir=True)
    # Client options would replace those of the environment.
    return from_url(url, retry_config={"retry_timeout": timedelta(seconds=_TRIES_S)})


def _sync(file: Path) -> None:
    """Have a file on the disk before a commit names it."""
    for path in (file, file.parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
