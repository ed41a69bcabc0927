"""Delta table of a topic.

Each partition of the topic is an application of the table, `oncelog/<topic id>/<partition>`; the
version of its SetTransaction is the next offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from oncelog.errors import MissingExtraError
from oncelog.table.files import (
    CommitUnknownError,
    TableError,
    TableFile,
    TablePartition,
    TopicTable,
    check_no_other,
    check_owner,
    named,
    owner_properties,
)
from oncelog.table.layout import PARTITION_COLUMNS, table_schema

# By default a lost race is repeated: files that another merge has replaced would be replaced again,
# and their rows be there twice.
RETRIES: Final = 0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CALENDAR_US: Final = 60_000_000_000_000_000  # 1900 years: a time beyond has no statistics


def import_deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError as error:
        raise MissingExtraError("oncelog table", "deltalake", "table") from error
    return deltalake


def storage_options(url: str) -> dict[str, str] | None:
    """Return Delta's options; keys and endpoints come from the environment, as for every tool."""
    return {"aws_conditional_put": "etag"} if urlsplit(url).scheme in ("s3", "s3a") else None


@cache
def _delta_schema() -> Any:
    return import_deltalake().Schema.from_arrow(table_schema())


class DeltaTopic(TopicTable):
    merges = True

    def __init__(self, url: str, table: Any) -> None:
        super().__init__(url)
        self._table = table

    @classmethod
    def open(cls, url: str, cluster: str | None, topic: str, *, create: bool = False) -> Self:
        """Open the table. Raises TableError if it is missing, or of another topic or cluster.

        `cluster`: None if it was compared before.
        """
        deltalake = import_deltalake()
        options = storage_options(url)
        owner = owner_properties(cluster, topic)
        with _named(url):
            if not deltalake.DeltaTable.is_deltatable(url, storage_options=options):
                if not create:
                    raise TableError(f"{url}: no table; start `oncelog table run {topic}` first")
                check_no_other(url, "metadata")
                _create(url, options, owner)
            opened = cls(url, deltalake.DeltaTable(url, storage_options=options))
        opened._check(owner)
        return opened

    def _check(self, owner: dict[str, str]) -> None:
        configuration = self._table.metadata().configuration
        check_owner(self.url, configuration, owner)
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

    def _position(self, place: TablePartition) -> int | None:
        found = self._table.transaction_version(place.application)
        return None if found is None else int(found)

    def _list(self) -> dict[TablePartition, list[TableFile]]:
        import pyarrow as pa

        table = pa.table(self._table.get_add_actions(flatten=True))
        found: dict[TablePartition, list[TableFile]] = {}
        if table.num_rows:
            names = [f"partition.{name}" for name in PARTITION_COLUMNS]
            names += ["path", "size_bytes", "min.offset", "num_records", "max.offset"]
            columns = [table[name].to_pylist() for name in names]
            for topic_id, partition, path, size, first, records, last in zip(*columns, strict=True):
                file = TableFile(path, size, first, records, last + 1 - first - records)
                found.setdefault(TablePartition(topic_id, partition), []).append(file)
        return found

    def _add(
        self,
        files: Sequence[tuple[TablePartition, TableFile]],
        positions: Mapping[TablePartition, int],
    ) -> None:
        transaction = import_deltalake().transaction.Transaction
        self._commit(
            [_added(place, file, data_change=True) for place, file in files],
            [transaction(place.application, end) for place, end in positions.items()],
        )

    def replace(self, place: TablePartition, old: Sequence[TableFile], new: TableFile) -> None:
        """Put one file in the place of others with the same rows. Raises CommitUnknownError."""
        transaction = import_deltalake().transaction
        now = time.time_ns() // 1_000_000
        removes = [
            transaction.RemoveAction(file.path, False, now, file.size, place.values) for file in old
        ]
        self._commit([*removes, _added(place, new, data_change=False)], [])

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


def _added(place: TablePartition, file: TableFile, *, data_change: bool) -> Any:
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


def _named(url: str) -> Any:
    return named(url, import_deltalake().exceptions.DeltaError)
