"""Page of an audit: HTML with drawings in SVG, without external resources.

Place in the flow: `run` hands over the report and the rows of `Tables.drawn`.
Three drawings: records and faults over time; the partitions as strips, each fault at its
place in the log; the producers with most faults. Pure: rows in, text out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from oncelog.spark.auditing.report import AuditReport

Rows = Sequence[Mapping[str, Any]]

CELLS = 240  # in a partition's strip
WIDTH = 1000
LEFT = 110  # of a drawing, for labels
COLOURS = {
    "duplicate": "#b5489a",
    "gap": "#d1422f",
    "order": "#e08a00",
    "key_order": "#8c4a1d",
    "unreadable": "#7a7a7a",
    "hole": "#3b3b98",
    "missing": "#f0607a",
    "extra": "#1f78b4",
    "twice": "#7b5fd0",
    "changed": "#c2b000",
    "moved": "#17917a",
    "disordered": "#5aa02c",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667085; --paper: #ffffff;
  --band: #e7ebf1; --area: #b8c7dc; --line: #2f5d9b; --edge: #d5dbe4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b8; --paper: #14181f;
  --band: #252c37; --area: #3a4d68; --line: #8db4e8; --edge: #323b49; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1040px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
p.note { color: var(--soft); margin: .1rem 0 .6rem; }
.verdict { display: inline-block; padding: .15rem .7rem; border-radius: 1rem; color: #fff;
  font-weight: 600; margin: .6rem 0; }
.cards { display: flex; flex-wrap: wrap; gap: .6rem; margin: .6rem 0; }
.card { border: 1px solid var(--edge); border-radius: .5rem; padding: .4rem .8rem; }
.card b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .85rem; }
.legend span { margin-right: 1rem; white-space: nowrap; color: var(--soft); font-size: .85rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem;
  margin-right: .3rem; vertical-align: -1px; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid var(--edge); }
.scroll { overflow-x: auto; }
"""


def render(report: AuditReport, kinds: Mapping[str, str], drawn: Mapping[str, Rows]) -> str:
    """Return the page. `kinds`: the kinds of faults, with their meanings."""
    title = f"Audit of {report.topic}" + (f" against {report.copy}" if report.copy else "")
    bad = {kind: n for kind, n in report.faults.items() if n}
    parts = [
        f"<h1>{escape(title)}</h1>",
        _verdict(bad),
        _cards(report, kinds),
        "<h2>Over time</h2>",
        "<p class=note>Above: records by their own timestamps (UTC); the line is the copy. "
        "Below: faults in the same stretches of time.</p>",
        _times(drawn["times"], list(bad), report.copy is not None),
        "<h2>Where in the log</h2>",
        "<p class=note>A strip for each partition, from its first to its last offset.</p>",
        _legend(list(bad), kinds),
        _strips(drawn["partitions"], drawn["cells"]),
    ]
    if drawn["producers"]:
        parts += [
            "<h2>Producers</h2>",
            "<p class=note>Those with most faults. Grey: records; colours: faults.</p>",
            _producers(drawn["producers"], list(bad)),
        ]
    if bad:
        parts += ["<h2>Findings</h2>", _examples(drawn["examples"], kinds)]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )


def _verdict(bad: Mapping[str, int]) -> str:
    if not bad:
        return "<div class=verdict style='background:#1b7f4b'>clean</div>"
    text = ", ".join(f"{n:,} {kind}" for kind, n in bad.items())
    return f"<div class=verdict style='background:#c0392b'>{escape(text)}</div>"


def _cards(report: AuditReport, kinds: Mapping[str, str]) -> str:
    cards = [("records", report.records, ""), ("distinct", report.distinct, "")]
    if report.copy:
        cards.append(("in the copy", report.copy_records, ""))
    if report.producers:
        cards.append(("producers", report.producers, ""))
    cards += [(kind, report.faults[kind], kinds[kind]) for kind in kinds]
    made = []
    for name, count, meaning in cards:
        colour = f" style='color:{COLOURS[name]}'" if name in COLOURS and count else ""
        made.append(
            f"<div class=card title='{escape(meaning, quote=True)}'><b{colour}>{count:,}</b>"
            f"<span>{escape(name)}</span></div>"
        )
    return f"<div class=cards>{''.join(made)}</div>"


def _legend(shown: Sequence[str], kinds: Mapping[str, str]) -> str:
    spans = [
        f"<span><i style='background:{COLOURS[kind]}'></i>{kind}: {escape(kinds[kind])}</span>"
        for kind in shown
    ]
    return f"<div class=legend>{''.join(spans)}</div>"


# --- drawings ------------------------------------------------------------------------


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    return (
        f"<svg viewBox='0 0 {WIDTH} {height:g}' role=img aria-label='{escape(label, quote=True)}'>"
        f"{''.join(parts)}</svg>"
    )


def _rect(x: float, y: float, w: float, h: float, fill: str, tip: str = "") -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f"<rect x='{x:.2f}' y='{y:.2f}' width='{max(w, 0.8):.2f}' height='{h:.2f}' "
        f"fill='{fill}'>{title}</rect>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{escape(text)}</text>"


