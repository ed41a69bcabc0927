"""Report of a chaos run: in the terminal, as a page with a timeline, and as JSON.

The page needs no other files.
"""

from __future__ import annotations

import html
import json
import statistics
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from tests.chaos.checker import Check
from tests.chaos.run import Result, silences

WIDTH, LEFT, RIGHT = 1100, 110, 20
TOP, NUMBER = 24, 18  # of the faults' numbers: room above the chart, and for one of them
CHART, ROW = 170, 22
TICKS = 12  # of the time axis, about
# Requests that waited during a fault come at once. Peaks above this multiple of the median are cut
# off, or everything else would be a flat line.
HIGHEST = 4
NODE_COLOURS = ("#ccc", "#3b7dd8", "#e08a2e", "#4a9d5b", "#8e5bb5", "#c2525a")
FAULT, ERROR = "#d9534f", "#b3202a"
ANSWERS = {True: "yes", False: "no", None: "unknown"}
# In the terminal, before a check's claim: "lost: yes" would be read the wrong way round.
VERDICTS = {True: ("holds", "green"), False: ("BROKEN", "bold red"), None: ("unknown", "yellow")}
KINDS = {
    "plain": "in turn to all partitions but the last",
    "conditional": "races for each offset of the last one; who comes second is refused",
    "named": "instances of one name; who is taken over is refused",
}
STYLE = """
body { font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 1160px; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .25em .8em; text-align: left; vertical-align: top }
tr { border-bottom: 1px solid #ddd }
.number { text-align: right; font-variant-numeric: tabular-nums }
.verdict { padding: .6em 1em; border-radius: 6px; font-size: 19px; font-weight: 600 }
.verdict.yes { background: #e3f3e6 } .verdict.no { background: #fbe3e3 }
.verdict.unknown { background: #fbf1d9 }
.yes { color: #1b7a35 } .no { color: #b3202a; font-weight: 600 } .unknown { color: #96690a }
.legend span { margin-right: 1.2em } .legend i { font-style: normal }
svg text { font: 11px system-ui, sans-serif } code { font-size: 12px }
"""


def write(result: Result, folder: Path) -> tuple[Path, Path]:
    """Writes report.html and report.json into the folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    page, data = folder / "report.html", folder / "report.json"
    page.write_text(_page(result), encoding="utf-8")
    data.write_text(json.dumps(summary(result), indent=2) + "\n", encoding="utf-8")
    return page, data


def show(result: Result, console: Console) -> None:
    """Prints each check in a line: whether its claim holds, and the counterexamples."""
    counts = result.history.counts()
    console.print(
        f"{len(result.events)} faults, {result.kills} kills; "
        f"{counts['yes']:,} writes acknowledged, "
        f"{counts['no']:,} refused, {counts['unknown']:,} unknown; "
        f"{len(result.history.reads):,} reads",
        highlight=False,
    )
    for one in result.checks:
        verdict, colour = VERDICTS[one.holds]
        why = f"violations: {one.found:,}" if one.found else one.unknown
        text = f"{one.claim}; {why}" if why else one.claim
        console.print(f"  [{colour}]{verdict:8}[/] {text}", highlight=False)
        for example in one.examples[:3]:
            console.print(f"           {example}", highlight=False, markup=False)
    console.print(verdict_of(result.checks), highlight=False, markup=False)


def verdict_of(checks: Sequence[Check]) -> str:
    """Sums all checks up in one sentence."""
    held = [one for one in checks if one.holds]
    broken = [one.name for one in checks if one.holds is False]
    if len(held) == len(checks):
        return f"all checks hold: {len(held)} of {len(checks)}"
    if broken:
        return f"NOT all checks hold: {', '.join(broken)}"
    return f"{len(held)} of {len(checks)} checks hold, the others could not be made"


def summary(result: Result) -> dict[str, object]:
    """Builds the JSON file's contents."""
    return {
        "seed": result.seed,
        "faults": list(result.faults),
        "left_out": dict(result.left_out),
        "seconds": round(result.seconds, 1),
        "kills": result.kills,
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
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Oncelog under faults</title>",
        f"<style>{STYLE}</style><h1>Oncelog under faults</h1>",
        _verdict(result.checks),
        f"<p>{result.seconds:.0f} s, seed {result.seed}, {len(result.events)} faults, "
        f"{len(result.history.reads):,} reads, {len(result.history.contests)} takeovers of a "
        "producer name.</p>",
        *_writes(result),
        *_timeline(result),
        "<h2>Checks</h2><table><tr><th>check<th>means<th>holds<th class=number>violations</tr>",
        *(_check(one) for one in result.checks),
        "</table>",
        *_fault_table(result),
    ]
    if result.timeline.errors:
        parts += [
            "<h2>Errors that clients saw</h2><table><tr><th class=number>at, s<th>error</tr>",
            *(
                f"<tr><td class=number>{at:.1f}<td>{html.escape(text)}</tr>"
                for at, text in result.timeline.errors[:200]
            ),
            "</table>",
        ]
    return "\n".join(parts) + "\n</html>\n"


