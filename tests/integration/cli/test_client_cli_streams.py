"""The `oncelog` command among other programs: bytes, streams that are missing or full, Ctrl-C."""

from __future__ import annotations

import array
import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from harness.local_cluster import LocalCluster
from harness.node_process import ROOT
from oncelog import Admin, Consumer
from oncelog.cli.app import run as run_here
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually

BYTES = b"\xff\xfe caf\xe9"  # no UTF-8


@pytest.fixture
def made(admin: Admin, topic: str) -> str:
    admin.create_topic(topic, partitions=1)
    return topic


def command(*words: str | bytes) -> list[str | bytes]:
    return [sys.executable, "-m", "oncelog.cli", *words]


def run(
    cluster: LocalCluster,
    *words: str | bytes,
    shell: str = 'exec "$@"',
    **given: Any,
) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own; `shell`: a script that starts it as "$@"."""
    environment = {**os.environ, "ONCELOG_BOOTSTRAP": cluster.bootstrap, **given.pop("env", {})}
    given.setdefault("input", b"")
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *command(*words)],
        cwd=ROOT, env=environment, capture_output=True, timeout=60, check=False, **given,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    assert b"Exception ignored" not in done.stderr, done.stderr.decode(errors="replace")
    return done


def stored(cluster: LocalCluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        tps = [(topic, 0)]
        consumer.assign(tps)
        (end,) = consumer.end_offsets(consumer.assignment()).values()
        found: list[tuple[bytes | None, bytes | None]] = []
        while len(found) < end:
            for records in consumer.getmany(timeout_ms=1000).values():
                found += [(record.key, record.value) for record in records]
    return found


def test_values_and_separators_are_bytes(cluster: LocalCluster, made: str) -> None:
    assert run(cluster, "topic", "produce", made, BYTES).returncode == 0
    done = run(cluster, "topic", "produce", made, b"k\xffv", "-k", b"\xff")
    assert (done.returncode, done.stderr) == (0, f"stored 1 record in {made}\n".encode())
    assert stored(cluster, made) == [(None, BYTES), (b"k", b"v")]
    done = run(cluster, "topic", "produce", made, b"k\xffv", "-k", b"\xfe")
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert rb"value 1: no '\xfe' in 'k\xffv'" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", BYTES),
        ("topic", "produce", BYTES, "v"),
        ("topic", "consume", BYTES),
        ("topic", "consume", "t", "--from", BYTES),
        ("topic", "delete", BYTES, "--yes"),
        ("group", "describe", BYTES),
        ("group", "seek", "g", "t", "--to", BYTES),
        ("producer", "lease", "--name", BYTES),
        ("producer", "fence", BYTES),
        ("sink", "reset", BYTES, "--yes"),
        ("txn", "list", "--name", BYTES),
        ("acl", "add", BYTES, "read", "topic", "t"),
        ("acl", "list", "--principal", BYTES),
        ("acl", "token", BYTES),
        ("quota", "set", BYTES, "streams=1"),
        ("quota", "set", "p", BYTES),
        ("cluster", "config", "get", BYTES),
        ("mirror", BYTES, "t"),
        ("bench", "consume", BYTES),
        ("bench", "produce", "t", "--setting", BYTES),
        ("certs", "client", BYTES),
        ("certs", "node", "1", "--host", BYTES),
        ("topic", "list", "-b", BYTES),
        ("topic", "list", "--tls-ca-file", BYTES),
        (BYTES,),
    ],
    ids=lambda words: "-".join(word for word in words if isinstance(word, str)),
)
def test_names_that_are_no_utf8_are_refused(
    cluster: LocalCluster,
    words: tuple[str | bytes, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", cluster.bootstrap)
    here = ["--dir", str(tmp_path)] if words[0] == "certs" else []
    with pytest.raises(SystemExit) as exited:
        run_here([*map(os.fsdecode, words), *here])
    assert exited.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("oncelog: ")


def test_a_closed_stdin(cluster: LocalCluster, made: str) -> None:
    done = run(cluster, "topic", "produce", made, shell='exec "$@" <&-')
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"standard input: Bad file descriptor; give VALUEs" in done.stderr
    given = run(cluster, "topic", "produce", made, "v", shell='exec "$@" <&-')
    assert given.returncode == 0


@pytest.mark.parametrize(
    ("words", "shell"),
    [
        (("topic", "list"), 'exec "$@" >/dev/full'),
        (("--help",), 'exec "$@" >/dev/full'),
        (("topic", "list"), 'exec "$@" >&-'),
        (("topic", "consume", "TOPIC", "-e", "--from", "start"), 'exec "$@" >/dev/full'),
    ],
)
def test_a_stdout_that_takes_nothing(
    cluster: LocalCluster, made: str, words: tuple[str, ...], shell: str
) -> None:
    run(cluster, "topic", "produce", made, "v")
    done = run(cluster, *(made if word == "TOPIC" else word for word in words), shell=shell)
    assert done.returncode == 1
    why = b"Bad file descriptor" if "&-" in shell else b"No space left on device"
    assert done.stderr == b"oncelog: standard output: " + why + b"\n"


def test_a_reader_that_went_away(cluster: LocalCluster, made: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command("topic", "list", "-b", cluster.bootstrap),
            cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_output_that_is_ascii(cluster: LocalCluster, made: str) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    run(cluster, "topic", "produce", made, "caf\u00e9")
    read = ("topic", "consume", made, "-e", "--from", "start")
    done = run(cluster, *read, env=ascii_only)
    assert (done.returncode, done.stdout) == (0, rb"caf\xe9" + b"\n")
    done = run(cluster, *read, "--format", "json", env=ascii_only)
    assert json.loads(done.stdout)["value"] == "caf\u00e9"


def test_a_line_that_is_too_long_is_named_with_what_was_stored(
    cluster: LocalCluster, made: str
) -> None:
    lines = b"first\nsecond\n" + b"x" * (65 * 1024 * 1024) + b"\nnever\n"
    done = run(cluster, "topic", "produce", made, input=lines)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr.startswith(b"oncelog: line 3: ")
    assert done.stderr.endswith(b"; 2 records before it were stored\n")
    assert stored(cluster, made) == [(None, b"first"), (None, b"second")]


def test_ctrl_c_says_what_is_stored(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("t", partitions=1, replicas=1)
    with subprocess.Popen(
        command("topic", "produce", "t", "-b", cluster.bootstrap),
        cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stderr is not None
        pipe = process.stdin.fileno()

        def say(line: bytes) -> None:
            os.write(pipe, line)
            eventually(lambda: not _waiting(pipe), "the line is read")

        say(b"stored\n")
        eventually(lambda: len(stored(cluster, "t")) == 1, "it is stored")
        cluster.nodes[1].signal(signal.SIGSTOP)
        say(b"under way\n")
        say(b"read\n")  # so the line before it was sent; this one may have been
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    cluster.nodes[1].signal(signal.SIGCONT)
    assert process.returncode == 130
    assert re.search(rb"interrupted: 1 record stored, of [12] more it is not known\n", said), said
    assert b"Traceback" not in said


def _waiting(descriptor: int) -> int:
    """Bytes in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        (("topic", "delete"), "Delete topic {} and all its records? This cannot be undone."),
        (("group", "delete"), "Delete group {} and its offsets? This cannot be undone."),
    ],
)
def test_a_person_is_asked_before_something_is_deleted(
    cluster: LocalCluster,
    admin: Admin,
    made: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    asks: str,
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", cluster.addresses[1])
    admin.commit_offsets(made, {(made, 0): 0})
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # no terminal
    with pytest.raises(SystemExit) as refused:
        run_here([*words, made])
    assert refused.value.code == 2
    assert "give --yes, since standard input is not a terminal" in capsys.readouterr().err
    for answer, code, is_asked in (("n", 130, True), ("y", 0, True), ("", 1, False)):
        monkeypatch.setattr(sys, "stdin", _Terminal(f"{answer}\n"))
        with pytest.raises(SystemExit) as exited:
            run_here([*words, made, *([] if is_asked else ["--yes"])])
        assert exited.value.code == code
        assert (asks.format(made) in "".join(capsys.readouterr())) is is_asked
