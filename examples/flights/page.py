"""Pictures of the table and of the run as PNG, and a page around them."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from examples.flights.data import LATE_MINUTES, UNKNOWN, VISIBILITY, WIND

if TYPE_CHECKING:
    from examples.flights.run import Outcome

ZONE = "America/New_York"
HOURS = range(5, 24)  # nothing leaves New York by night, but for a handful of flights
DARKEST = 90  # minutes of mean delay, in the heat map
BIN_S = 0.5
COLOURS = {"EWR": "#0072b2", "JFK": "#d55e00", "LGA": "#009e73"}
GREY, DARK, RED = "#9aa5b1", "#1f2933", "#d64545"


def write(rows: Any, outcome: Outcome, directory: Path) -> None:
    """Draw three pictures of the table `rows` and of the run, and write index.html."""
    rows = rows.assign(
        local=rows["hour"].dt.tz_convert(ZONE), departed=rows["flights"] - rows["cancelled"]
    )
    _heat_map(rows).savefig(directory / "delays.png", dpi=110)
    _causes(rows).savefig(directory / "causes.png", dpi=110)
    _run(outcome).savefig(directory / "run.png", dpi=110)
    (directory / "index.html").write_text(_page(rows, outcome), encoding="utf-8")


def _figure(title: str, height: float) -> Any:
    figure = Figure(figsize=(15, height), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.005, ha="left", fontsize=15, fontweight="bold", color=DARK)
    return figure


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(color=GREY, labelcolor=DARK)
    axes.set_axisbelow(True)


def _dates(axis: Any) -> None:
    locator = AutoDateLocator(minticks=6, maxticks=14)  # type: ignore[no-untyped-call]
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


# --- the table ---------------------------------------------------------------------------


def _heat_map(rows: Any) -> Any:
    """Draw a cell for each airport and hour: one row of the table each."""
    figure = _figure("Mean departure delay in each hour of each airport", 8.4)
    airports = sorted(rows["origin"].unique())
    panels = np.atleast_1d(figure.subplots(len(airports), 1, sharex=True))
    image = None
    for axes, origin in zip(panels, airports, strict=True):
        own = rows[rows["origin"] == origin]
        cells = own.pivot_table(
            index=own["local"].dt.hour,
            columns=own["local"].dt.tz_localize(None).dt.normalize(),
            values="mean_delay",
        )
        days = pd.date_range(cells.columns.min(), cells.columns.max())
        cells = cells.reindex(index=HOURS, columns=days)
        edges = [*days, days[-1] + pd.Timedelta(days=1)]
        image = axes.pcolormesh(
            edges, [hour - 0.5 for hour in (*HOURS, HOURS.stop)], cells.to_numpy(),
            cmap="magma_r", vmin=0, vmax=DARKEST, rasterized=True,
        )  # fmt: skip
        axes.set_title(f"{origin}  {own['airport'].iloc[0]}", loc="left", fontweight="bold")
        axes.set_yticks([6, 9, 12, 15, 18, 21], [f"{h}:00" for h in (6, 9, 12, 15, 18, 21)])
        axes.invert_yaxis()
        axes.set_facecolor("#eef1f4")
        _plain(axes)
        _dates(axes.xaxis)
    bar = figure.colorbar(image, ax=panels, extend="both", shrink=0.6, pad=0.01)
    bar.set_label("mean departure delay, minutes")
    bar.outline.set_visible(False)
    return figure


def _causes(rows: Any) -> Any:
    """Draw the delay by the hour of the day, by wind and by visibility."""
    figure = _figure("Mean departure delay by hour of the day, wind and visibility", 5)
    by_hour, by_wind, by_visibility = figure.subplots(1, 3, width_ratios=[1.2, 1, 1])
    for origin, own in rows.groupby("origin"):
        means = _mean_delay(own, own["local"].dt.hour).reindex(HOURS)
        by_hour.plot(means.index, means, color=COLOURS.get(origin, DARK), lw=2)
        last = means.dropna()
        by_hour.annotate(
            origin, (last.index[-1], last.iloc[-1]), (6, 0), textcoords="offset points",
            color=COLOURS.get(origin, DARK), va="center", fontweight="bold",
        )  # fmt: skip
    by_hour.set_title("by hour of the day (New York)", loc="left", fontweight="bold")
    by_hour.set_ylabel("mean departure delay, minutes")
    by_hour.set_xticks([6, 9, 12, 15, 18, 21], [f"{h}:00" for h in (6, 9, 12, 15, 18, 21)])
    by_hour.grid(axis="y", color="#e4e7eb")
    _plain(by_hour)
    _bars(by_wind, rows, "wind", [name for _, name in WIND])
    _bars(by_visibility, rows, "visibility", [name for _, name in VISIBILITY])
    return figure


def _bars(axes: Any, rows: Any, column: str, names: list[str]) -> None:
    known = rows[rows[column] != UNKNOWN]
    delay = _mean_delay(known, known[column]).reindex(names).dropna()
    late = _mean(known, known["late_share"], known[column])
    flights = known.groupby(column)["departed"].sum()
    axes.barh(delay.index, delay, color="#486581", height=0.7)
    for name, value in delay.items():
        axes.annotate(
            f"{value:.0f} min, {late[name]:.0%} late", (max(value, 0), name), (5, 6),
            textcoords="offset points", va="center", color=DARK,
        )  # fmt: skip
        axes.annotate(
            f"{flights[name]:,} flights", (max(value, 0), name), (5, -7),
            textcoords="offset points", va="center", color="#627d98", fontsize=8,
        )  # fmt: skip
    axes.set_title(f"by {column}", loc="left", fontweight="bold")
    axes.set_xlim(min(0, delay.min()), delay.max() * 1.55)
    axes.set_xlabel("mean departure delay, minutes")
    axes.invert_yaxis()
    _plain(axes)


def _mean(rows: Any, values: Any, by: Any) -> Any:
    """Return the mean of hourly means, each with the weight of its flights."""
    weights = rows["departed"].where(values.notna(), 0)
    return (values * weights).groupby(by).sum() / weights.groupby(by).sum()


def _mean_delay(rows: Any, by: Any) -> Any:
    return _mean(rows, rows["mean_delay"], by)


# --- the run -----------------------------------------------------------------------------


def _run(outcome: Outcome) -> Any:
    """Draw records per second on both sides, and the date that each side has reached."""
    figure = _figure("The run: how fast, and how far in time", 6.6)
    rate, progress = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1])
    start = outcome.moments[0].at
    at = np.array([moment.at - start for moment in outcome.moments])
    acknowledged = np.array([moment.acknowledged for moment in outcome.moments])
    grid = np.arange(0, at[-1] + BIN_S, BIN_S)
    rates = np.diff(np.interp(grid, at, acknowledged)) / BIN_S
    rate.stairs(rates, grid, fill=True, color="#9fb3c8", label="acknowledged by the nodes")
    triggers = [one for one in outcome.triggers if one["at"] > start]
    ends = np.array([one["at"] - start for one in triggers])
    read = np.array([one["rows"] for one in triggers])
    if len(ends) > 1:
        spans = np.diff(ends, prepend=0)
        rate.step(ends, read / spans, where="pre", color=DARK, lw=1.5, label="computed by Spark")
    rate.set_ylabel("records/s")
    rate.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

    times = [pd.Timestamp(moment.event_time, unit="s") for moment in outcome.moments]
    progress.plot(at, times, color="#829ab1", lw=2, label="sent")
    marks = [(one["at"] - start, pd.Timestamp(one["watermark"] or 0)) for one in triggers]
    marks = [(x, mark.tz_localize(None)) for x, mark in marks if mark.year > 1970]
    if marks:
        progress.step(
            *zip(*marks, strict=True), where="post", color=DARK, lw=1.5,
            label="Spark's watermark: the hours before it are in the table",
        )  # fmt: skip
    progress.set_ylabel("time in the stream")
    _dates(progress.yaxis)
    progress.set_xlabel("seconds since the clock was started")
    for axes in (rate, progress):
        for number, (when, _) in enumerate(outcome.kills):
            label = "something is killed" if axes is rate and number == 0 else None
            axes.axvline(when - start, color=RED, lw=1.2, label=label)
        axes.grid(axis="y", color="#e4e7eb")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1.06), frameon=False, ncols=3)
        _plain(axes)
    for when, what in outcome.kills:
        rate.annotate(
            what, (when - start, 1), (0, 3), xycoords=("data", "axes fraction"),
            textcoords="offset points", color=RED, ha="center", fontsize=9,
        )  # fmt: skip
    return figure


# --- the page ----------------------------------------------------------------------------

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 1180px;
       margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; } img { width: 100%; margin-top: 2rem; }
.sub, .note { color: #52606d; }
.cards { display: grid; grid-template-columns: repeat(4, 1fr); gap: 12px; }
.card { background: #f5f7fa; border-radius: 8px; padding: 10px 14px; }
.card b { display: block; font-size: 1.5rem; }
.good b { color: #0b7a4b; } .bad b { color: #c52828; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th { text-align: left; border-bottom: 2px solid #9aa5b1; }
td, th { padding: 4px 12px 4px 0; } td { border-bottom: 1px solid #e4e7eb; }
.number { text-align: right; }
"""
_WHY_SAME = """<p class="note">What waits while a partition has no leader is stored when it has one
again, once and in order. Spark's watermark is that of the slowest partition, so nothing is
late.</p>"""


