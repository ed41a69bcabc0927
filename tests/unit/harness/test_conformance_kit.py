"""The conformance kit itself: its cases are sound, its table is fresh, its parts can say no."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from conformance.broker import payloads
from conformance.broker.cluster import Cluster
from conformance.broker.journal import Journal
from conformance.cases import FEATURES, VERBS, CaseError, load, names_of_lies
from conformance.command import known_failing, page, verdicts
from conformance.drivers.python_driver import CALLBACKS, MEMBERS, Driver
from conformance.drivers.python_driver import FEATURES as OFFERED
from conformance.judge import RULES, Evidence, Sent, Staging, judge
from conformance.matching import mismatch
from conformance.matrix import MATRIX, tree_clients
from conformance.runner import DEFAULTS, Outcome
from conformance.vectors import ROOT, Vector, name_of
from oncelog.config import SECURITY_SETTINGS, ConsumerConfig, ProducerConfig
from oncelog.v1 import transaction_pb2

CLASSES = {
    "codec",
    "window",
    "leader",
    "leases",
    "names",
    "sequences",
    "refused",
    "outcome",
    "pressure",
    "reading",
    "offsets",
    "admin",
    "transactions",
    "placement",
    "recreated",
}
DRIVER_PAGE = (ROOT / "conformance" / "DRIVER.md").read_text(encoding="utf-8")


def test_the_checker_imports_nothing_of_the_nodes():
    """The broker runs the nodes' services, so what judges it must not."""
    for part in ("cases", "judge", "matching"):
        text = (ROOT / "conformance" / f"{part}.py").read_text(encoding="utf-8")
        assert not re.findall(r"^\s*(?:from|import) cluster\b", text, re.MULTILINE), part


def test_there_are_cases_of_each_class():
    cases = load()
    assert len(cases) >= 60
    assert {case.group for case in cases} >= CLASSES


def test_each_vector_is_written_and_read():
    names = {case.name for case in load()}
    vectors = {path.stem for path in (ROOT / "tests" / "vectors").glob("*.json")}
    assert len(vectors) >= 10
    assert names >= {f"{verb}-{vector}" for verb in ("reads", "writes") for vector in vectors}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('section = "No such heading"', "section"),
        ('section = "Sending"\nneeds = ["wings"]', "needs"),
        ('section = "Sending"\nallow = ["everything"]', "allow"),
        ('section = "Sending"\nspets = []', "spets"),
        ('section = "Sending"\nlies = [{at = "prodoce"}]', "at"),
        ('section = "Sending"\nlies = [{at = "produce", anwser = "none"}]', "anwser"),
        ('section = "Sending"\nsees = [{call = "prodoce"}]', "call"),
        ('section = "Sending"\nsteps = [{verb = "sned"}]', "sned"),
        ('section = "Sending"\nsteps = [{cluster = "explode"}]', "explode"),
        ('section = "Sending"\nsteps = [{handle = "p"}]', "a step is one of"),
        ('section = "Sending"', "no steps"),
    ],
)
def test_a_misspelt_case_is_an_error(tmp_path: Path, line: str, complaint: str):
    text = f'[[case]]\nname = "x"\nabout = "x"\n{line}\n'
    (tmp_path / "some.toml").write_text(text)
    with pytest.raises(CaseError, match=complaint):
        load(tmp_path)


def test_a_name_stands_once(tmp_path: Path):
    one = '[[case]]\nname = "x"\nabout = "x"\nsection = "Sending"\nsteps = [{verb = "defaults"}]\n'
    (tmp_path / "a.toml").write_text(one)
    assert [case.name for case in load(tmp_path)] == ["x"]
    (tmp_path / "b.toml").write_text(one)
    with pytest.raises(CaseError, match="stand twice: x"):
        load(tmp_path)


# --- the pages ----------------------------------------------------------------------------


def test_the_driver_page_names_each_verb_and_feature():
    for word in (*VERBS, *FEATURES, "hello", "reset", "exit"):
        assert f"`{word}`" in DRIVER_PAGE, word


def test_the_python_driver_carries_out_each_verb():
    driver = Driver()
    for verb in VERBS:
        answer = driver.answer({"verb": verb})
        assert answer.get("error", {}).get("reason") != "NOT_OFFERED", verb
    assert driver.answer({"verb": "fly"})["error"]["reason"] == "NOT_OFFERED"
    # The asyncio client alone has this case: a call that its caller gives up.
    assert set(OFFERED) | {"zstd", "lz4", "cancel"} == set(FEATURES)


def test_the_readme_names_what_a_lie_may_say():
    text = (ROOT / "conformance" / "README.md").read_text(encoding="utf-8")
    for word in names_of_lies():
        assert re.search(rf"`{word}\b", text), word


