"""Pictures of the results as PNG: systems side by side, failover times, speed over the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.results import Results, Row

COMPARED = (
    ("produce", "records_per_s", "records/s", "Produce"),
    ("bytes", "mb_per_s", "MB/s", "Bytes, one partition"),
    ("consume", "mb_per_s", "MB/s", "Consume"),
    ("latency", "p50_ms", "ms", "Latency, p50"),
    ("latency", "p99_ms", "ms", "Latency, p99"),
)
LIMIT = {"bytes": "stream_1MiB_mb_per_s", "consume": "give_1MiB_mb_per_s"}


def draw(results: Results, directory: Path) -> list[Path]:
    """Draws the measured sections; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    found = []
    for section, figure, unit, title in COMPARED:
        rows = [row for row in results.find(section) if figure in row.figures]
        if rows:
            path = directory / f"{section}-{figure.removesuffix('_ms')}.png"
            if section != "latency":
                path = directory / f"{section}.png"
            _bars(rows, figure, unit, title, _limit(results, section), path)
            found.append(path)
    for section, name, draw_one in (
        ("failover", "times_s", _distribution),
        ("restart", "mb_per_s", _over_data),
    ):
        rows = [row for row in results.find(section) if row.detail.get(name)]
        if rows:
            path = directory / f"{section}.png"
            draw_one(rows[-1], path)
            found.append(path)
    return found


def _limit(results: Results, section: str) -> float:
    rows = results.find("limits", "before")
    return rows[-1].figures.get(LIMIT.get(section, ""), 0.0) if rows else 0.0


def _figure() -> tuple[Any, Any]:
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(12, 5), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _bars(rows: Sequence[Row], name: str, unit: str, title: str, limit: float, path: Path) -> None:
    """Draws a group for each case, a bar for each system and client, on a log scale."""
    cases = list(dict.fromkeys(row.case for row in rows))
    who = list(dict.fromkeys((row.system, row.client) for row in rows))
    values = {(row.system, row.client, row.case): row.figures[name] for row in rows}
    from matplotlib import colormaps

    figure, axes = _figure()
    width = 0.8 / len(who)
    for place, (system, client) in enumerate(who):
        heights = [values.get((system, client, case), 0.0) for case in cases]
        at = [group + place * width for group in range(len(cases))]
        label = f"{system} ({client})" if client not in ("", "python") else system
        axes.bar(at, heights, width, label=label, color=colormaps["tab20"](place % 20))
    if limit:
        axes.axhline(limit, color="black", linestyle=":", label="one gRPC stream, 1 MiB")
    axes.set_xticks([group + 0.4 - width / 2 for group in range(len(cases))], cases)
    axes.set_yscale("log")
    axes.set(title=title, ylabel=unit)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _save(figure, path)


def _distribution(row: Row, path: Path) -> None:
    times = sorted(row.detail["times_s"])
    figure, axes = _figure()
    axes.step(times, [(n + 1) / len(times) for n in range(len(times))], where="post")
    axes.set(
        title=f"SIGKILL of the leader to the next acknowledgement, {row.case}",
        xlabel="seconds", ylabel="share of the kills", xlim=(0, None), ylim=(0, 1),
    )  # fmt: skip
    _save(figure, path)


def _over_data(row: Row, path: Path) -> None:
    speeds = row.detail["mb_per_s"]
    step = row.figures.get("accepted_mb", 0.0) / 1000 / len(speeds)
    figure, axes = _figure()
    axes.plot([step * (n + 1) for n in range(len(speeds))], speeds, marker="o")
    axes.set(title="Speed while the log grows", xlabel="GB accepted", ylabel="MB/s", ylim=(0, None))
    _save(figure, path)