def _verdict(checks: Sequence[Check]) -> str:
    answers = [one.holds for one in checks]
    worst = ANSWERS[False if False in answers else None if None in answers else True]
    return f"<p class='verdict {worst}'>{html.escape(verdict_of(checks))}</p>"


def _writes(result: Result) -> Iterator[str]:
    yield "<table><tr><th>writes<th class=number>acknowledged<th class=number>refused"
    yield "<th class=number>unknown<th></tr>"
    for kind, what in KINDS.items():
        counts = result.history.counts(kind)
        cells = "".join(f"<td class=number>{counts[one]:,}" for one in ("yes", "no", "unknown"))
        yield f"<tr><td>{kind}{cells}<td>{what}</tr>"
    yield "</table>"


def _fault_table(result: Result) -> Iterator[str]:
    yield "<h2>Faults</h2><table><tr><th class=number>no.<th>fault<th class=number>at, s"
    yield "<th class=number>until healed, s<th class=number>longest silence, s<th>what</tr>"
    felt = silences(result.events, result.timeline)
    for number, (event, silent) in enumerate(zip(result.events, felt, strict=True), 1):
        yield (
            f"<tr><td class=number>{number}<td>{event.name}<td class=number>{event.start:.1f}"
            f"<td class=number>{event.end - event.start:.1f}"
            f"<td class=number>{silent:.1f}"
            f"<td>{html.escape(event.what)}</tr>"
        )
    yield "</table><p>Longest silence: of a partition, without an acknowledgement; it began with "
    yield "this fault or after it, and before the next one.</p>"
    for name, why in result.left_out.items():
        yield f"<p>Left out: {name}: {html.escape(why)}.</p>"


def _check(one: Check) -> str:
    answer = ANSWERS[one.holds]
    rows = "".join(f"<br><code>{html.escape(text)}</code>" for text in one.examples)
    why = f": {html.escape(one.unknown)}" if one.unknown else ""
    return (
        f"<tr><td>{one.name}<td>{html.escape(one.claim)}{rows}"
        f"<td class={answer}>{answer}{why}<td class=number>{one.found:,}</tr>"
    )


# -- the timeline -------------------------------------------------------------------------------


def _timeline(result: Result) -> Iterator[str]:
    bottom = TOP + CHART + ROW * (result.load.partitions + 1) + 14
    yield "<h2>Timeline</h2>"
    yield f'<svg width={WIDTH} height={bottom + 20} role="img" aria-label="timeline">'
    yield from _faults(result, bottom)
    yield from _axis(result, bottom)
    cut = yield from _throughput(result)
    yield from _errors(result)
    yield from _leaders(result)
    yield "</svg><p class=legend>"
    yield f'<span><i style="color:{FAULT};opacity:.5">&#9632;</i> a fault, until it is healed; '
    yield "its number in the table below</span><br><span>line: records acknowledged per second"
    yield f"{cut}</span><br><span>bars: who leads each partition</span>"
    for node in sorted({node for _, _, node in result.leaders if node}):
        colour = NODE_COLOURS[node % len(NODE_COLOURS)]
        yield f'<span><i style="color:{colour}">&#9632;</i> node {node}</span>'
    yield f'<span><i style="color:{NODE_COLOURS[0]}">&#9632;</i> nobody</span></p>'


