"""Tables of the results, for a terminal and for docs/performance.md.

    python -m bench.report data/bench/results.jsonl [--into docs/performance.md]

With --into, the part of the page between the two marks is replaced.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bench import goals
from bench.figures import Figures
from bench.plan import CONSUME, SINGLE
from bench.results import ALL_CASES, Results, Row

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

TITLES = {
    "limits": "The machine's own limits",
    "client": "The client alone, against a broker that keeps nothing",
    "produce": "Produce: records/s (MB/s)",
    "bytes": "Bytes: MB/s (share of the gRPC stream of that size)",
    "latency": "Latency: p50 / p99 / p99.9 ms",
    "consume": "Consume: MB/s (share of the gRPC stream at 1 MiB)",
    "producers": "Small and many, records of 100 B: records/s (p50 / p99 ms)",
    "kafka": "Kafka's protocol under librdkafka, idempotent: processor time of all nodes a record",
    "idempotence": "Idempotence on against off",
    "path": "Where the time of one record goes: us since its send(), medians",
    "failover": "Failover: SIGKILL of the leader to the next acknowledgement",
    "partitions": "Many partitions",
    "restart": "Much data, and a restart",
    "pids": "Many producer ids in one partition",
}
#: Sections that compare systems: a row for each system and client, a column for each case.
COMPARED = ("produce", "bytes", "latency", "consume", "producers", "client", "kafka")


def ratios(section: str, case: str, figures: Mapping[str, float], limits: Figures) -> Figures:
    """Figures as shares or multiples of the limits measured in the same run."""
    found: Figures = {}

    def share(of: str, figure: str, limit: str) -> None:
        if figures.get(figure) and limits.get(limit):
            found[of] = round(figures[figure] / limits[limit], 4)

    if section in ("produce", "client"):
        share("of_grpc_stream", "mb_per_s", "stream_1MiB_mb_per_s")
    elif section == "bytes":
        size = "64KiB" if "64 KiB" in case else "1MiB"
        share("of_grpc_stream", "mb_per_s", f"stream_{size}_mb_per_s")
        share("of_disk", "mb_per_s", "write_mb_per_s")
    elif section == "consume":
        share("of_grpc_stream", "mb_per_s", "give_1MiB_mb_per_s")
    elif section == "producers":
        share("of_grpc_messages", "records_per_s", "stream_100B_per_s")
    elif section == "latency":
        share("p50_x_floor", "p50_ms", "floor_ms")
        share("p99_x_floor", "p99_ms", "floor_ms")
    return found


# -- cells --------------------------------------------------------------------------------


def number(value: float) -> str:
    """Formats a number with its significant digits."""
    if value == int(value) and abs(value) < 1e15 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _percent(row: Row, name: str) -> str:
    share = row.figures.get(name)
    return f" ({share:.0%})" if share is not None else ""


def _produce(row: Row) -> str:
    figures = row.figures
    return f"{number(figures['records_per_s'])} ({number(figures['mb_per_s'])})"


def _latency(row: Row) -> str:
    return " / ".join(number(row.figures[name]) for name in ("p50_ms", "p99_ms", "p999_ms"))


def _many(row: Row) -> str:
    times = (number(row.figures[name]) for name in ("p50_ms", "p99_ms"))
    return f"{number(row.figures['records_per_s'])} ({' / '.join(times)})"


def _kafka(row: Row) -> str:
    figures = row.figures
    if row.case == SINGLE:
        return f"p50 {number(figures['p50_ms'])} ms"
    name, unit = ("mb_per_s", "MB/s") if row.case == CONSUME else ("records_per_s", "records/s")
    return f"{number(figures[name])} {unit}, {number(figures['broker_us_per_record'])} us"


CELLS: dict[str, Callable[[Row], str]] = {
    "produce": _produce,
    "client": _produce,
    "bytes": lambda row: number(row.figures["mb_per_s"]) + _percent(row, "of_grpc_stream"),
    "consume": lambda row: number(row.figures["mb_per_s"]) + _percent(row, "of_grpc_stream"),
    "latency": _latency,
    "producers": _many,
    "kafka": _kafka,
}


def line(row: Row) -> str:
    """Line on the terminal during the benchmark."""
    who = f"{row.system}, {row.client}" if row.client else row.system
    head = f"{row.section:11} {who:44} {row.case:32}"
    if row.error:
        return f"{head} FAILED: {row.error[:160]}"
    if row.section in CELLS:
        return f"{head} {CELLS[row.section](row)}"
    pairs = [f"{name} {number(value)}" for name, value in list(row.figures.items())[:8]]
    return f"{head} {', '.join(pairs)}"


# -- tables -------------------------------------------------------------------------------

Table = tuple[str, list[str], list[list[str]]]  # title, headings, rows


def tables(results: Results) -> list[Table]:
    ratio = multiples(results)
    found = [ratio] if ratio else []
    for section, title in TITLES.items():
        rows = results.section(section)
        if rows:
            make = _compared if section in COMPARED else _listed
            found.append((title, *make(section, rows)))
    return found


MULTIPLES = (
    ("produce", "records_per_s", False),
    ("bytes", "mb_per_s", False),
    ("consume", "mb_per_s", False),
    ("latency", "p50_ms", True),
)


def multiples(results: Results) -> Table | None:
    """Oncelog's figures as multiples of each peer's; above 1 Oncelog is ahead."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    headings: list[str] = []
    for section, figure, less_is_better in MULTIPLES:
        own = {row.case: row.figures[figure] for row in results.find(section, system=goals.OWN)}
        for row in results.find(section):
            theirs = row.figures.get(figure)
            if row.system == goals.OWN or not theirs or not own.get(row.case):
                continue
            times = theirs / own[row.case] if less_is_better else own[row.case] / theirs
            heading = f"{section}, {row.case}"
            if heading not in headings:
                headings.append(heading)
            cells.setdefault((row.system, row.client), {})[heading] = f"{number(times)}x"
    if not cells:
        return None
    body = [
        [system, client, *(found.get(heading, "") for heading in headings)]
        for (system, client), found in cells.items()
    ]
    title = "Oncelog as a multiple of each peer (latency: p50; above 1 Oncelog is ahead)"
    return title, ["system", "client", *headings], body