def test_the_table_of_clients_is_fresh():
    cases = load()
    clients = tree_clients()
    assert MATRIX.read_text(encoding="utf-8") == page(cases, clients), (
        "conformance/run --tree --update"
    )
    for client in clients:
        results = json.loads(client.results.read_text(encoding="utf-8"))
        assert set(results) == {case.name for case in cases}, client.name
        assert "failed" not in results.values(), client.name


@pytest.mark.parametrize("name", ["python", "python_asyncio"])
def test_the_python_client_fails_nothing(name: str):
    (python,) = (client for client in tree_clients() if client.name == name)
    assert python.known_failing is None
    results = json.loads(python.results.read_text(encoding="utf-8"))
    # Spark calls no coroutine, and a caller can give up coroutines only.
    group = "sinks" if name == "python_asyncio" else "cancelled"
    missing = {case.name for case in load() if case.group == group}
    assert {case for case, result in results.items() if result != "passed"} == missing


def test_client_defaults_are_those_of_the_python_client():
    wanted = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    servers = ("127.0.0.1:1",)
    producer = dataclasses.asdict(ProducerConfig(bootstrap_servers=servers))
    consumer = dataclasses.asdict(ConsumerConfig(bootstrap_servers=servers))
    # Python's own settings, and Kafka's words for fixed behaviour: the other clients need none. The
    # defaults of TLS and tokens are all empty.
    own = {"bootstrap_servers", "client_id", *SECURITY_SETTINGS}
    assert set(producer) - set(wanted["producer"]) == {
        *own, "acks", "retries", "partitioner", "resume_from", "compression_level"
    }  # fmt: skip
    assert set(consumer) - set(wanted["consumer"]) == {
        *own, *MEMBERS, *CALLBACKS, "isolation_level", "consumer_timeout_ms"
    }  # fmt: skip
    assert set(wanted["member"]) == set(MEMBERS)
    for kind, real in (("producer", producer), ("consumer", consumer), ("member", consumer)):
        assert {name: real[name] for name in wanted[kind]} == wanted[kind]


# --- its parts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found", "fault"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, ""),
        ({"a": 1}, {"b": 2}, "a is missing"),
        ({"a": 1}, {"a": True}, "a: True instead of 1"),
        ({"a": "<any>"}, {"a": None}, ""),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, r"a\[1\].b: 3 instead of 2"),
        ([1], [1, 2], "instead of"),
        ({"a": {"b": 1}}, {"a": None}, "a: None"),
        (None, None, ""),
        ([], [], ""),
        ([], [1], "instead of"),
    ],
)
def test_matching(wanted: object, found: object, fault: str):
    said = mismatch(wanted, found)
    assert re.search(fault, said) if fault else said == ""


def test_payloads_of_the_kit_are_the_vectors():
    vector = Vector.load("01-one-value")
    assert payloads.pack([b"hello"], vector.max_timestamp_us) == vector.stored("none")
    assert name_of(0, vector.stored("none")) == "01-one-value"
    assert name_of(0, payloads.corrupted(vector.stored("none"))) == ""
    assert name_of(1, Vector.load("06-nine-records").stored("zstd")) == "06-nine-records"


def test_known_failing_needs_a_reason(tmp_path: Path):
    path = tmp_path / "known.txt"
    path.write_text("# a comment\n\nanswer-lost # the stream is not watched\n")
    known = known_failing(path)
    assert known == {"answer-lost": "the stream is not watched"}
    cases = {case.name: case for case in load()}
    outcomes = [
        Outcome(cases["answer-lost"], "failed", ("why",), 0.0),
        Outcome(cases["first-batch"], "passed", (), 0.0),
    ]
    assert verdicts(outcomes, known) == {"answer-lost": "known failing", "first-batch": "passed"}
    # A client that passes is taken off the list.
    assert verdicts(outcomes, {"first-batch": "why"})["first-batch"] == "failed"
    path.write_text("answer-lost\n")
    with pytest.raises(ValueError, match="no reason"):
        known_failing(path)


# --- the judge ----------------------------------------------------------------------------


