"""Errors and verdicts are one table: oncelog/errors.py, with the codes of wire/reasons.py.

The trees of the four other clients, the drivers' page and the protocol's verdicts are read here and
compared with it. So a new error or verdict that is missing somewhere fails by its name.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cluster.dedup.verdict import Kind
from oncelog import errors
from oncelog.v1 import log_pb2
from oncelog.wire.reasons import BY_REASON, CODES
from oncelog.wire.verdicts import RETRIABLE, STORED

ROOT = Path(__file__).resolve().parents[3]
# Python's own: sinks are Spark's, extras are pip's.
ONLY_HERE = (errors.SinkError, errors.MissingExtraError)
TOPS = {errors.RetriableError: "RETRIABLE", errors.FatalError: "FATAL", errors.OncelogError: ""}
ROOTS = {"RETRIABLE": "", "FATAL": ""}
VERDICTS = {name.removeprefix("VERDICT_"): n for name, n in log_pb2.Verdict.items()}


def tree(of: type[errors.OncelogError] = errors.OncelogError) -> dict[str, str]:
    """Reason -> reason above it."""
    found: dict[str, str] = {}
    for cls in of.__subclasses__():
        if cls in ONLY_HERE or cls.__module__ != errors.__name__:
            continue  # tests make some, too
        if cls not in TOPS:
            found[cls.reason] = TOPS.get(of, of.reason)
        found |= tree(cls)
    return found


def source(path: str) -> str:
    return (ROOT / "clients" / path).read_text(encoding="utf-8")


def pairs(pattern: str, text: str) -> list[tuple[str, ...]]:
    found = re.findall(pattern, text, re.MULTILINE)
    assert len(found) > 30, "the table was not found"
    return found


def go() -> tuple[dict[str, str], set[str]]:
    text = source("go/errors.go")
    rows = pairs(r'(Err\w+)\s+= kind\("(\w+)", (\w+)\)', text)
    reasons = {"nil": ""} | {name: reason for name, reason, _ in rows}
    own = re.findall(r"Err\w+", text[text.index("var own") :].partition("}")[0])
    return {reason: reasons[above] for _, reason, above in rows}, {reasons[name] for name in own}


def java() -> tuple[dict[str, str], set[str]]:
    text = source("java/src/main/java/io/github/oncelog/client/ErrorKind.java")
    rows = pairs(r"^  ([A-Z_]+)\((\w+)\)[,;]", text)
    own = text[text.index("EnumSet.of(") + 11 :].partition(")")[0]
    return {r: above.replace("null", "") for r, above in rows}, set(re.findall(r"\w+", own))


def node() -> tuple[dict[str, str], set[str]]:
    text = source("node/src/errors.ts")
    rows = pairs(r'^  ([A-Z_]+): "?(\w+)"?,$', text)
    own = text[text.index("const OWN") :].partition("]")[0]
    return {r: above.replace("undefined", "") for r, above in rows}, set(
        re.findall(r'"(\w+)"', own)
    )


def rust() -> tuple[dict[str, str], set[str]]:
    text = source("rust/src/errors.rs")
    rows = pairs(r'^    (\w+) = "(\w+)" below (\w+),', text)
    reasons = {"Retriable": "RETRIABLE", "Fatal": "FATAL"} | {name: r for name, r, _ in rows}
    own = text[text.index("fn is_own") :].partition(")\n    }")[0]
    roots = ROOTS | {"INVALID_CONFIG": ""}
    known = {reason: reasons[above] for _, reason, above in rows}
    return roots | known, roots.keys() | {reasons[n] for n in re.findall(r"Self::(\w+)", own)}


@pytest.mark.parametrize("client", [go, java, node, rust])
def test_each_client_has_the_same_tree(client):
    found, own = client()
    assert found == tree() | ROOTS
    assert own == found.keys() - BY_REASON.keys()


def test_the_drivers_page_has_a_row_of_each_error():
    page = (ROOT / "conformance" / "DRIVER.md").read_text(encoding="utf-8")
    rows = {
        reason: (retriable == "yes", text)
        for names, retriable, text in re.findall(r"^\| ([A-Z_, ]+) \| (yes|no) \|(.*)$", page, re.M)
        for reason in names.split(", ")
    }
    above = {*tree().values()}
    for cls in BY_REASON.values():
        if cls.reason not in above:
            retriable, text = rows[cls.reason]
            assert retriable is cls.retriable, cls.reason
            assert cls is errors.ThrottledError or all(
                f"`{n}`" in text for n, _ in cls.detail_types
            )


def test_a_verdicts_number_gives_its_class():
    assert {name: n for name, n in VERDICTS.items() if n in STORED}.keys() == {
        "APPENDED", "DUPLICATE", "STAGED",
    }  # fmt: skip
    for name, number in VERDICTS.items():
        cls = BY_REASON.get(name)
        if number in RETRIABLE:
            assert cls is None or cls.retriable, name
        elif number >= 10:
            assert cls is not None and issubclass(cls, errors.DeliveryError), name
    assert {kind.name: kind.value for kind in Kind if kind < 100} == VERDICTS


def test_errors_of_the_network_have_reasons_of_their_own():
    assert len(BY_REASON) == len(CODES)
    assert all("reason" in vars(cls) for cls in CODES)
