"""Report of the experiment: table, plot and JSON.

Place in the flow: the last step; `__main__` prints the table and names the files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.experiment.plan import BROKER, CONNECTIONS, Outcome

OFF, ON = "#b3202a", "#1b7a35"
PLOT_INCHES = (12, 9)
HEADINGS = (
    "linger",
    "idempotence",
    "sent",
    "acknowledged",
    "duplicates",
    "lost",
    "out of order",
    "connection kills",
    "broker kills",
    "records/s",
    "time",
)


def cells(outcome: Outcome) -> tuple[str, ...]:
    """Builds one row, in the order of HEADINGS."""
    plan, found = outcome.plan, outcome.found
    return (
        f"{plan.linger_ms} ms",
        plan.switch,
        f"{plan.records:,}",
        f"{outcome.acknowledged:,}",
        f"{found.duplicates:,}",
        f"{found.lost:,}",
        f"{found.disordered:,}",
        f"{outcome.count(CONNECTIONS):,}",
        f"{outcome.count(BROKER):,}",
        f"{outcome.acknowledged / outcome.seconds:,.0f}",
        f"{outcome.seconds:.0f} s",
    )


def table(outcomes: Sequence[Outcome]) -> Table:
    """Builds the terminal's table; wrong values are red."""
    made = Table(title="Integers sent while connections and brokers are killed")
    for heading in HEADINGS:
        made.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        made.add_row(*cells(outcome), style="bold red" if outcome.faults() else "")
    return made


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Builds the same table for a README."""
    rows = [HEADINGS, tuple("---:" for _ in HEADINGS), *(cells(one) for one in outcomes)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Writes the table, the report and the plot; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("table.md", "report.json", "plot.png")]
    paths[0].write_text(markdown(outcomes), encoding="utf-8")
    faults = [fault for one in outcomes for fault in one.faults()]
    said = {"good": not faults, "faults": faults, "runs": [one.to_json() for one in outcomes]}
    paths[1].write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    plot(outcomes, paths[2])
    return paths


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Plots the throughput of each run with its kills, and below how many duplicates there are."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = (len(outcomes) + 1) // 2
    figure = pyplot.figure(figsize=PLOT_INCHES, layout="constrained")
    grid = figure.add_gridspec(rows + 1, 2, height_ratios=[*[2] * rows, 1])
    shared: Any = None
    for place, outcome in enumerate(outcomes):
        axes = figure.add_subplot(grid[place // 2, place % 2], sharey=shared)
        shared = shared or axes
        _throughput(axes, outcome)
    shared.set_ylim(bottom=0)
    _duplicates(figure.add_subplot(grid[rows, :]), outcomes)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _throughput(axes: Any, outcome: Outcome) -> None:
    colour = ON if outcome.plan.idempotent else OFF
    pairs = list(zip(outcome.samples, outcome.samples[1:], strict=False))
    times = [end for _, (end, _) in pairs]
    rates = [(after - before) / max(end - at, 1e-3) for (at, before), (end, after) in pairs]
    for kill in outcome.kills:
        broker = kill.what == BROKER
        axes.axvline(kill.at, color="#222" if broker else "#ccc", linewidth=1.6 if broker else 0.8)
        if broker:
            where = ("data", "axes fraction")
            text = f" node {kill.hit} killed"
            axes.annotate(text, (kill.at, 0.97), xycoords=where, fontsize=7, va="top", clip_on=True)
    axes.plot(times, rates, color=colour, linewidth=1.1)
    axes.set_xlim(0, outcome.seconds)
    axes.set_title(f"{outcome.plan.name}: {outcome.found.duplicates:,} duplicates", fontsize=10)
    axes.set_xlabel("seconds (grey: all client connections killed)", fontsize=8)
    axes.set_ylabel("acknowledged records/s", fontsize=8)
    axes.tick_params(labelsize=8)


def _duplicates(axes: Any, outcomes: Sequence[Outcome]) -> None:
    names = [outcome.plan.name for outcome in outcomes]
    counts = [outcome.found.duplicates for outcome in outcomes]
    colours = [ON if outcome.plan.idempotent else OFF for outcome in outcomes]
    bars = axes.barh(names, counts, color=colours)
    axes.bar_label(bars, labels=[f" {count:,}" for count in counts], fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    records = max(outcome.acknowledged for outcome in outcomes)
    axes.set_title(f"records stored more than once, of {records:,} acknowledged", fontsize=10)
    axes.tick_params(labelsize=8)