def _times(rows: Rows, shown: Sequence[str], compared: bool) -> str:
    if not rows:
        return "<p class=note>There are no records.</p>"
    upper, lower, foot = 150.0, 90.0 if shown else 0.0, 22.0
    step = (WIDTH - LEFT) / len(rows)
    most = max(max(row["records"] or 0, row["copied"] or 0) for row in rows) or 1
    worst = max((sum(row[kind] for kind in shown) for row in rows), default=0) or 1
    parts = [_text(LEFT - 8, 14, f"{most:,}", "end"), _text(LEFT - 8, upper, "0", "end")]
    line = []
    for i, row in enumerate(rows):
        x, tip = LEFT + i * step, f"{_time(row['time'])}: {row['records']:,} records"
        tall = upper * (row["records"] or 0) / most
        parts.append(_rect(x, upper - tall, step * 0.92, tall, "var(--area)", tip))
        line.append(f"{x + step / 2:.1f},{upper - upper * (row['copied'] or 0) / most:.1f}")
        y = upper + 16
        for kind in shown:
            tall = (lower - 16) * row[kind] / worst
            if row[kind]:
                parts.append(
                    _rect(x, y, step * 0.92, max(tall, 2), COLOURS[kind], f"{row[kind]:,} {kind}")
                )
            y += max(tall, 2) if row[kind] else 0
    if compared:
        parts.append(
            f"<polyline points='{' '.join(line)}' fill='none' stroke='var(--line)' "
            "stroke-width='1.6'/>"
        )
    if shown:
        parts.append(_text(LEFT - 8, upper + 28, f"faults, {worst:,}", "end"))
    bottom = upper + lower + foot - 6
    parts.append(_text(LEFT, bottom, _time(rows[0]["time"])))
    parts.append(_text(WIDTH, bottom, _time(rows[-1]["time"]), "end"))
    return _svg(upper + lower + foot, parts, "records and faults over time")


def _time(at: datetime | None) -> str:
    return "" if at is None else at.isoformat(" ", "milliseconds" if at.microsecond else "seconds")


def _strips(partitions: Rows, cells: Rows) -> str:
    tall, gap = 16, 7
    wide = WIDTH - LEFT - 120
    inside: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for cell in cells:
        inside.setdefault((cell["side"], cell["partition"]), []).append(cell)
    parts: list[str] = []
    for i, row in enumerate(partitions):
        y = 4 + i * (tall + gap)
        name = f"{row['side']} {row['partition']}"
        parts.append(_text(LEFT - 8, y + 12, name, "end"))
        parts.append(_rect(LEFT, y, wide, tall, "var(--band)", f"{row['records']:,} records"))
        own = inside.get((row["side"], row["partition"]), [])
        # The rarer kinds on top: others would hide them.
        for cell in sorted(own, key=lambda one: -one["amount"]):
            x = LEFT + wide * cell["cell"] / CELLS
            tip = f"{cell['amount']:,} {cell['kind']}"
            parts.append(_rect(x, y, wide / CELLS, tall, COLOURS[cell["kind"]], tip))
        span = f"{row['first_offset']:,} to {row['last_offset']:,}" if row["records"] else "empty"
        parts.append(_text(LEFT + wide + 8, y + 12, span))
    return _svg(8 + len(partitions) * (tall + gap), parts, "faults by partition and offset")


def _producers(rows: Rows, shown: Sequence[str]) -> str:
    tall, gap, middle = 16, 7, 520
    most = max((row["records"] or 0 for row in rows), default=0) or 1
    own = [kind for kind in shown if any(row[kind] for row in rows)]
    worst = max((sum(row[kind] for kind in own) for row in rows), default=0) or 1
    parts: list[str] = []
    for i, row in enumerate(rows):
        y = 4 + i * (tall + gap)
        parts.append(_text(LEFT - 8, y + 12, str(row["producer"])[:16], "end"))
        wide = (middle - LEFT - 60) * (row["records"] or 0) / most
        parts.append(_rect(LEFT, y, wide, tall, "var(--area)", f"{row['records']:,} records"))
        parts.append(_text(LEFT + wide + 6, y + 12, f"{row['records']:,}"))
        x = float(middle)
        for kind in own:
            if row[kind]:
                wide = (WIDTH - middle - 70) * row[kind] / worst
                parts.append(_rect(x, y, wide, tall, COLOURS[kind], f"{row[kind]:,} {kind}"))
                x += max(wide, 0.8)
        if x > middle:
            total = sum(row[kind] for kind in own)
            parts.append(_text(x + 6, y + 12, f"{total:,}"))
    return _svg(8 + len(rows) * (tall + gap), parts, "producers")


def _examples(rows: Rows, kinds: Mapping[str, str]) -> str:
    names = ("kind", "partition", "offset", "timestamp", "producer", "sequence", "amount", "detail")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = []
    for row in rows:
        cells = []
        for name in names:
            value = row[name]
            text = _time(value) if isinstance(value, datetime) else value
            cells.append(f"<td>{'' if text is None else escape(str(text))}</td>")
        body.append(f"<tr title='{escape(kinds[row['kind']], quote=True)}'>{''.join(cells)}</tr>")
    return (
        f"<p class=note>The first {len(rows)}; all of them are in findings/.</p>"
        f"<div class=scroll><table><tr>{head}</tr>{''.join(body)}</table></div>"
    )
