"""The trace that docs/protocol.md prints: it must match a run."""

from __future__ import annotations

from pathlib import Path

from tests.sim.leader_kill import trace


def test_the_page_prints_what_happens(root: Path) -> None:
    page = (root / "docs/protocol.md").read_text()
    printed = page[page.index("### Message trace of a leader failure") :].split("```")[1]
    now = "python -m tests.sim.leader_kill"
    assert printed.strip("\n").splitlines() == trace(), f"the page is not what {now} prints"
