"""Delta table of a topic: its position, its files, and commits of both in one step.

Place in the flow: `run` and `merge` commit here; `verify` and the Spark reader read here. Each
partition of the topic is an application of the table, `oncelog/<topic id>/<partition>`; the version
of its SetTransaction is the next offset. A commit is tried once, as the version after the one that
was read. If it is refused, or its answer is lost, the caller reads the table again and decides by
the positions. Objects are put with If-None-Match under names that are never used again, and never
deleted here: a late commit may name them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit
from uuid import uuid4

from oncelog.errors import FatalError, MissingExtraError
from oncelog.table.layout import PARTITION_COLUMNS, BuiltFile, table_schema
from oncelog.types import ClusterInfo

_CLUSTER: Final = "oncelog.cluster"
_TOPIC: Final = "oncelog.topic"
# By default a lost race is repeated: files that another merge has replaced would be replaced again,
# and their rows be there twice.
RETRIES: Final = 0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CALENDAR_US: Final = 60_000_000_000_000_000  # 1900 years: a time beyond has no statistics
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
    moments: tuple[int, int] = (0, 0)  # lowest and highest timestamp; of files to add

    @property
    def end(self) -> int:
        return self.first + self.records


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


def import_deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
        import obstore
    except ImportError as error:
        raise MissingExtraError("oncelog table", "deltalake or obstore", "table") from error
    del obstore
    return deltalake


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


def storage_options(url: str) -> dict[str, str] | None:
    """Return Delta's options; keys and endpoints come from the environment, as for every tool."""
    return {"aws_conditional_put": "etag"} if urlsplit(url).scheme in ("s3", "s3a") else None


@cache
def _delta_schema() -> Any:
    return import_deltalake().Schema.from_arrow(table_schema())


class DeltaTopic:
    """One version of the table of a topic; `refresh` goes to the newest."""

    def __init__(self, url: str, table: Any) -> None:
        self.url = url
        self._table = table
        self._store = _object_store(url)
        self._files: dict[TablePartition, list[TableFile]] = {}
        self._files_of = -1  # the version

    @classmethod
    def open(cls, url: str, cluster: str | None, topic: str, *, create: bool = False) -> Self:
        """Open the table. Raises TableError if it is missing, or of another topic or cluster.

        `cluster`: None if it was compared before.
        """
        deltalake = import_deltalake()
        options = storage_options(url)
        owner = {_TOPIC: topic} if cluster is None else {_CLUSTER: cluster, _TOPIC: topic}
        with _named(url):
            if not deltalake.DeltaTable.is_deltatable(url, storage_options=options):
                if not create:
                    raise TableError(f"{url}: no table; start `oncelog table run {topic}` first")
                _create(url, options, owner)
            opened = cls(url, deltalake.DeltaTable(url, storage_options=options))
        opened._check(owner)
        return opened

    def _check(self, owner: dict[str, str]) -> None:
        configuration = self._table.metadata().configuration
        for name, wanted in owner.items():
            if configuration.get(name) != wanted:
                raise TableError(
                    f"{self.url}: {name} is {configuration.get(name)!r}, not {wanted!r}; "
                    "choose another --name or --to"
                )
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            raise TableError(f"{self.url}: column mapping is not supported; choose another --name")
        if self._table.schema() != _delta_schema():
            raise TableError(
                f"{self.url}: the columns are not those of `oncelog table`; choose another --name"
            )

    def refresh(self) -> None:
        with _named(self.url):
            self._table.update_incremental()

    @property
    def version(self) -> int:
        return int(self._table.version())

    def position(self, place: TablePartition) -> int | None:
        """Return the next offset of a partition; None: the table has nothing of it."""
        found = self._table.transaction_version(place.application)
        if found is None and self.files(place):
            raise TableError(
                f"{self.url}: the position {place.application} is gone, but its files are there: "
                "unset delta.setTransactionRetentionDuration, and choose another --name"
            )
        return None if found is None else int(found)

    def places(self) -> list[TablePartition]:
        """Return the partitions that have files, of all topics that had the name."""
        self._read_files()
        return sorted(self._files)

    def files(self, place: TablePartition) -> list[TableFile]:
        """Return the files of a partition in offset order."""
        self._read_files()
        return self._files.get(place, [])

    def _read_files(self) -> None:
        if self._files_of != self.version:
            self._files = _files(self._table.get_add_actions(flatten=True))
            self._files_of = self.version

    def put(self, place: TablePartition, built: BuiltFile) -> TableFile:
        """Store a file under a new name; no version of the table has it yet."""
        import obstore

        path = place.new_path(built.first)
        with _named(self.url):
            try:
                obstore.put(self._store, path, memoryview(built.data).cast("B"), mode="create")
            except obstore.exceptions.AlreadyExistsError:
                # Nobody else knows the name: an earlier attempt of this request was stored.
                if obstore.head(self._store, path)["size"] != len(built.data):
                    raise
            if "://" not in self.url:
                _sync(Path(self.url) / path)
        return TableFile(path, len(built.data), built.first, built.records, built.moments)

    def spark_path(self, path: str) -> str:
        """Return a file's URL as Spark's file systems name it."""
        scheme, separator, rest = self.url.partition("://")
        if not separator:
            return f"file://{self.url}/{path}"
        return f"{'s3a' if scheme == 's3' else scheme}://{rest}/{path}"

    def get(self, path: str) -> Any:
        """Return the bytes of a file."""
        import obstore

        with _named(self.url):
            return memoryview(obstore.get(self._store, path).bytes())

    def commit(self, files: Iterable[tuple[TablePartition, TableFile]]) -> None:
        """Add files of any partitions, which go on at their positions, and move the positions.

        Raises CommitUnknownError, also if this version has other positions.
        """
        transaction = import_deltalake().transaction
        adds, ends = [], dict[TablePartition, int]()
        for place, file in files:
            at = ends.get(place, self.position(place))
            if at not in (None, file.first):
                raise CommitUnknownError(f"{self.url}: {place} is at {at}, not {file.first}")
            adds.append(_add(place, file, data_change=True))
            ends[place] = file.end
        self._commit(
            adds, [transaction.Transaction(place.application, end) for place, end in ends.items()]
        )

    def replace(self, place: TablePartition, old: Sequence[TableFile], new: TableFile) -> None:
        """Put one file in the place of others with the same rows. Raises CommitUnknownError."""
        transaction = import_deltalake().transaction
        now = time.time_ns() // 1_000_000
        removes = [
            transaction.RemoveAction(file.path, False, now, file.size, place.values) for file in old
        ]
        self._commit([*removes, _add(place, new, data_change=False)], [])

    def _commit(self, actions: list[Any], transactions: list[Any]) -> None:
        deltalake = import_deltalake()
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                _delta_schema(),
                partition_by=list(PARTITION_COLUMNS),
                commit_properties=deltalake.CommitProperties(
                    max_commit_retries=RETRIES, app_transactions=transactions
                ),
            )
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise CommitUnknownError(f"{self.url}: {error}") from error


