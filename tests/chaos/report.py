"""A chaos run as a page with a timeline, and as JSON. Neither needs anything but itself."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.checker import Check
from tests.chaos.run import Result

WIDTH, LEFT = 1100, 110
CHART, ROW = 160, 22
NODE_COLOURS = ("#bbb", "#3b7dd8", "#e08a2e", "#4a9d5b", "#8e5bb5", "#c2525a")
ANSWERS = {True: "yes", False: "no", None: "unknown"}
STYLE = """
body { font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 1160px; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .25em .8em; text-align: left }
tr { border-bottom: 1px solid #ddd }
.yes { color: #1b7a35 } .no { color: #b3202a; font-weight: 600 } .unknown { color: #96690a }
svg text { font: 11px system-ui, sans-serif } code { font-size: 12px }
"""


def write(result: Result, folder: Path) -> tuple[Path, Path]:
    """Writes report.html and report.json into the folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    page, data = folder / "report.html", folder / "report.json"
    page.write_text(_page(result), encoding="utf-8")
    data.write_text(json.dumps(summary(result), indent=2) + "\n", encoding="utf-8")
    return page, data


def summary(result: Result) -> dict[str, object]:
    """What the JSON file holds."""
    return {
        "seed": result.seed,
        "faults": list(result.faults),
        "left_out": dict(result.left_out),
        "seconds": round(result.seconds, 1),
        "good": result.good,
        "writes": {
            **result.history.counts(),
            **{kind: result.history.counts(kind) for kind in ("plain", "conditional", "named")},
        },
        "takeovers": len(result.history.contests),
        "reads": len(result.history.reads),
        "checks": {
            one.name: {
                "holds": ANSWERS[one.holds],
                "found": one.found,
                "examples": one.examples,
                "unknown": one.unknown,
            }
            for one in result.checks
        },
        "events": [
            {"fault": e.name, "start": round(e.start, 2), "end": round(e.end, 2), "what": e.what}
            for e in result.events
        ],
        "leaders": [[round(at, 2), part, node] for at, part, node in result.leaders],
        "acknowledged_per_100ms": sorted(result.timeline.acknowledged.items()),
        "longest_silence_after_kill_s": result.recovery,
        "errors": [[round(at, 2), text] for at, text in result.timeline.errors],
    }


def _page(result: Result) -> str:
    counts = result.history.counts()
    verdict = "all checks hold" if result.good else "NOT all checks hold"
    facts = (
        f"{result.seconds:.0f} s, seed {result.seed}, {len(result.events)} faults; "
        f"writes: {counts['yes']:,} acknowledged, {counts['no']:,} refused, "
        f"{counts['unknown']:,} unknown; {len(result.history.reads):,} reads; "
        f"{len(result.history.contests)} takeovers of a producer name"
    )
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Oncelog under faults</title>",
        f"<style>{STYLE}</style><h1>Oncelog under faults: {verdict}</h1><p>{facts}</p>",
        _timeline(result),
        "<h2>Checks</h2><table><tr><th>check<th>means<th>holds<th>found</tr>",
        *(_check(one) for one in result.checks),
        "</table><h2>Faults</h2><table><tr><th>second<th>what</tr>",
        *(
            f"<tr><td>{event.start:.1f}<td>{html.escape(event.what)}</tr>"
            for event in result.events
        ),
        "</table>",
        *(f"<p>Left out: {name}: {html.escape(why)}.</p>" for name, why in result.left_out.items()),
    ]
    if result.timeline.errors:
        parts += [
            "<h2>Errors that clients saw</h2><table>",
            *(
                f"<tr><td>{at:.1f}<td>{html.escape(text)}</tr>"
                for at, text in result.timeline.errors[:200]
            ),
            "</table>",
        ]
    return "\n".join(parts) + "\n</html>\n"


def _check(one: Check) -> str:
    answer = ANSWERS[one.holds]
    rows = "".join(f"<br><code>{html.escape(text)}</code>" for text in one.examples)
    why = html.escape(one.unknown)
    return (
        f"<tr><td>{one.name}<td>{html.escape(one.says)}{rows}"
        f"<td class={answer}>{answer} {why}<td>{one.found:,}</tr>"
    )


def _timeline(result: Result) -> str:
    height = CHART + ROW * (result.load.partitions + 2) + 30
    inner = [f'<svg width={WIDTH} height={height} role="img" aria-label="timeline">']
    inner += _faults(result, height)
    inner += _throughput(result)
    inner += _leaders(result)
    inner.append("</svg>")
    legend = " ".join(
        f'<span style="color:{NODE_COLOURS[node % len(NODE_COLOURS)]}">&#9632; node {node}</span>'
        for node in sorted({node for _, _, node in result.leaders if node})
    )
    shaded = "Shaded: a fault. Below: who leads each partition; grey: nobody. Ticks: errors."
    return f"<h2>Timeline</h2>{''.join(inner)}<p>{legend}. {shaded}</p>"


def _x(result: Result, second: float) -> float:
    return LEFT + (WIDTH - LEFT - 10) * second / max(result.seconds, 0.1)


def _faults(result: Result, height: int) -> Iterator[str]:
    for event in result.events:
        x, end = _x(result, event.start), _x(result, event.end)
        yield (
            f"<rect x={x:.1f} y=0 width={max(1.0, end - x):.1f} height={height - 20} "
            f'fill="#d9534f" opacity=".15"><title>{html.escape(event.what)}</title></rect>'
        )
    for second in range(0, int(result.seconds) + 1, max(1, int(result.seconds / 12))):
        yield f"<text x={_x(result, second):.1f} y={height - 4}>{second} s</text>"
    for at, text in result.timeline.errors:
        yield (
            f'<rect x={_x(result, at):.1f} y={CHART + 6} width=2 height=10 fill="#b3202a">'
            f"<title>{html.escape(text)}</title></rect>"
        )


def _throughput(result: Result) -> Iterator[str]:
    tenths = result.timeline.acknowledged
    last = int(result.seconds * 10)
    # Half a second each, as records per second.
    bars = [
        (start / 10, 2 * sum(tenths.get(tenth, 0) for tenth in range(start, start + 5)))
        for start in range(0, last, 5)
    ]
    top = max((count for _, count in bars), default=0) or 1
    points = " ".join(
        f"{_x(result, at + 0.25):.1f},{CHART - (CHART - 20) * count / top:.1f}"
        for at, count in bars
    )
    yield f"<text x=0 y=20>{top:,} records/s</text><text x=0 y={CHART}>0</text>"
    yield f'<polyline points="{points}" fill="none" stroke="#222" stroke-width=1.2 />'


def _leaders(result: Result) -> Iterator[str]:
    for partition in range(result.load.partitions):
        y = CHART + ROW * (partition + 1)
        yield f"<text x=0 y={y + 13}>partition {partition}</text>"
        changes = [(at, node) for at, part, node in result.leaders if part == partition]
        for (at, node), (end, _) in zip(changes, [*changes[1:], (result.seconds, 0)], strict=True):
            x = _x(result, at)
            colour = NODE_COLOURS[node % len(NODE_COLOURS)]
            yield (
                f"<rect x={x:.1f} y={y} width={max(0.5, _x(result, end) - x):.1f} "
                f'height={ROW - 6} fill="{colour}"><title>node {node}</title></rect>'
            )