def _x(result: Result, second: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * second / max(result.seconds, 0.1)


def _faults(result: Result, bottom: int) -> Iterator[str]:
    free = 0.0  # where the next number has room
    for number, event in enumerate(result.events, 1):
        x, end = _x(result, event.start), _x(result, event.end)
        title = html.escape(f"{event.start:.1f} s, {event.name}: {event.what}")
        yield (
            f'<g><title>{title}</title><rect x="{x:.1f}" y="{TOP}" width="{max(1.0, end - x):.1f}" '
            f'height="{bottom - TOP}" fill="{FAULT}" opacity=".15" /></g>'
        )
        if x >= free:
            free = x + NUMBER
            yield f'<text x="{x:.1f}" y="{TOP - 6}" fill="{ERROR}">{number}</text>'


def _axis(result: Result, bottom: int) -> Iterator[str]:
    step = _round_up(result.seconds / TICKS)
    for second in range(0, int(result.seconds) + 1, step):
        x = _x(result, second)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="#888" />'
        yield f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{second} s</text>'


def _round_up(number: float) -> int:
    """Rounds up to the next of 1, 2, 5, 10, 20, 50, ..."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= number:
                return digit * power
        power *= 10


def _throughput(result: Result) -> Generator[str, None, str]:
    """Draws the line; returns a remark on peaks that are cut off."""
    tenths = result.timeline.acknowledged
    # Half a second each, as records per second.
    bars = [
        (start / 10, 2 * sum(tenths.get(tenth, 0) for tenth in range(start, start + 5)))
        for start in range(0, int(result.seconds * 10), 5)
    ]
    peak = max((count for _, count in bars), default=0)
    usual = statistics.median([count for _, count in bars if count] or [0])
    step = _round_up(min(peak, HIGHEST * usual) / 4)
    top = step * 4
    base = TOP + CHART - 10

    def y(count: float) -> float:
        return base - (CHART - 20) * min(count, top) / top

    for count in range(0, top + 1, step):
        yield (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(count):.1f}" y2="{y(count):.1f}" '
            f'stroke="#ddd" /><text x="{LEFT - 8}" y="{y(count) + 4:.1f}" text-anchor="end">'
            f"{count:,}{' records/s' if count == top else ''}</text>"
        )
    points = " ".join(f"{_x(result, at + 0.25):.1f},{y(count):.1f}" for at, count in bars)
    yield f'<polyline points="{points}" fill="none" stroke="#222" stroke-width="1.2" />'
    return f" (peaks above {top:,} are cut off, the highest is {peak:,})" if peak > top else ""


def _errors(result: Result) -> Iterator[str]:
    y = TOP + CHART
    yield f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">errors</text>'
    if not result.timeline.errors:
        yield f'<text x="{LEFT}" y="{y + 13}" fill="#888">none</text>'
    for at, text in result.timeline.errors:
        yield (
            f'<rect x="{_x(result, at):.1f}" y="{y + 3}" width="2" height="12" fill="{ERROR}">'
            f"<title>{html.escape(f'{at:.1f} s: {text}')}</title></rect>"
        )


def _leaders(result: Result) -> Iterator[str]:
    for partition in range(result.load.partitions):
        y = TOP + CHART + ROW * (partition + 1)
        yield f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">partition {partition}</text>'
        changes = [(at, node) for at, part, node in result.leaders if part == partition]
        for (at, node), (end, _) in zip(changes, [*changes[1:], (result.seconds, 0)], strict=False):
            x = _x(result, at)
            colour = NODE_COLOURS[node % len(NODE_COLOURS)]
            who = f"node {node}" if node else "nobody"
            yield (
                f'<rect x="{x:.1f}" y="{y}" width="{max(0.5, _x(result, end) - x):.1f}" '
                f'height="{ROW - 6}" fill="{colour}"><title>from {at:.1f} s: {who}</title></rect>'
            )
