"""Format of a table, and where it is: Delta, or Iceberg in a catalog.

Place in the flow: `run` and `verify` open tables here.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from oncelog.errors import ConfigError
from oncelog.table.delta import DeltaTopic, import_deltalake
from oncelog.table.files import TopicTable, import_obstore, table_url
from oncelog.table.iceberg import IcebergTopic, catalog_of, import_pyiceberg

FORMATS: Final = ("delta", "iceberg")


class TablePlace(NamedTuple):
    """Folder of tables. `catalog`: of pyiceberg's configuration; None: a file in the folder."""

    to: str
    table_format: str = "delta"
    catalog: str | None = None

    def check(self) -> None:
        """Raise ConfigError or MissingExtraError if no table can be there."""
        import_obstore()
        if self.table_format == "delta":
            import_deltalake()
            if self.catalog is not None:
                raise ConfigError("catalog: only Iceberg tables are in one; omit it", "catalog")
        elif self.table_format == "iceberg":
            import_pyiceberg()
        else:
            raise ConfigError(
                f"table_format: {self.table_format} is none of {', '.join(FORMATS)}", "table_format"
            )

    def url(self, name: str) -> str:
        return table_url(self.to, name)

    def group(self, name: str | None) -> str:
        """Return the group of all instances that write the same tables."""
        place = self.url(name or "")
        if self.table_format != "delta":
            place += f" {self.table_format}"
        return f"table-{hashlib.sha256(place.encode()).hexdigest()[:16]}"

    def open(self, name: str, owner: str, topic: str, *, create: bool = False) -> TopicTable:
        """Open the table `name` of a topic. Raises TableError, as the format's `open` does."""
        url = self.url(name)
        if self.table_format == "delta":
            return DeltaTopic.open(url, owner, topic, create=create)
        catalog = catalog_of(url.rpartition("/")[0], self.catalog)
        return IcebergTopic.open(url, catalog, owner, topic, create=create)
