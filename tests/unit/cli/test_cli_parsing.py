"""The command line without a cluster: usage errors, table cells and JSON output."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from oncelog.cli.app import cli, run
from oncelog.cli.nodes import of_machine
from oncelog.cli.options import common
from oncelog.cli.output import print_facts, print_table, text
from oncelog.cli.record_formats import json_bytes
from oncelog.cli.records import _split
from oncelog.cli.streams import progress
from oncelog.types import ClusterInfo, NodeInfo, NodeStatus
from oncelog.views.cluster import find_problems, find_small, find_warnings
from oncelog.views.tables import node_rows
from oncelog.views.words import when


def every_command(group: click.Group = cli, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command, where = group.get_command(context, name), (*path, name)
        assert command is not None
        found += every_command(command, where) if isinstance(command, click.Group) else [where]
    return found


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_every_command_has_help_bootstrap_and_format(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        run([*path, "--help"])
    assert exited.value.code == 0
    out = capsys.readouterr().out
    assert out.lower().startswith(f"usage: oncelog {' '.join(path)}")
    # Certificates and tokens are made on one machine alone: there is no cluster to ask.
    wanted = ("--bootstrap", "--format", "ONCELOG_BOOTSTRAP", "--tls-ca-file")
    alone = {
        "certs": ("--dir",),
        "completion": ("~/.bashrc",),
        "acl token": ("--help",),
        "server": ("--data-dir",),
    }
    for option in alone.get(path[0], alone.get(" ".join(path), wanted)):
        assert option in out, option


@pytest.mark.parametrize("path", sorted({path[:-1] for path in every_command()}), ids=" ".join)
def test_descriptions_fit_a_line_of_their_groups_help(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run([*path, "--help"])
    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert listed and not [line for line in listed if "..." in line or not line[2:3].strip()]


# Numbers that no message can carry: the option and the limit, not a trace.
BEYOND = [
    (f"{words} {number}", f"{number} is not in {limits}")
    for words, number, limits in [
        ("topic alter t --retention-ms", 2**63, f"{1 - 2**63}..{2**63 - 1}"),
        ("topic alter t --retention-bytes", -(2**63), f"{1 - 2**63}..{2**63 - 1}"),
        ("topic alter t --max-batch-bytes", 2**31, f"{1 - 2**31}..{2**31 - 1}"),
        ("topic create t -p", 2**31, f"{1 - 2**31}..{2**31 - 1}"),
        ("topic create t -r", 2**31, f"{1 - 2**31}..{2**31 - 1}"),
        ("topic create t --timeout-ms", 2**31, f"the range 1<=x<={2**31 - 1}"),
        ("topic produce t v -p", 2**31, f"the range 0<=x<={2**31 - 1}"),
        ("producer describe t", 2**31, f"the range 0<=x<={2**31 - 1}"),
        ("producer describe t 0 --producer-id", 2**63, f"the range 1<=x<={2**63 - 1}"),
        ("producer resolve t 0 1", 2**63, f"the range 0<=x<={2**63 - 1}"),
    ]
]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("topic produce t v --compression gzip", "'gzip' is not one of"),
        ("topic produce t v -p -1", "-1 is not in the range"),
        ("topic consume t -n 0", "0 is not in the range"),
        ("topic create t --timeout-ms 0", "0 is not in the range"),
        ("producer resolve t 0 0 0", "0 is not in the range"),
        ("producer resolve t 0 1 0 --epoch -1", "-1 is not in the range"),
        ("producer describe t", "Missing argument 'PARTITION'"),
        ("cluster health --format xml", "'xml' is not one of"),
        ("cluster health -b host", "'host' is not host:port"),
        ("cluster health -b ,", "name at least one node"),
        ("topic alter t", "name at least one setting to change"),
        ("topic alter t --retention-ms soon", "'--retention-ms': 'soon' is not a valid integer"),
        ("topic alter t --expected-offsets no", "'checked', 'ignored', 'required'"),
        *BEYOND,
    ],
)
def test_usage_errors_are_one_line_and_exit_with_2(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        run(words.split())
    assert exited.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert len(err.splitlines()) == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        run(["--version"])
    assert exited.value.code == 0
    assert re.fullmatch(r"oncelog, version \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [("a", 5), ("[b]x", None), ("c", 123)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == [
        "name  count", "a         5", "[b]x      -", "c       123",
    ]  # fmt: skip
    print_facts([("one", True), ("three", (1, 2))])
    assert capsys.readouterr().out == "one    yes\nthree  1,2\n"


def test_times_and_bytes() -> None:
    assert when(0) == "-"
    assert when(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert when(10**18) == f"{10**18} ms"
    assert text(b"\xffok") == "\\xffok"
    assert text(None) is None
    assert json_bytes(b"\xff") == {"base64": "/w=="}
    assert json_bytes("ü".encode()) == "ü"


def test_splitting_lines() -> None:
    assert _split(b"a:b:c", ":") == (b"a", b"b:c")
    assert _split(b"abc", None) == (None, b"abc")
    with pytest.raises(click.ClickException, match="no ':' in 'abc'"):
        _split(b"abc", ":")


def test_problems() -> None:
    nodes = (NodeInfo(1, "a:1", clock_disagrees=True), NodeInfo(2, "b:1", alive=False))
    facts = ClusterInfo("c", 1, 0, nodes, 1, 6, 2, 3, 1000)
    assert find_problems(facts) == [
        "node 2 is down",
        "node 1: its clock is not the one a majority agrees on",
        "no controller",
        "2 partitions without a leader",
        "3 partitions under-replicated",
    ]
    assert not facts.healthy
    sound = ClusterInfo("c", 1, 1, (NodeInfo(1, "a:1"),), 1, 6, 0, 0, 1000)
    assert sound.healthy
    assert find_problems(sound) == []
    insecure = ClusterInfo("c", 1, 1, (NodeInfo(1, "a:1", insecure=True),), 1, 6, 0, 0, 1000)
    assert insecure.healthy
    assert find_warnings(sound) == []
    assert find_warnings(insecure) == [
        "node 1 is insecure: it listens without TLS beyond its machine"
    ]
    crowded = replace(sound, crowded_partitions=("t-0: in rack a",))
    assert crowded.healthy, "a rolling restart that brings the labels waits for health"
    assert find_warnings(crowded) == ["t-0: in rack a"]
    wrong = (NodeInfo(1, "a:1", clock_disagrees=True),)
    assert not ClusterInfo("c", 1, 1, wrong, 1, 6, 0, 0, 1000).healthy


def test_topics_that_were_made_when_there_were_fewer_nodes() -> None:
    topics: Any = [SimpleNamespace(name=f"t{n}", replica_count=n) for n in (1, 2, 3)]
    assert find_small(1, topics) == []
    assert find_small(2, topics) == [
        "topic t1 has 1 replica, and there are 2 nodes: oncelog topic alter t1 --replicas 2"
    ]
    assert [note.split()[1] for note in find_small(5, topics)] == ["t1", "t2"]
    assert find_small(5, topics[:1] * 8)[-1] == "and 3 more topics with fewer than 3 replicas"


def test_a_machine_is_found_by_its_label_and_rack() -> None:
    status = NodeStatus(1, "", True, False, False, False, False, 0, 0, 0, 0)
    labels = {1: ("a", "m1"), 101: ("a", "m1"), 2: ("b", "m1"), 3: ("b", "m2"), 4: ("", "")}
    nodes = [replace(status, node_id=n, rack=r, machine=m) for n, (r, m) in labels.items()]
    assert of_machine(nodes, "m2", None) == of_machine(nodes, "m2", "b") == (3,)
    assert of_machine(nodes, "m1", "a") == (1, 101)
    with pytest.raises(click.UsageError, match="machine: 'm1' is in racks a, b; set --rack"):
        of_machine(nodes, "m1", None)
    for machine, rack in (("m3", None), ("m1", "c")):
        with pytest.raises(click.UsageError, match="no node has the label"):
            of_machine(nodes, machine, rack)


def test_nodes_have_a_column_for_votes_if_one_learns() -> None:
    votes = NodeStatus(1, "h:1", True, False, False, False, False, 4, 2, 0, 0)
    coming = replace(votes, node_id=3, expected=True)
    assert "metadata" not in node_rows([votes]).columns
    listing = node_rows([votes, replace(votes, node_id=2, metadata_learner=True), coming])
    place = listing.columns.index("metadata")
    assert [row[place] for row in listing.rows] == ["votes", "learns", None]


def test_a_command_imports_no_module_of_another() -> None:
    program = (
        "import sys\nfrom oncelog.cli.app import run\ntry:\n    run(['topic', 'list', '--help'])\n"
        "except SystemExit:\n    print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert "oncelog.cli.topics" in imported
    others = {"oncelog.cli.groups", "oncelog.cli.records", "oncelog.producer", "oncelog.consumer"}
    heavy = {"crc32c", "cryptography", "rich", "oncelog._engine.produce"}
    assert not imported & (others | heavy)


@pytest.mark.parametrize("before", [None, "false"])
def test_security_flags_hold_for_one_command(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """A program may run several commands, and clients of its own."""
    name, seen = "ONCELOG_CLIENT_TLS", list[str | None]()
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)

    @click.command()
    @common
    def shown(**_: Any) -> None:
        seen.append(os.environ.get(name))
        raise click.ClickException("it may fail")

    assert CliRunner().invoke(shown, ["--tls"]).exit_code == 1
    assert (seen, os.environ.get(name)) == (["true"], before)


def test_tables_escape_what_would_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "x"), [("a\x1b[2J\n", "日本"), ("é日", "b")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["name        x", "a\\x1b[2J\\n  日本", "é日         b"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_progress_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(lambda: "copied 7 records"):
        pass
    assert stream.getvalue() == ("\rcopied 7 records\x1b[K\r\x1b[K" if shown else "")
