"""docs/protocol.md is all that an author of a client has: nothing of the contract is missing."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import pytest

from oncelog.v1 import (
    batch_pb2,
    cluster_pb2,
    group_pb2,
    log_pb2,
    producer_pb2,
    transaction_pb2,
)
from oncelog.wire.status import ERROR_CODES
from oncelog.wire.verdicts import RETRIABLE, STORED

PAGE = (Path(__file__).resolve().parents[3] / "docs/protocol.md").read_text()
FILES = (log_pb2, producer_pb2, group_pb2, cluster_pb2, transaction_pb2)
CALLS = [
    method.name
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def names(enum: Any, prefix: str) -> list[str]:
    return [value.name.removeprefix(prefix) for value in enum.DESCRIPTOR.values]


VERDICTS = names(log_pb2.Verdict, "VERDICT_")[1:]
PARTITION_ERRORS = names(log_pb2.PartitionError, "PARTITION_ERROR_")[1:]


def table(heading: str) -> list[str]:
    """The rows of the first table at or behind some words."""
    lines = PAGE[PAGE.index(heading) :].splitlines()
    rows = dropwhile(lambda line: not line.startswith("|"), lines)
    return list(takewhile(lambda line: line.startswith("|"), rows))


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_described(name):
    assert any(f"`{name}`" in row for row in table("## The calls"))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_has_a_reaction(verdict):
    assert any(re.search(rf"\b{verdict}\b", row) for row in table("| verdict | reaction |"))


def test_what_is_retried_is_what_the_client_retries():
    rows = [row for row in table("| verdict | reaction |") if "etry" in row]
    retried = {verdict for verdict in VERDICTS if any(verdict in row.split("|")[1] for row in rows)}
    numbers = {log_pb2.Verdict.Value(f"VERDICT_{verdict}") for verdict in retried}
    assert numbers == RETRIABLE
    assert not numbers & STORED


@pytest.mark.parametrize("name", [*PARTITION_ERRORS, *names(log_pb2.Resolution, "RESOLUTION_")])
def test_every_answer_to_a_reader_is_described(name):
    assert re.search(rf"^\| {name} \|", PAGE, re.MULTILINE)


# The verdicts' reasons are described above; some come as the status of a call, too.
@pytest.mark.parametrize("error", ERROR_CODES, ids=lambda error: error.reason)
def test_every_reason_has_its_code(error):
    rows = re.findall(rf"^\| {error.reason} \| ([A-Z_]+) \| (yes|no)\b(.*)$", PAGE, re.MULTILINE)
    if not rows:
        assert error.reason in (*VERDICTS, "OFFSET_OUT_OF_RANGE")
        return
    ((code, retriable, details),) = rows
    assert code == ERROR_CODES[error].name
    assert (retriable == "yes") is error("x").retriable
    for detail, _ in error.detail_types:
        assert f"`{detail}`" in details


@pytest.mark.parametrize("field", batch_pb2.BatchHeader.DESCRIPTOR.fields_by_name)
def test_every_field_of_a_batch_is_described(field):
    if field in ("topic", "partition", "record_count"):
        return
    assert f"`{field}`" in PAGE
