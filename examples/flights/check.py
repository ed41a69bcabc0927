"""Reference table by pandas, from the files, without Oncelog and Spark; and the differences."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from examples.flights.data import LATE_MINUTES, UNKNOWN, VISIBILITY, WIND, table

KEY = ["origin", "hour"]
FLOATS = ("mean_delay", "late_share", "worst_delay")
TOLERANCE = 1e-9


def expected(flights: Any) -> Any:
    """Return the rows that `job.delays` must make of `data.departures`."""
    rows = flights.assign(hour=flights["scheduled"].dt.floor("h"))
    airlines = pd.read_csv(table("airlines")).set_index("carrier")["name"]
    airports = pd.read_csv(table("airports")).set_index("faa")["name"]
    rows["airline"] = rows["carrier"].map(airlines)
    rows["airport"] = rows["origin"].map(airports)
    rows["destination"] = rows["dest"].map(airports).fillna(rows["dest"])
    rows["number"] = rows["carrier"] + " " + rows["flight"].astype(str)
    rows["late"] = (rows["dep_delay"] > LATE_MINUTES).where(rows["dep_delay"].notna()).astype(float)

    groups = rows.groupby(KEY)
    table_ = groups.agg(
        airport=("airport", "first"),
        flights=("carrier", "size"),
        departed=("dep_delay", "count"),
        mean_delay=("dep_delay", "mean"),
        late_share=("late", "mean"),
    ).reset_index()
    table_["cancelled"] = table_["flights"] - table_.pop("departed")

    order = ["dep_delay", "number", "airline", "destination"]
    worst = rows.dropna(subset="dep_delay").sort_values(order).groupby(KEY)[order].last()
    worst.columns = ["worst_delay", "worst_flight", "worst_airline", "worst_destination"]
    return (
        table_.merge(_weather(), how="left")
        .fillna({"wind": UNKNOWN, "visibility": UNKNOWN})
        .merge(worst.reset_index(), how="left")
    )


def _weather() -> Any:
    weather = pd.read_csv(table("weather"))
    made = weather[["origin"]].assign(hour=pd.to_datetime(weather["time_hour"], utc=True))
    for name, column, classes in (
        ("wind", "wind_speed", WIND),
        ("visibility", "visib", VISIBILITY),
    ):
        ends, names = zip(*classes, strict=True)
        cut = pd.cut(weather[column], [-math.inf, *ends], right=False, labels=names)
        made[name] = cut.astype(object).fillna(UNKNOWN)
    return made


def differences(found: Any, wanted: Any) -> list[str]:
    """Return the faults of `found`, a text for each row and column; empty if there are none.

    Rows may come in any order. Numbers with a fraction may differ by 1e-9.
    """
    wrong = [f"column {name}" for name in set(found.columns) ^ set(wanted.columns)]
    if wrong:
        return sorted(wrong)
    twice = found[found.duplicated(KEY)]
    wrong += [f"{origin} {hour}: twice" for origin, hour in twice[KEY].itertuples(index=False)]
    both = wanted.merge(
        found.drop_duplicates(KEY), on=KEY, how="outer", suffixes=(" wanted", " found"),
        indicator=True, sort=True,
    )  # fmt: skip
    here = {"left_only": "missing", "right_only": "too much"}
    for origin, hour, side in both[[*KEY, "_merge"]].itertuples(index=False):
        if side in here:
            wrong.append(f"{origin} {hour}: {here[side]}")
    both = both[both["_merge"] == "both"]
    for name in [one for one in wanted.columns if one not in KEY]:
        want, got = both[f"{name} wanted"], both[f"{name} found"]
        same = (want - got).abs() <= TOLERANCE if name in FLOATS else want == got
        bad = both[~(same | (want.isna() & got.isna()))]
        columns = [*KEY, f"{name} wanted", f"{name} found"]
        for origin, hour, w, g in bad[columns].itertuples(index=False):
            wrong.append(f"{origin} {hour}: {name} is {g}, must be {w}")
    return wrong


def last_of_each(found: Any) -> tuple[Any, int]:
    """Return the last row of each hour, as update mode writes them, and the number of repeats.

    Each row of an hour counts more flights than the one before it, or it is a repeat.
    """
    again = found.groupby(KEY)["flights"].diff() <= 0
    return found.drop_duplicates(KEY, keep="last"), int(again.sum())


__all__ = ["differences", "expected", "last_of_each"]
