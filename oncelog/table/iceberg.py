"""Iceberg table of a topic, in a catalog.

The next offset of each partition of the topic is a property of the table,
`oncelog.position.<topic id>.<partition>`, and is set in the commit that adds the rows. The catalog
refuses a commit whose snapshot is not the table's newest. The commit goes to the catalog itself:
pyiceberg's own way repeats a refused commit on top of the newest snapshot, so that two writers of
the same offsets both succeed, and deletes files of a commit that may be stored after all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from oncelog.errors import ConfigError, MissingExtraError
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

NAMESPACE: Final = "oncelog"  # of the catalog
_FILE: Final = "catalog.db"  # of a folder's own catalog
_POSITION: Final = "oncelog.position"
_MAPPING: Final = "schema.name-mapping.default"
# Variables of every other tool, which pyiceberg's files do not know.
_VARIABLES: Final = {"s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION"}
# Seconds. Arrow's own 1 and 3 end a run when a store, or this machine, is busy for a moment.
_PATIENCE: Final = {"s3.connect-timeout": "10", "s3.request-timeout": "60"}
_PROPERTIES: Final = {
    # Each commit writes a manifest, and all metadata anew.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


def import_pyiceberg() -> Any:
    try:
        import pyiceberg.catalog
        import pyiceberg.exceptions
        import pyiceberg.manifest
        import sqlalchemy.exc
    except ImportError as error:
        raise MissingExtraError(
            "oncelog table --table-format iceberg", "pyiceberg", "iceberg"
        ) from error
    del sqlalchemy
    return pyiceberg


def catalog_of(to: str, name: str | None) -> Any:
    """Return the catalog `name` of pyiceberg's configuration, or that of the folder `to`."""
    catalog = import_pyiceberg().catalog
    if name is not None:
        with _named(name):
            loaded = catalog.load_catalog(name)
        given = {key: os.environ[name] for key, name in _VARIABLES.items() if name in os.environ}
        for key, value in {**_PATIENCE, **given}.items():
            loaded.properties.setdefault(key, value)
        return loaded
    if "://" in to:
        raise ConfigError(
            f"catalog: Iceberg tables in {to} need a catalog; name one of pyiceberg's "
            "configuration, or choose --table-format delta",
            "catalog",
        )
    with _named(to):
        Path(to).mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{to}/{_FILE}"
        properties = {"type": "sql", "uri": uri, "warehouse": f"file://{to}"}
        try:
            return catalog.load_catalog("oncelog", **properties)
        except _sql_error():  # another instance may have created the file in the meantime
            return catalog.load_catalog("oncelog", **properties)