class Stand:
    """A cluster with the topic t, and a journal to write in."""

    def __init__(self) -> None:
        self.cluster = Cluster(1, lambda: 1_700_000_000_000, 3_600_000)
        self.cluster.add_node(1, "127.0.0.1:1")
        self.cluster.create_topic("t")
        self.journal = Journal()
        self.producer_id = self.cluster.new_id()
        self.token = self.cluster.token(self.producer_id, 0)
        self.last_id = 0
        self.sent: list[Sent] = []

    def batch(self, first: int, value: bytes, *, same_id: bool = False, prev: int | None = None):
        """A batch comes, and is not answered."""
        self.last_id += not same_id
        batch = payloads.batch("t", 0, payloads.pack([value], 1), timestamp_us=1, codec=0)
        batch.id = self.last_id
        batch.header.producer_id = self.producer_id
        batch.header.base_sequence = first
        prev = first - 1 if prev is None else prev
        if prev == -1:
            batch.lease_token = self.token
        facts = {
            "topic": "t", "partition": 0, "producer_id": self.producer_id, "epoch": 0,
            "first": first, "last": first, "prev": prev,
        }  # fmt: skip
        self.journal.add("produce", facts, batch)
        return batch

    def result(self, verdict: str) -> None:
        facts = {"topic": "t", "partition": 0, "id": self.last_id, "verdict": verdict}
        self.journal.add("result", facts, None)

    def record(self, tag: str, value: bytes, result: dict[str, object]) -> None:
        self.sent.append(Sent("p", tag, "t", 0, [value], result))

    def faults(self) -> str:
        return "\n".join(judge(Evidence(self.journal, self.cluster, self.sent), ()))


def ok(offset: int) -> dict[str, object]:
    return {"ok": {"partition": 0, "offset": offset}}


def test_the_judge_has_nothing_against_a_retry():
    stand = Stand()
    for batch in (stand.batch(0, b"a"), stand.batch(0, b"a"), stand.batch(1, b"b")):
        stand.cluster.partitions["t", 0].append(batch)
    stand.record("a", b"a", ok(0))
    stand.record("b", b"b", ok(1))
    assert stand.faults() == ""


def test_the_judge_has_nothing_against_the_place_of_a_refused_batch():
    stand = Stand()
    stand.batch(0, b"a")
    stand.result("INVALID_BATCH")
    stand.batch(0, b"b")
    assert stand.faults() == ""


def test_rule_identical():
    stand = Stand()
    stand.batch(0, b"a")
    stand.batch(0, b"b")
    assert "identical: sequence 0" in stand.faults()


def test_rule_new_ids():
    stand = Stand()
    stand.batch(0, b"a")
    stand.batch(0, b"a", same_id=True)
    assert stand.faults().startswith("new_ids:")


def test_rule_token():
    stand = Stand()
    stand.batch(0, b"a").lease_token = b""
    assert stand.faults().startswith("token:")


def test_rule_chain():
    stand = Stand()
    stand.batch(0, b"a")
    stand.batch(2, b"c")
    assert stand.faults().startswith("chain:")


def test_rule_window():
    stand = Stand()
    for number in range(5):
        stand.batch(number, b"%d" % number)
    assert stand.faults() == ""
    stand.batch(5, b"5")
    assert stand.faults().startswith("window:")


def test_rule_stored():
    stand = Stand()
    stand.cluster.partitions["t", 0].append(stand.batch(0, b"a"))
    stand.record("a", b"a", ok(0))
    assert stand.faults() == ""
    stand.record("b", b"b", ok(0))
    assert "b: acknowledged at 0, where b'a' is" in stand.faults()
    stand.sent[1:] = []
    stand.record("c", b"c", ok(-1))
    assert "c: acknowledged without an offset" in stand.faults()
    stand.sent[:] = []
    stand.record("a", b"a", {"error": {"outcome": "not_stored"}})
    assert "a: not_stored, but b'a' is in the log" in stand.faults()


def test_rule_whole():
    stand = Stand()
    stand.cluster.append_others("t", 0, ["a"])
    staging = Staging()
    for value in (b"a", b"b"):
        stand.record(value.decode(), value, ok(-1))
        stand.sent[-1].staging = staging
    for outcome in ("open", "committed", "aborted", "unknown"):
        staging.outcome = outcome
        assert f"whole: 1 of 2 records of a transaction ({outcome})" in stand.faults()
    stand.cluster.append_others("t", 0, ["b"])
    for outcome in ("committed", "unknown"):
        staging.outcome = outcome
        assert stand.faults() == ""


def test_rule_once():
    stand = Stand()
    stand.record("a", b"a", ok(0))
    stand.record("b", b"b", ok(1))
    stand.cluster.append_others("t", 0, ["b", "a"])
    assert "does not hold what p sent in its order" in stand.faults()
    stand.cluster.append_others("t", 0, ["a"])
    assert "b'a' is in t-0 2 times" in stand.faults()


def test_rule_same_commit():
    stand = Stand()
    runs = [transaction_pb2.StagedRun(topic="t", partition=n) for n in range(2)]
    for order in (runs, runs, runs[::-1]):
        assert stand.faults() == ""
        commit = transaction_pb2.CommitTransactionRequest(runs=order)
        stand.journal.add("commit_transaction", {"transaction": 7}, commit)
    assert stand.faults().startswith("same_commit: the commit of transaction 7")


def test_each_rule_is_shown_to_bite():
    shown = {name.removeprefix("test_rule_") for name in globals() if name.startswith("test_rule_")}
    assert shown == set(RULES)
