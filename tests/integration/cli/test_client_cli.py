"""The `oncelog` command end to end: output and exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from cluster.features import CLUSTER_VERSIONS
from harness.local_cluster import LocalCluster
from harness.ports import free_ports
from oncelog import Admin, BrokerUnavailableError, ConfigError, Producer, __version__
from oncelog.cli import app, names
from oncelog.cli.app import run
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Cli = Callable[..., Done]


@pytest.fixture
def cli(
    cluster: LocalCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    """Runs the command in this process against the shared cluster.

    Each begins at the same node: another may not have applied the last change yet.
    """
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", cluster.addresses[1])

    def call(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            run(list(arguments))
        out, err = capsys.readouterr()
        assert isinstance(exited.value.code, int)
        return Done(exited.value.code, out, err)

    return call


def spawn(*arguments: str, stdin: bytes = b"") -> Done:
    """Runs the command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "oncelog.cli", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


# --- as a process ------------------------------------------------------------------------


def test_bare_it_shows_its_help() -> None:
    done = spawn()
    assert done.code == 2
    assert "Usage: oncelog" in done.err
    for command in ("topic", "cluster", "producer"):
        assert command in done.err


def test_a_pipe_in_and_a_pipe_out(cluster: LocalCluster, cli: Cli, topic: str) -> None:
    assert cli("topic", "create", topic, "-p", "1").code == 0
    there = ("--bootstrap", cluster.bootstrap)
    sent = spawn("topic", "produce", topic, *there, stdin=b"one\r\ntwo\n\nlast without end")
    assert (sent.code, sent.out) == (0, "")
    assert "stored 4 records" in sent.err
    read = spawn("topic", "consume", topic, "--from", "start", "-e", *there)
    assert (read.code, read.lines) == (0, ["one", "two", "", "last without end"])


def test_nobody_there(cli: Cli) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    done = cli("cluster", "info", "--bootstrap", address, "--request-timeout-ms", "300")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("oncelog: UNAVAILABLE: ")
    assert address in done.err


# --- completion --------------------------------------------------------------------------


