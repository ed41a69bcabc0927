"""Alerts by promtool: each fires where it must and nowhere else, and a mistake in it is found."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.ops.packages import installed

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "deploy/monitoring/alerts.yml"
JOB = 'job="oncelog"'
RULE = re.compile(
    r"- alert: (?P<name>\w+)\n +expr: (?P<expr>.*?)\n +(?:for|labels)(?=:).*?"
    r"severity: (?P<severity>\w+).*?runbook_url: (?P<runbook>\S+)",
    re.S,
)


class Rule(NamedTuple):
    name: str
    expr: str
    severity: str
    runbook: str


RULES = {found["name"]: Rule(**found.groupdict()) for found in RULE.finditer(FILE.read_text())}


class Case(NamedTuple):
    """Series that fire at `at`, and others that must not. step: between values and evaluations."""

    fires: dict[str, str]
    quiet: dict[str, str]
    at: str
    step: str = "1m"


def up(*values: str) -> dict[str, str]:
    return {f'up{{{JOB},instance="{n}"}}': value for n, value in enumerate(values)}


def series(metric: str, value: str, labels: str = "") -> dict[str, str]:
    return {f'{metric}{{{JOB},instance="1"{"," * bool(labels)}{labels}}}': value}


def histogram(metric: str, bound: str, below: str) -> dict[str, str]:
    """100 observations a minute below 1 s; so many of them up to the bound."""
    values = {bound: below, "1.0": "0+100x30", "+Inf": "0+100x30"}
    return {
        name: count
        for le, rises in values.items()
        for name, count in series(f"{metric}_bucket", rises, f'le="{le}"').items()
    }


def terms(values: str) -> dict[str, str]:
    return series("oncelog_partition_term", values, PART)


PART = 'topic="t",partition="0"'
GROUP = 'group="g",topic="t"'
MANY, LEFT = "oncelog_moves_pending", "oncelog_move_left_bytes"
FREE, SIZE = "oncelog_storage_free_disk_bytes", "oncelog_storage_disk_size_bytes"
AGE, LAG = "oncelog_group_commit_age_seconds", "oncelog_group_lag_records"
HELD, LIMIT = "oncelog_partition_producers", "oncelog_partition_producers_limit"
CASES = {
    "OncelogMajorityDown": Case(up("1x9", "0x9"), up("1x9", "1x9", "0x9"), "2m"),
    "OncelogNoMetadataLeader": Case(
        series("oncelog_metadata_leader", "0x9"), series("oncelog_metadata_leader", "1x9"), "3m"
    ),
    "OncelogNoLeader": Case(
        series("oncelog_partitions_leaderless", "2x9"),
        series("oncelog_partitions_leaderless", "2x9")
        | {f'oncelog_partitions_leaderless{{{JOB},instance="2"}}': "0x9"},
        "3m",
    ),
    "OncelogDiskFull": Case(
        series(FREE, "19x9") | series(SIZE, "1000x9"),
        series(FREE, "21x9") | series(SIZE, "1000x9"),
        "3m",
    ),
    "OncelogReplicaFailed": Case(
        series("oncelog_partition_failed", "1x30", PART),
        series("oncelog_partition_failed", "1x5 0x30", PART),
        "12m",
    ),
    "OncelogOrphanedRuns": Case(
        series("oncelog_transactions_orphaned_runs", "1x9"),
        series("oncelog_transactions_orphaned_runs", "0x9"),
        "1m",
    ),
    "OncelogCertificateExpires": Case(
        series("oncelog_certificate_expiry_timestamp_seconds", "250000x9"),
        series("oncelog_certificate_expiry_timestamp_seconds", "270000x9"),
        "1m",
    ),
    "OncelogNodeDown": Case(
        series("oncelog_link_up", "0x9", 'node="2"'),
        up("1x9") | series("oncelog_link_up", "1x9", 'node="2"'),
        "4m",
    ),
    "OncelogUnderReplicated": Case(
        series("oncelog_partition_under_replicated", "1x30", PART),
        series("oncelog_partition_under_replicated", "1x5 0x30", PART),
        "12m",
    ),
    "OncelogSlowDisk": Case(
        histogram("oncelog_fsync_latency_seconds", "0.05", "0+90x30"),
        histogram("oncelog_fsync_latency_seconds", "0.05", "0+100x30"),
        "20m",
    ),
    "OncelogUnstableLeader": Case(terms("3x4 5 6 7"), terms("3x4 5 6"), "8m"),
    "OncelogDiskFillsUp": Case(series(FREE, "3000-10x120"), series(FREE, "100000-10x120"), "90m"),
    "OncelogClockWrong": Case(
        series("oncelog_clock_agreed", "0x9"), series("oncelog_clock_agreed", "1x9"), "3m"
    ),
    "OncelogMoveStuck": Case(
        series(MANY, "1x90") | series(LEFT, "500x90"),
        series(MANY, "1x90") | series(LEFT, "9000-50x90"),
        "80m",
    ),
    "OncelogOldTransaction": Case(
        series("oncelog_transactions_oldest_open_seconds", "460x9"),
        series("oncelog_transactions_oldest_open_seconds", "440x9"),
        "3m",
    ),
    "OncelogGroupStuck": Case(
        series(LAG, "5x30", GROUP) | series(AGE, "0+60x30", 'group="g"'),
        series(LAG, "0x30", GROUP) | series(AGE, "0+60x30", 'group="g"'),
        "20m",
    ),
    "OncelogProducersNearLimit": Case(
        series(HELD, "81x30", PART) | series(LIMIT, "100x30"),
        series(HELD, "79x30", PART) | series(LIMIT, "100x30"),
        "15m",
    ),
    "OncelogSlowLoop": Case(
        histogram("oncelog_loop_delay_seconds", "0.25", "0+90x30"),
        histogram("oncelog_loop_delay_seconds", "0.1", "0+100x30"),
        "20m",
    ),
    "OncelogVersionsMixed": Case(
        series("oncelog_build_info", "1x200", 'version="1"')
        | series("oncelog_build_info", "1x200", 'version="2"'),
        series("oncelog_build_info", "1x200", 'version="1"'),
        "1500m",
        "10m",
    ),
    "OncelogInsecure": Case(
        series("oncelog_insecure", "1x9"), series("oncelog_insecure", "0x9"), "1m"
    ),
}


def test_of(name: str, case: Case, *, fires: bool) -> dict[str, Any]:
    """A test of promtool: the number of alerts of the name, with any labels."""
    given = case.fires if fires else case.quiet
    return {
        "name": f"{name} {'fires' if fires else 'is quiet'}",
        "interval": case.step,
        "input_series": [{"series": one, "values": values} for one, values in given.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) > 0 or vector(0)',
                "eval_time": case.at,
                "exp_samples": [{"value": int(fires)}],
            }
        ],
    }


test_of.__test__ = False  # type: ignore[attr-defined]  # it makes one


def outcome(folder: Path, rules: str, names: list[str]) -> subprocess.CompletedProcess[str]:
    (folder / "alerts.yml").write_text(rules)
    tests = [test_of(name, CASES[name], fires=fires) for name in names for fires in (True, False)]
    (step,) = {CASES[name].step for name in names}
    text = {"rule_files": ["alerts.yml"], "evaluation_interval": step, "tests": tests}
    (folder / "tests.yml").write_text(json.dumps(text))  # JSON is YAML
    return subprocess.run(
        [installed("promtool", "prometheus"), "test", "rules", str(folder / "tests.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_there_are_twenty_alerts_with_a_case_each() -> None:
    assert len(RULES) == 20
    assert set(RULES) == set(CASES)
    assert {rule.severity for rule in RULES.values()} == {"critical", "warning"}


@pytest.mark.parametrize("step", ["1m", "10m"])
def test_every_alert_fires_where_it_must_and_nowhere_else(step: str, tmp_path: Path) -> None:
    done = outcome(tmp_path, FILE.read_text(), [name for name in CASES if CASES[name].step == step])
    assert done.returncode == 0, done.stdout + done.stderr


FLIPPED = {">=": "<", "<=": ">", "==": "!=", ">": "<", "<": ">"}


@pytest.mark.parametrize("name", RULES)
def test_a_mistake_in_it_is_found(name: str, tmp_path: Path) -> None:
    """Its last comparison is turned round."""
    expr = RULES[name].expr
    found = [*re.finditer(r"[<>=]=|(?<!=)[<>]", expr)][-1]
    wrong = expr[: found.start()] + FLIPPED[found.group()] + expr[found.end() :]
    done = outcome(tmp_path, FILE.read_text().replace(expr, wrong), [name])
    assert done.returncode == 1, f"{wrong} passes: {done.stdout}"
    assert name in done.stdout + done.stderr


def test_rules_name_only_metrics_of_the_docs() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/monitoring.md").read_text(), re.M))
    for rule in RULES.values():
        for name in re.findall(r"oncelog_\w+", rule.expr):
            assert re.sub("_bucket$", "", name) in documented, rule.name


def test_each_runbook_is_a_heading_of_the_docs() -> None:
    for rule in RULES.values():
        page, _, anchor = rule.runbook.partition("#")
        text = (ROOT / page).read_text()
        titles = re.findall(r"^#+ (.*)$", text, re.M)
        anchors = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in titles}
        assert not anchor or anchor in anchors, rule.name


def test_the_docs_list_all_alerts() -> None:
    text = (ROOT / "docs/monitoring.md").read_text()
    listed = dict(re.findall(r"^\| `(Oncelog\w+)` \| (\w+) \|", text, re.M))
    assert listed == {rule.name: rule.severity for rule in RULES.values()}
