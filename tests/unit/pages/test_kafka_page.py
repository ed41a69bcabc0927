"""docs/kafka.md against the code: calls, versions, error numbers."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.config.settings import SETTINGS
from cluster.dedup.verdict import Kind
from cluster.kafka.errors import Error, of_verdict
from cluster.kafka.messages import CALLS
from cluster.kafka.needs import NEEDS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "kafka.md").read_text("utf-8")
# Never an answer.
HIDDEN = {"UNSPECIFIED", "JOINED", "STAGED_DUPLICATE", "UNREGISTERED"}


def test_the_page_names_every_call_with_its_versions() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) to (\d+)", PAGE, re.MULTILINE)
    found = {int(key): (int(oldest), int(newest)) for _, key, oldest, newest in rows}
    assert found == {call.key: (call.oldest, call.newest) for call in CALLS.values()}


def test_the_page_has_every_setting_of_the_port() -> None:
    rows = re.findall(r"^\| `(kafka_\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(one.name for one in SETTINGS if one.name.startswith("kafka_"))


def test_each_call_has_its_rights_on_the_page_of_security() -> None:
    """In the column of calls, with the operation and the kind of the table in the code."""
    _, text = (DOCS / "security.md").read_text("utf-8").split("| call of Kafka's protocol |")
    rows = [row.split("|")[1:3] for row in text.split("\n\n")[0].splitlines()[2:]]
    for call in CALLS.values():
        (needs,) = [need for names, need in rows if re.search(rf"\b{call.name}\b", names)]
        operation, kind = NEEDS[call.key]
        assert f"{operation} on the {kind}" in needs if kind else "nothing" in needs, call.name


def test_the_page_gives_each_verdict_the_number_that_clients_get() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| (\d+)(?: \((\w+)\))?", PAGE, re.MULTILINE)
    assert {verdict for verdict, _, _ in rows} == {kind.name for kind in Kind} - HIDDEN
    for verdict, number, name in rows:
        assert of_verdict(Kind[verdict]) == int(number), verdict
        assert not name or Error[name] == int(number)
    named = re.findall(r"(\d+) \(([A-Z_]+)\)", PAGE)
    assert named and all(Error[name] == int(number) for number, name in named)