def _compared(section: str, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    cases = list(dict.fromkeys(row.case for row in rows if row.case != ALL_CASES))
    who = dict.fromkeys((row.system, row.client) for row in rows if row.case != ALL_CASES)
    # A system that failed as a whole has a line too, if it has no other.
    shown = {system for system, _ in who}
    who |= {(row.system, ""): None for row in rows if row.system not in shown}
    broken = {row.system for row in rows if row.case == ALL_CASES}
    cells = {(row.system, row.client, row.case): row for row in rows}
    body = []
    for system, client in who:
        missing = "failed" if system in broken else ""
        texts = [_cell(section, cells.get((system, client, case)), missing) for case in cases]
        body.append([system, client, *texts])
    return ["system", "client", *cases], body


def _cell(section: str, row: Row | None, missing: str) -> str:
    if row is None:
        return missing
    return "failed" if row.error else CELLS[section](row)


def _listed(section: str, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Columns for the rows' cases, lines for the figures."""
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    body = [
        [name, *(number(row.figures[name]) if name in row.figures else "" for row in rows)]
        for name in names
    ]
    if any(row.error for row in rows):
        body.append(["", *("failed" if row.error else "" for row in rows)])
    return ["", *(row.case for row in rows)], body


def header(results: Results) -> list[str]:
    """Date, machine and number of runs."""
    rows = list(results)
    if not rows:
        return ["Nothing was measured."]
    days = sorted({row.at[:10] for row in rows})
    loads = sorted(row.load for row in rows)
    several = f", medians of up to {results.rounds} rounds" if results.rounds > 1 else ""
    lines = [
        f"Measured on {' and '.join(days)} in {len({row.run for row in rows})} run(s){several}; "
        f"load average {loads[0]:g} to {loads[-1]:g} (with the measured load)."
    ]
    limits = results.section("limits")
    if limits and limits[-1].detail:
        facts = ", ".join(f"{name} {value}" for name, value in limits[-1].detail.items())
        lines.append(f"Machine: {facts}.")
    return lines


def text(results: Results) -> str:
    parts = ["\n".join(header(results))]
    for title, headings, rows in tables(results):
        parts.append(f"{title}\n{plain(headings, rows)}")
    parts.append(f"Goals\n{plain(goals.HEADINGS, goals.rows(results))}")
    parts.extend(f"Settings of {system}: {detail}" for system, detail in _settings(results))
    parts.extend(
        f"{row.section}, {row.system} {row.client}, {row.case} failed: {row.error}"
        for row in results.failures()
    )
    return "\n\n".join(parts)


def markdown(results: Results) -> str:
    parts = ["\n".join(header(results))]
    parts.append(f"### Goals\n\n{pipes(goals.HEADINGS, goals.rows(results))}")
    for title, headings, rows in tables(results):
        parts.append(f"### {title}\n\n{pipes(headings, rows)}")
    failed = results.failures()
    if failed:
        lines = [f"- {r.section}, {r.system} {r.client}, {r.case}: {r.error}" for r in failed]
        parts.append("### What failed\n\n" + "\n".join(lines))
    settings = _settings(results)
    if settings:
        lines = [f"- **{system}**: `{detail}`" for system, detail in settings]
        parts.append("### Settings\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _settings(results: Results) -> list[tuple[str, str]]:
    rows = [row for row in results.section("settings") if row.detail]
    return [(row.system, json.dumps(row.detail)) for row in rows]


def plain(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table with spaces between the columns."""
    every = [list(headings), *map(list, rows)]
    widths = [max(len(row[column]) for row in every) for column in range(len(headings))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def pipes(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown."""

    def one(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"

    return "\n".join([one(headings), "|" + " --- |" * len(headings), *map(one, rows)])


def put_into(page: str, part: str) -> str:
    """Replaces the part of the page between its marks. Raises ValueError if it has no marks."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"the page needs one {BEGIN} and one {END}")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{part.strip()}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables of the benchmark's results.")
    parser.add_argument("results", type=Path, help="results.jsonl")
    parser.add_argument("--into", type=Path, help="a page with marks for the tables")
    options = parser.parse_args()
    if not options.results.exists():
        parser.error(f"there is no {options.results}")
    results = Results(options.results)
    if options.into is None:
        print(text(results))
    else:
        options.into.write_text(put_into(options.into.read_text(), markdown(results)))


if __name__ == "__main__":
    main()