def _create(url: str, options: dict[str, str] | None, owner: dict[str, str]) -> None:
    deltalake = import_deltalake()
    if options is None and "://" not in url:
        Path(url).mkdir(parents=True, exist_ok=True)
    try:
        deltalake.DeltaTable.create(
            url,
            _delta_schema(),
            partition_by=list(PARTITION_COLUMNS),
            configuration={**owner, "delta.appendOnly": "true"},
            raise_if_key_not_exists=False,
            storage_options=options,
        )
    except deltalake.exceptions.DeltaError:
        # Another instance may have created it in the meantime.
        if not deltalake.DeltaTable.is_deltatable(url, storage_options=options):
            raise


def _object_store(url: str) -> Any:
    from obstore.store import LocalStore, from_url

    if "://" not in url:
        return LocalStore(url, mkdir=True)
    # Client options would replace those of the environment.
    return from_url(url, retry_config={"retry_timeout": timedelta(seconds=_TRIES_S)})


def _files(actions: Any) -> dict[TablePartition, list[TableFile]]:
    import pyarrow as pa

    table = pa.table(actions)
    found: dict[TablePartition, list[TableFile]] = {}
    if table.num_rows:
        names = [f"partition.{name}" for name in PARTITION_COLUMNS]
        names += ["path", "size_bytes", "min.offset", "num_records"]
        columns = [table[name].to_pylist() for name in names]
        for topic_id, partition, *file in zip(*columns, strict=True):
            found.setdefault(TablePartition(topic_id, partition), []).append(TableFile(*file))
    return {place: sorted(files, key=lambda file: file.first) for place, files in found.items()}


def _add(place: TablePartition, file: TableFile, *, data_change: bool) -> Any:
    lowest: dict[str, int | str] = {"offset": file.first}
    highest: dict[str, int | str] = {"offset": file.end - 1}
    low, high = file.moments
    if abs(low) < _CALENDAR_US and abs(high) < _CALENDAR_US:
        lowest["timestamp"] = _iso(low)
        highest["timestamp"] = _iso(high + 999)
    stats = {
        "numRecords": file.records,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": dict.fromkeys(lowest, 0),
    }
    return import_deltalake().transaction.AddAction(
        path=file.path,
        size=file.size,
        partition_values=place.values,
        modification_time=time.time_ns() // 1_000_000,
        data_change=data_change,
        stats=json.dumps(stats),
    )


def _iso(moment_us: int) -> str:
    """Return a time in whole milliseconds, as Delta's statistics have it."""
    moment = _EPOCH + timedelta(milliseconds=moment_us // 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _sync(file: Path) -> None:
    """Have a file on the disk before a commit names it."""
    for path in (file, file.parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Turn errors of the store into a TableError with the table's URL."""
    exceptions = import_deltalake().exceptions
    import obstore

    try:
        yield
    except (exceptions.DeltaError, OSError, obstore.exceptions.BaseError) as error:
        raise TableError(f"{url}: {error}") from error


__all__ = [
    "CommitUnknownError",
    "DeltaTopic",
    "TableError",
    "TableFile",
    "TablePartition",
    "import_deltalake",
    "owner_of",
    "storage_options",
    "table_url",
]