class IcebergTopic(TopicTable):
    def __init__(self, url: str, table: Any) -> None:
        super().__init__(url)
        self._table = table
        self._manifests: dict[str, list[tuple[TablePartition, TableFile]]] = {}

    @classmethod
    def open(
        cls, url: str, catalog: Any, cluster: str, topic: str, *, create: bool = False
    ) -> Self:
        """Open the table. Raises TableError if it is missing, or of another topic or cluster."""
        exceptions = import_pyiceberg().exceptions
        owner = owner_properties(cluster, topic)
        identifier = (NAMESPACE, url.rpartition("/")[2])
        with _named(url):
            try:
                table = catalog.load_table(identifier)
            except exceptions.NoSuchTableError:
                if not create:
                    text = f"{url}: no table; start `oncelog table run {topic}` first"
                    raise TableError(text) from None
                check_no_other(url, "_delta_log")
                table = _create(catalog, identifier, url, owner)
        check_owner(url, table.properties, owner)
        if table.schema().as_arrow() != _schema().as_arrow():
            raise TableError(
                f"{url}: the columns are not those of `oncelog table`; choose another --name"
            )
        location = table.location().removeprefix("file://")
        if location != url:
            raise TableError(f"{url}: the catalog's table is at {location}; choose another --name")
        return cls(url, table)

    def refresh(self) -> None:
        with _named(self.url):
            self._table.refresh()

    @property
    def version(self) -> int:
        return int(self._table.metadata.last_sequence_number)

    @property
    def state(self) -> object:
        return self._table.metadata_location

    def _position(self, place: TablePartition) -> int | None:
        found = self._table.properties.get(_position_key(place))
        return None if found is None else int(found)

    def _list(self) -> dict[TablePartition, list[TableFile]]:
        found: dict[TablePartition, list[TableFile]] = {}
        snapshot = self._table.current_snapshot()
        with _named(self.url):
            manifests = [] if snapshot is None else snapshot.manifests(self._table.io)
            self._manifests = {
                one.manifest_path: self._manifests.get(one.manifest_path) or self._entries(one)
                for one in manifests
            }
        for entries in self._manifests.values():
            for place, file in entries:
                found.setdefault(place, []).append(file)
        return found

    def _entries(self, manifest: Any) -> list[tuple[TablePartition, TableFile]]:
        from pyiceberg.conversions import from_bytes
        from pyiceberg.types import LongType

        offset = self._table.schema().find_field("offset").field_id
        entries = []
        for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
            file = entry.data_file
            path = file.file_path.removeprefix("file://").removeprefix(f"{self.url}/")
            first = from_bytes(LongType(), file.lower_bounds[offset])
            blanks = from_bytes(LongType(), file.upper_bounds[offset]) + 1 - first
            blanks -= file.record_count
            place = TablePartition(file.partition[0], file.partition[1])
            found = TableFile(path, file.file_size_in_bytes, first, file.record_count, blanks)
            entries.append((place, found))
        return entries

    def _add(
        self,
        files: Sequence[tuple[TablePartition, TableFile]],
        positions: Mapping[TablePartition, int],
    ) -> None:
        try:
            self._commit(self._transaction(files, positions))
        except _faults() as error:
            raise CommitUnknownError(f"{self.url}: {error}") from error

    def _transaction(
        self,
        files: Sequence[tuple[TablePartition, TableFile]],
        positions: Mapping[TablePartition, int],
    ) -> Any:
        properties = {_position_key(place): str(end) for place, end in positions.items()}
        if _MAPPING not in self._table.properties:
            properties[_MAPPING] = self._table.schema().name_mapping.model_dump_json()
        transaction = self._table.transaction()
        with transaction.update_snapshot().merge_append() as append:
            for place, file in files:
                append.append_data_file(self._data_file(place, file))
        transaction.set_properties(properties)
        return transaction

    def _commit(self, transaction: Any) -> None:
        from pyiceberg.table.update import AssertTableUUID

        table = self._table
        same = AssertTableUUID(uuid=table.metadata.table_uuid)
        table.catalog.commit_table(table, (*transaction._requirements, same), transaction._updates)

    def _data_file(self, place: TablePartition, file: TableFile) -> Any:
        from pyiceberg.conversions import to_bytes
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        bounds = {"offset": (file.first, file.end - 1), "timestamp": file.moments}
        fields = {name: self._table.schema().find_field(name) for name in bounds}
        lowest, highest = (
            {
                field.field_id: to_bytes(field.field_type, bounds[name][side])
                for name, field in fields.items()
            }
            for side in (0, 1)
        )
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{_location(self.url)}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(place.topic_id, place.partition),
            record_count=file.records,
            file_size_in_bytes=file.size,
            null_value_counts={field.field_id: 0 for field in fields.values()},
            lower_bounds=lowest,
            upper_bounds=highest,
        )
        made.spec_id = self._table.spec().spec_id
        return made


def _location(url: str) -> str:
    return url if "://" in url else f"file://{url}"


def _position_key(place: TablePartition) -> str:
    return f"{_POSITION}.{place.topic_id}.{place.partition}"


def _create(catalog: Any, identifier: tuple[str, str], url: str, owner: dict[str, str]) -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    try:
        catalog.create_namespace_if_not_exists(identifier[0])
    except _sql_error():  # another instance may have created it in the meantime
        if not catalog.namespace_exists(identifier[0]):
            raise
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "topic_id"),
        PartitionField(2, 1001, IdentityTransform(), "partition"),
    )
    return catalog.create_table_if_not_exists(
        identifier,
        _schema(),
        location=_location(url),
        partition_spec=spec,
        properties={**_PROPERTIES, **owner},
    )


def _schema() -> Any:
    """Return the table's columns; a catalog may give them other ids."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        IntegerType,
        ListType,
        LongType,
        NestedField,
        StringType,
        StructType,
        TimestamptzType,
    )

    def optional(number: int, name: str, kind: Any) -> Any:
        return NestedField(number, name, kind, required=False)

    header = StructType(optional(13, "key", StringType()), optional(14, "value", BinaryType()))
    kinds = {
        "topic_id": LongType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "key": BinaryType(),
        "value": BinaryType(),
        "timestamp": TimestamptzType(),
        "headers": ListType(12, header, element_required=False),
        "append_time": TimestamptzType(),
        "producer_id": LongType(),
        "epoch": IntegerType(),
        "sequence": LongType(),
    }
    return Schema(*(optional(n, name, kind) for n, (name, kind) in enumerate(kinds.items(), 1)))


def _faults() -> tuple[type[BaseException], ...]:
    """Return all errors by which pyiceberg, its catalogs and files fail."""
    exceptions = vars(import_pyiceberg().exceptions).values()
    theirs = [one for one in exceptions if isinstance(one, type) and issubclass(one, Exception)]
    return (*theirs, _sql_error(), OSError)


def _sql_error() -> Any:
    import sqlalchemy.exc

    return sqlalchemy.exc.SQLAlchemyError


def _named(url: str) -> Any:
    return named(url, *_faults(), ValueError)