def _page(rows: Any, outcome: Outcome) -> str:
    seconds = outcome.moments[-1].at - outcome.moments[0].at
    cards = [
        ("flights sent", f"{outcome.records:,}", None),
        ("airport-hours in the table", f"{outcome.rows:,}", None),
        ("differences from pandas", f"{len(outcome.differences):,}", not outcome.differences),
        ("dropped as late by Spark", f"{outcome.dropped:,}", not outcome.dropped),
        ("killed", f"{len(outcome.kills):,}", None),
        ("batches sent again", f"{outcome.figures['batches_retried']:,}", None),
        ("of them stored already", f"{outcome.figures['duplicates']:,}", None),
        ("seconds for the replay", f"{seconds:,.0f}", None),
    ]
    boxes = "".join(
        f'<div class="card {"" if good is None else "good" if good else "bad"}">'
        f"<b>{value}</b>{html.escape(name)}</div>"
        for name, value, good in cards
    )
    wrong = "".join(f"<li>{html.escape(text)}</li>" for text in outcome.differences[:20])
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Flights through Oncelog and Spark</title>
<style>{_STYLE}</style>
<h1>A year of departures through Oncelog and Spark</h1>
<p class="sub">The flights that left New York's airports in 2013, streamed in the order in which
they were due{", while nodes and Spark's processes are killed" if outcome.kills else ""}.
Spark reads the topic at the same time, and writes one row for each airport and hour. Then
pandas makes the same table of the files.</p>
<div class="cards">{boxes}</div>
{f"<h2>Differences</h2><ul>{wrong}</ul>" if wrong else ""}
<img src="delays.png" alt="Heat maps of the mean delay, one for each airport">
<p class="note">Each cell is a row of the table; grey: nothing left. Time is New York's.</p>
<img src="causes.png" alt="Mean delay by hour of the day, wind and visibility">
<p class="note">Late: more than {LATE_MINUTES} minutes.</p>
<img src="run.png" alt="Records per second, and the progress in event time">
{"" if outcome.differences else _WHY_SAME}
<h2>The worst hours</h2>
{_worst_hours(rows)}
</html>
"""


def _worst_hours(rows: Any) -> str:
    """Return the ten largest mean delays among hours with at least ten departures."""
    worst = rows[rows["departed"] >= 10].nlargest(10, "mean_delay")
    lines = [
        "<tr><td>{}</td><td>{}</td><td class=number>{}</td><td class=number>{:.0f} min</td>"
        "<td>{}, {}</td><td>{} ({}) to {}, {:.0f} min</td></tr>".format(
            html.escape(row.airport), f"{row.local:%d %b %H:00}", row.departed, row.mean_delay,
            row.wind, row.visibility, row.worst_flight, html.escape(row.worst_airline),
            html.escape(row.worst_destination), row.worst_delay,
        )
        for row in worst.itertuples()
    ]  # fmt: skip
    return (
        "<table><tr><th>airport<th>hour<th class=number>departures<th class=number>mean delay"
        f"<th>wind, visibility<th>latest flight</tr>{''.join(lines)}</table>"
    )


__all__ = ["write"]