def test_names_are_completed_from_the_cluster(
    cluster: LocalCluster, cli: Cli, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cli("topic", "create", topic, "-p", "1").code == 0
    with Admin(bootstrap_servers=cluster.addresses[1]) as admin:
        admin.commit_offsets(f"{topic}-group", {(topic, 0): 0})
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(f'[here]\nbootstrap_servers = "{cluster.addresses[1]}"\n')
    monkeypatch.setenv("ONCELOG_PROFILES_FILE", str(profiles))
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(names, "LIMIT_MS", 60_000)  # a slow machine is no fault here

    def complete(words: str, incomplete: str) -> list[str]:
        given = ShellComplete(app.cli, {}, "oncelog", "_ONCELOG_COMPLETE")
        return [one.value for one in given.get_completions(words.split(), incomplete)]

    there = f"-b {cluster.addresses[1]}"
    assert complete(f"topic describe {there}", topic[:-1]) == [topic]
    assert complete(f"group describe {there}", topic) == [f"{topic}-group"]
    assert complete(f"node drain {there}", "") == ["1", "2", "3"]
    assert complete("--profile here node drain 1", "2") == ["2"]
    assert complete("--profile", "") == ["here"]
    monkeypatch.setattr(names, "LIMIT_MS", 1)
    assert complete("topic describe", topic) == []


# --- topics ------------------------------------------------------------------------------


def test_topic_life(cli: Cli, topic: str) -> None:
    made = cli("topic", "create", topic, "-p", "2", "-r", "3", "--retention-ms", "60000")
    assert made.code == 0, made.err
    assert topic in cli("topic", "list").out
    matched = cli("topic", "list", "--match", f"{topic[:-1]}?", "--format", "json").json
    assert [info["name"] for info in matched] == [topic]
    assert cli("topic", "list", "--match", "no-*", "--format", "json").json == []
    facts = cli("topic", "describe", topic, "--format", "json").json
    assert (facts["name"], len(facts["partitions"])) == (topic, 2)
    assert facts["config"]["retention_ms"] == 60_000
    assert all(p["leader"] in (1, 2, 3) for p in facts["partitions"])
    table = cli("topic", "describe", topic)
    assert "retention_ms" in table.out
    assert "high watermark" in table.out
    assert cli("topic", "alter", topic, "--expected-offsets", "required").code == 0
    facts = cli("topic", "describe", topic, "--format", "json").json
    assert facts["config"]["expected_offsets"] == "required"
    assert facts["config"]["retention_ms"] == 60_000, "what was not named stays"
    again = cli("topic", "create", topic)
    assert again.code == 1
    assert again.err.startswith("oncelog: TOPIC_ALREADY_EXISTS: ")
    assert cli("topic", "delete", topic, "--yes").out == f"deleted topic {topic}\n"
    gone = cli("topic", "delete", topic, "--yes")
    assert (gone.code, gone.out) == (1, "")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in gone.err
    assert len(gone.err.splitlines()) == 1, "an error is one line"


def test_alter_changes_each_setting_and_no_other(cli: Cli, topic: str) -> None:
    assert cli("topic", "create", topic, "-p", "1").code == 0
    wanted = cli("topic", "describe", topic, "--format", "json").json["config"]
    for name, word, value in [
        ("retention_ms", "5000", 5000),
        ("retention_bytes", "-1", -1),
        ("max_batch_bytes", "2048", 2048),
        ("expected_offsets", "ignored", "ignored"),
        ("formats", "both", "both"),
    ]:
        wanted[name] = value
        option = "--" + name.replace("_", "-")
        done = cli("topic", "alter", topic, option, word, "--format", "json")
        assert (done.code, done.err) == (0, "")
        assert (done.json["name"], done.json["config"]) == (topic, wanted)
    assert cli("topic", "alter", topic, "--retention-ms", "-1").out == f"altered topic {topic}\n"


def test_a_compacted_topic_shows_its_settings_and_progress(cli: Cli, topic: str) -> None:
    both = cli("topic", "create", topic, "--compact", "--cleanup-policy", "compact")
    assert both.code == 2 and "--compact and --cleanup-policy" in both.err
    assert cli("topic", "create", topic, "-p", "1", "--compact").code == 0
    wanted = cli("topic", "describe", topic, "--format", "json").json["config"]
    assert wanted["cleanup_policy"] == "compact"
    for name, word, value in [
        ("min_compaction_lag_ms", "5", 5),
        ("max_compaction_lag_ms", "70", 70),
        ("delete_retention_ms", "0", 0),
        ("min_cleanable_dirty_ratio", "0.25", 0.25),
        ("cleanup_policy", "compact_delete", "compact_delete"),
    ]:
        wanted[name] = value
        option = "--" + name.replace("_", "-")
        done = cli("topic", "alter", topic, option, word, "--format", "json")
        assert (done.code, done.err, done.json["config"]) == (0, "", wanted)
    shown = cli("topic", "describe", topic).out
    assert "min_cleanable_dirty_ratio" in shown and "compacted to" in shown


def test_less_retention_is_told_and_a_protected_profile_asks(
    cluster: LocalCluster, cli: Cli, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("topic", "create", topic, "-p", "1", "--retention-ms", "60000").code == 0
    less = ("topic", "alter", topic, "--retention-ms", "5000")
    told = cli(*less, "--dry-run")
    assert told.out.splitlines() == [
        "would: retention_ms: 60000 becomes 5000",
        "would: records beyond retention_ms 5000 are deleted",
    ]
    assert not cli(*less, "--dry-run", "--format", "json").json["undoable"]
    same = cli("topic", "alter", topic, "--retention-ms", "60000", "--dry-run")
    assert same.out == "nothing to do\n"

    profiles = tmp_path / "profiles.toml"
    node = cluster.addresses[1]
    profiles.write_text(f'[prod]\nbootstrap_servers = "{node}"\nprotected = true\n')
    monkeypatch.setenv("ONCELOG_PROFILES_FILE", str(profiles))
    refused = cli(*less, "--profile", "prod", "--yes")
    assert (refused.code, "profile prod is protected" in refused.err) == (2, True)
    config = cli("topic", "describe", topic, "--format", "json").json["config"]
    assert config["retention_ms"] == 60_000
    more = ("topic", "alter", topic, "--retention-ms", "70000", "--profile", "prod")
    assert cli(*more).code == 0, "it deletes nothing"
    assert cli(*less).code == 0


def test_alter_that_is_refused_names_field_and_limit(cli: Cli, topic: str) -> None:
    assert cli("topic", "create", topic, "-p", "1").code == 0
    before = cli("topic", "describe", topic, "--format", "json").json["config"]
    for option, word, says in [
        ("--retention-ms", "0", "retention_ms: 0 must be 1..3162240000000, or -1"),
        ("--retention-bytes", "-7", "retention_bytes: -7 must be 1..4611686018427387904, or -1"),
        ("--max-batch-bytes", "100", "max_batch_bytes: 100 must be 1024..67108864"),
    ]:
        # One bad setting keeps the good one beside it from being changed.
        done = cli("topic", "alter", topic, "--expected-offsets", "required", option, word)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"oncelog: INVALID_REQUEST: {says}")
    assert cli("topic", "describe", topic, "--format", "json").json["config"] == before
    unknown = cli("topic", "alter", f"{topic}-not", "--retention-ms", "5000")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.startswith("oncelog: UNKNOWN_TOPIC_OR_PARTITION: ")


def test_wrong_usage(cli: Cli) -> None:
    for words, says in [
        (("topic", "create"), "Missing argument"),
        (("topic", "create", "x", "--no-such-option"), "No such option"),
        (("topic", "alter", "x"), "at least one setting"),
        (("topic", "consume", "x", "--from", "middle"), "--from must be"),
        (("topic", "consume", "x", "--from", "\u00b2"), "--from must be"),
        (("group", "seek", "g", "x", "--to", "\u00b2"), "--to must be"),
        (("txn", "list", "--older-than-ms", "-1"), "is not in the range"),
        (("txn", "list", "--older-than-ms", "9223372036854775808"), "is not in the range"),
        (("quota", "set", "p", "streams=" + "9" * 40), "VALUE 0.."),
        (("topic", "produce", "x", "v", "-k", ""), "--key-separator"),
        (("cluster", "info", "--bootstrap", "nowhere"), "not host:port"),
        (("nonsense",), "No such command"),
    ]:
        done = cli(*words)
        assert (done.code, done.out) == (2, ""), words
        assert says in done.err, done.err
        assert "--help" in done.err


def test_bad_values_name_the_field(cli: Cli, topic: str) -> None:
    done = cli("topic", "create", "bad name!")
    assert done.code == 1
    assert "INVALID_REQUEST" in done.err
    assert "name" in done.err
    done = cli("topic", "create", topic, "-p", "100000")
    assert done.code == 1
    assert "partitions" in done.err


# --- records -----------------------------------------------------------------------------


def test_keys_json_and_bytes(cluster: LocalCluster, cli: Cli, topic: str) -> None:
    cli("topic", "create", topic, "-p", "1")
    sent = cli("topic", "produce", topic, "a=1", "b=2=3", "-k", "=", "--format", "json")
    assert sent.json == {"topic": topic, "stored": 2, "duplicates": 0}
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send(topic, b"\xff\x00", None, headers={"h": b"x"}).result(30)
        producer.send(topic, None, "k").result(30)
    text = cli("topic", "consume", topic, "--from", "start", "-e", "--print-key")
    assert text.lines == ["a\t1", "b\t2=3", "\t\\xff\x00", "k\t"]
    rows = [
        json.loads(line)
        for line in cli(
            "topic", "consume", topic, "--from", "start", "-e", "--format", "json"
        ).lines
    ]
    assert [(r["offset"], r["key"], r["value"]) for r in rows] == [
        (0, "a", "1"), (1, "b", "2=3"), (2, None, {"base64": "/wA="}), (3, "k", None),
    ]  # fmt: skip
    assert rows[2]["headers"] == [["h", "x"]]
    bad = cli("topic", "produce", topic, "no separator here", "-k", "=")
    assert bad.code == 1
    assert "no separator here" in bad.err


def test_from_end_from_an_offset_and_so_many(cli: Cli, topic: str) -> None:
    cli("topic", "create", topic, "-p", "2")
    values = [f"v{n}" for n in range(10)]
    assert cli("topic", "produce", topic, "-p", "0", "--compression", "zstd", *values).code == 0
    consume = ("topic", "consume", topic)
    assert cli(*consume, "-e").lines == [], "the default is the end"
    assert cli(*consume, "--from", "7", "-e").lines == values[7:]
    assert cli(*consume, "--from", "start", "-n", "3", "-p", "0").lines == values[:3]
    assert cli(*consume, "--from", "10", "-e").lines == []
    beyond = cli(*consume, "--from", "11", "-e")
    assert (beyond.code, beyond.out) == (1, "")
    assert "the highest is 10" in beyond.err
    assert cli(*consume, "-p", "2", "-e").code == 1
    assert cli("topic", "consume", "no-such-topic", "-e").code == 1


def test_from_end_prints_what_comes(cluster: LocalCluster, cli: Cli, topic: str) -> None:
    cli("topic", "create", topic, "-p", "1")
    cli("topic", "produce", topic, "before")
    reader = subprocess.Popen(
        [sys.executable, "-m", "oncelog.cli", "topic", "consume", topic, "-n", "1",
         "--bootstrap", cluster.bootstrap],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert reader.stdout is not None

        def send() -> bool:
            assert cli("topic", "produce", topic, "after").code == 0
            return reader.poll() is not None

        eventually(send, "the reader ends")
        assert (reader.wait(), reader.stdout.read()) == (0, b"after\n")
    finally:
        reader.kill()
        reader.wait()
        if reader.stdout is not None:
            reader.stdout.close()


def test_records_that_are_refused(cli: Cli, topic: str) -> None:
    cli("topic", "create", topic, "-p", "1", "--expected-offsets", "required")
    done = cli("topic", "produce", topic, "a", "b")
    assert (done.code, done.out) == (1, "")
    assert "2 of 2 records were not stored: INVALID_BATCH" in done.err


# --- cluster -----------------------------------------------------------------------------


def test_cluster_info_and_health(cluster: LocalCluster, cli: Cli) -> None:
    facts = cli("cluster", "info", "--format", "json").json
    assert {n["node_id"]: n["address"] for n in facts["nodes"]} == cluster.addresses
    assert facts["controller_id"] in cluster.addresses
    table = cli("cluster", "info")
    assert all(address in table.out for address in cluster.addresses.values())
    assert cli("cluster", "health").out == "healthy\n"
    sound = {"healthy": True, "problems": [], "notes": []}
    assert cli("cluster", "health", "--format", "json").json == sound


def test_cluster_upgrade_where_nothing_is_to_be_finalized(cli: Cli) -> None:
    shown = cli("cluster", "upgrade")
    assert shown.code == 0 and shown.out.endswith("nothing to finalize\n")
    assert f"1 to {CLUSTER_VERSIONS.newest}" in shown.out
    facts = cli("cluster", "upgrade", "--format", "json").json
    assert facts["cluster_version"] == facts["target_version"] == CLUSTER_VERSIONS.newest
    assert {node["release"] for node in facts["nodes"]} == {__version__}
    assert cli("cluster", "upgrade", "--dry-run").code == 0
    assert cli("cluster", "upgrade", "--finalize", "--yes").code == 0
    both = cli("cluster", "upgrade", "--finalize", "--dry-run")
    assert both.code == 2 and "exclude each other" in both.err


def test_health_of_a_cluster_with_a_dead_node(
    make_cluster: MakeCluster, cli: Cli, topic: str
) -> None:
    cluster = make_cluster()
    there = ("--bootstrap", cluster.addresses[1])
    assert cli("topic", "create", topic, "-p", "1", "-r", "3", *there).code == 0
    cluster.kill([2])
    eventually(lambda: cli("cluster", "health", *there).code == 1, "the dead node is missed")
    done = cli("cluster", "health", *there)
    assert done.out == ""
    assert "node 2 is down" in done.err


def test_a_pipe_copies_records_with_keys_headers_and_times(
    cluster: LocalCluster, cli: Cli, topic: str
) -> None:
    copy = f"{topic}.copy"
    for name in (topic, copy):
        cli("topic", "create", name, "-p", "2")
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send(topic, None, b"gone", timestamp_ms=1_000)
        producer.send(topic, b"\xff", b"\x00k", headers=[("h", b"1"), ("h", None)], timestamp_ms=2)
        producer.send(topic, "\u00fc\n".encode(), headers=[("x", b"\xfe")], timestamp_ms=3_000)
    read = ("topic", "consume", "--from", "start", "-e", "--format", "json")
    printed = cli(*read, topic).out
    done = cli("topic", "produce", copy, "--input", "json", stdin=printed.encode())
    assert (done.code, done.err) == (0, f"stored 3 records in {copy}\n")

    def content(lines: list[str]) -> list[str]:
        records = [json.loads(line) for line in lines]
        for record in records:
            for place in ("topic", "partition", "offset"):
                del record[place]
        return sorted(map(json.dumps, records))

    assert content(cli(*read, copy).lines) == content(printed.splitlines())
    for line, says in (
        (b"{", "line 2: not JSON"),
        (b"[]", "line 2: must be an object"),
        (b'{"value": 1}', 'line 2: value: must be text, null or {"base64"'),
        (b'{"value": {"base64": "?"}}', "line 2: value: not base64"),
        (b'{"value": "", "headers": [1]}', "line 2: headers: must be a list"),
        (b'{"value": "", "timestamp_us": "x"}', "line 2: timestamp_us: 'x' is not"),
        (b'{"value": "", "nested": 1}', "line 2: must be an object"),
    ):
        wrong = cli("topic", "produce", copy, "--input", "json", stdin=b'{"value": "a"}\n' + line)
        assert wrong.code == 1
        assert says in wrong.err


def test_consume_chooses_records_and_prints_them_in_a_format(cli: Cli, topic: str) -> None:
    cli("topic", "create", topic, "-p", "1")
    for stamp, values in (("2020-01-01T00:00Z", "ab"), ("2h", "cd"), (None, "e")):
        time = () if stamp is None else ("--timestamp", stamp)
        words = [f"key-{value}:{value}" for value in values]
        assert (
            cli("topic", "produce", topic, "-k", ":", "-H", f"n={values}", *time, *words).code == 0
        )
    read = ("topic", "consume", topic, "-e")
    cases: list[tuple[tuple[str, ...], list[str]]] = [
        (("--from", "-2"), ["d", "e"]),
        (("--from", "-9"), ["a", "b", "c", "d", "e"]),
        (("--from", "1h"), ["e"]),
        (("--from", "1d"), ["c", "d", "e"]),
        (("--from", "start", "--until", "1h"), ["a", "b", "c", "d"]),
        (("--from", "2020-06-01T00:00+01:00", "--until", "1h"), ["c", "d"]),
        (("--from", "start", "--key", "key-b"), ["b"]),
        (("--from", "start", "--header", "n=cd"), ["c", "d"]),
        (("--from", "start", "--grep", "[be]"), ["b", "e"]),
        (("--from", "start", "--grep", "[bde]", "-n", "2"), ["b", "d"]),
        (("--from", "4", "-f", r"%p\t%o %t %k=%v %h %%"), [f"0\t4 {topic} key-e=e n=e %"]),
        (("--from", "start", "-n", "1", "-f", "%T"), ["1577836800000"]),
    ]
    for options, expected in cases:
        assert cli(*read, *options).lines == expected, options
    for given, says in (
        (("--from", "yesterday"), "--from must be"),
        (("--from", "2020-01-01T00:00"), "--from must be"),
        (("--until", "soon"), "--until must be"),
        (("--header", "n"), "NAME=VALUE"),
        (("--grep", "("), "--grep: "),
        (("-f", "%x"), "-f: %x is not one of %k %v"),
        (("-f", "%v", "--print-key"), "-f excludes"),
    ):
        wrong = cli(*read, *given)
        assert (wrong.code, says in wrong.err) == (2, True), (given, wrong.err)


# --- producers ---------------------------------------------------------------------------


def test_leases_and_names(cli: Cli, topic: str) -> None:
    one = cli("producer", "lease", "--format", "json").json
    two = cli("producer", "lease", "--format", "json").json
    assert one["producer_id"] != two["producer_id"]
    assert "lifetime ms" in cli("producer", "lease").out
    name = f"name-{topic}"
    first = cli("producer", "lease", "--name", name, "--format", "json").json
    second = cli("producer", "lease", "--name", name, "--format", "json").json
    assert (second["producer_id"], second["epoch"]) == (first["producer_id"], first["epoch"] + 1)
    fenced = cli("producer", "fence", name, "--format", "json").json
    assert fenced["epoch"] == second["epoch"] + 1

    def epoch_listed() -> int:
        listed = cli("producer", "list", "--format", "json").json
        return next((n["epoch"] for n in listed if n["name"] == name), -1)

    # The node that answers may hear of it a moment later.
    eventually(lambda: epoch_listed() == fenced["epoch"], "the new epoch is listed")
    assert name in cli("producer", "list").out
    unknown = cli("producer", "fence", "nobody-has-it")
    assert unknown.code == 1
    assert "PRODUCER_NAME_NOT_FOUND" in unknown.err


def test_describe_and_resolve(cluster: LocalCluster, cli: Cli, topic: str) -> None:
    cli("topic", "create", topic, "-p", "1")
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        producer.send_batch(topic, 0, [b"0", b"1"])
        stored = producer.send(topic, b"2").result(30)
    pid = str(stored.producer_id)
    (state,) = cli("producer", "describe", topic, "0", "--format", "json").json
    assert (state["producer_id"], state["last_sequence"]) == (stored.producer_id, 2)
    assert pid in cli("producer", "describe", topic, "0", "--producer-id", pid).out
    assert cli("producer", "describe", topic, "0", "--producer-id", "999999999").code == 1
    found = cli("producer", "resolve", topic, "0", pid, "1", "--format", "json")
    assert (found.code, found.json["resolution"], found.json["offset"]) == (0, "committed", 1)
    ahead = cli("producer", "resolve", topic, "0", pid, "3", "--epoch", "0", "--format", "json")
    assert (ahead.code, ahead.json["resolution"]) == (1, "not_yet")


def test_a_port_that_is_no_nodes_is_named_at_once(
    cli: Cli, cluster: LocalCluster, topic: str
) -> None:
    """A metrics page, or a port without TLS, will never answer: no wait for the time-out."""
    page = cluster.metrics_addresses[1]
    done = cli("topic", "list", "-b", page)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"bootstrap_servers: {page}: an HTTP/1 server answers there" in done.err
    with (
        Producer(bootstrap_servers=page) as producer,
        pytest.raises(ConfigError, match="metrics page"),
    ):
        producer.send(topic, b"never")
    with Admin(bootstrap_servers=cluster.bootstrap, tls=True) as admin:
        with pytest.raises(ConfigError, match="does not speak TLS"):
            admin.list_topics()


def test_a_port_that_may_be_the_peers_is_told(cluster: LocalCluster) -> None:
    host, _, port = cluster.addresses[1].rpartition(":")
    with Admin(bootstrap_servers=f"{host}:{int(port) + 10_000}", request_timeout_ms=500) as admin:
        with pytest.raises(BrokerUnavailableError, match="peer_port_offset above"):
            admin.list_topics()
