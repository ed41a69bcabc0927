"""The chart without a cluster: lint, refused values, and its output beside the golden files.

cases/NAME.yaml (values) --helm template--> golden/NAME.yaml
docs/kubernetes.md --commands--> helm
"""

from __future__ import annotations

import difflib
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.node_process import ROOT
from tests.deploy.tools import tool

CHART = ROOT / "deploy" / "helm" / "oncelog"
HERE = Path(__file__).parent
DEFAULT = HERE / "cases" / "default.yaml"
FULL = HERE / "cases" / "full.yaml"
NAMESPACE = "logs"
PAGE = ROOT / "docs" / "kubernetes.md"
KEEP = "--reset-then-reuse-values"  # only `helm upgrade` has it
# Values that the chart refuses, each with a part of the reason.
REFUSED = {
    "replicas=2": "replicas: 2 is below founders, 3",
    "replicas=10": "at '/replicas': maximum: got 10, want 9",
    "founders=1": "founders: 1 makes a cluster that stays alone",
    "founders=2": "at '/founders': value must be one of",
    "replica=4": "additional properties 'replica' not allowed",
    "settings.node_id=4": "invalid propertyName 'node_id'",
    "settings.Log=4": "invalid propertyName 'Log'",
    "storage.size=many": "at '/storage/size': 'many' does not match pattern",
    "antiAffinity=none": "at '/antiAffinity': value must be one of",
}


def faults(*, update: bool) -> Iterator[str]:
    """Check the chart. update: write the golden files anew."""
    linted = _helm("lint", "--strict", CHART)
    if linted.returncode:
        yield linted.stdout + linted.stderr
    for values, reason in REFUSED.items():
        refused = _helm("template", "oncelog", CHART, "--set", values)
        if reason not in refused.stderr or not refused.returncode:
            yield f"{values}: not refused with {reason!r}\n{refused.stderr}"
    for words in typed():
        known = _helm(*words[1:], "--help")
        taken = _helm("template", *(word for word in words[2:] if word != KEEP))
        if known.returncode or taken.returncode:
            yield f"{PAGE.name}: {shlex.join(words)}\n{known.stderr}{taken.stderr}"
    for case in cases():
        golden, found = HERE / "golden" / case.name, rendered(case)
        if update:
            golden.write_text(found, encoding="utf-8")
        wanted = golden.read_text(encoding="utf-8")
        yield from _difference(wanted, found, f"golden/{case.name}", f"cases/{case.name}")


def typed() -> list[list[str]]:
    """Return the commands of helm in the page for users, as words."""
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^\$ (helm (?:install|upgrade) .*?)(?: \.\.\.)?$", text, re.MULTILINE)
    assert len(found) >= 6, f"too few commands of helm in {PAGE}"
    return [shlex.split(line) for line in found]


def cases() -> list[Path]:
    """Return the values of each case."""
    return sorted((HERE / "cases").glob("*.yaml"))


def rendered(case: Path, namespace: str = NAMESPACE) -> str:
    """Return the objects of a case. Raises CalledProcessError."""
    done = _helm("template", "oncelog", CHART, "-n", namespace, "--values", case)
    done.check_returncode()
    return done.stdout


def _difference(wanted: str, found: str, golden: str, made: str) -> Iterator[str]:
    lines = difflib.unified_diff(wanted.splitlines(), found.splitlines(), golden, made, lineterm="")
    changed = "\n".join(lines)
    if changed:
        yield f"{changed}\nif that is intended: scripts/deploy-test --update"


def _helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in (tool("helm"), *words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
