"""librdkafka's own tests. The crate rdkafka-sys holds librdkafka with them; make builds it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence

from tests.suites.outcome import Case
from tests.suites.places import FOLDER, cluster_of, require, step

VERSION = "4.10.0+2.12.1"
HOME = FOLDER / f"librdkafka-{VERSION}"
SOURCE = HOME / "vendor" / "rdkafka-sys" / "librdkafka"
TESTS = SOURCE / "tests"
TIMEOUT = 120.0  # seconds for a test
# Idempotence, transactions, retries and order.
QUICK = ("0001", "0005", "0008", "0012", "0013", "0014", "0015", "0017", "0022", "0029", "0031",
         "0034", "0041", "0046", "0048", "0054", "0056", "0070", "0073", "0074", "0075", "0086",
         "0090", "0103", "0112", "0114", "0122", "0130")  # fmt: skip
# These need no node: librdkafka's unit tests, and tests against its own mock.
NO_NODE = frozenset(
    {"0000", "0009", "0105", "0138", "0139", "0143", "0144", "0145", "0146", "0147", "0148"}
)
SCRIPTS = "calls the scripts of a Kafka installation"
CANNOT = {
    "0011": "wants errors of single records, of compacted topics",
    **dict.fromkeys(("0052", "0077", "0092", "0109", "0115", "0119"), SCRIPTS),
    "0081": "sets settings of topics that do not exist here",
    "0129": "sets segment.bytes, which does not exist here",
}  # fmt: skip
# These make topics of three replicas.
THREE_NODES = frozenset({"0103"})
# Parts of a test that can pass, by a part of their names. The others of 0103 want records of an
# open transaction below the high watermark, a hole in the offsets behind an abort, and the end of
# a producer that can go on.
PARTS = {"0103": ("misuse_txn", "producer_txn", "fenced_txn", "empty_txn")}


def build() -> None:
    """Fetch and build librdkafka and its tests, once."""
    require("cargo", "make", "c++")
    if (TESTS / "test-runner").exists():
        return
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / "Cargo.toml").write_text(
        '[package]\nname = "tests-of-librdkafka"\nversion = "0.0.0"\n[lib]\npath = "empty.rs"\n'
        f'[dependencies]\nrdkafka-sys = "={VERSION.partition("+")[0]}"\n[workspace]\n'
    )
    (HOME / "empty.rs").touch()
    step("cargo", "vendor", "--quiet", "vendor", cwd=HOME)
    step("./configure", cwd=SOURCE)
    step("make", "-j2", "libs", cwd=SOURCE)
    step("make", "-C", "tests", "-j2", "build", cwd=SOURCE)


def run(only: Sequence[str], *, quick: bool) -> Iterator[Case]:
    build()
    numbers = {path.name[:4] for path in TESTS.glob("0[0-9][0-9][0-9]-*.c*")} - NO_NODE
    wanted = only or (QUICK if quick else sorted(numbers))
    for nodes in (1, 3):
        chosen = [number for number in wanted if (number in THREE_NODES) == (nodes == 3)]
        if chosen:
            yield from _run_at(nodes, chosen)


def _run_at(nodes: int, numbers: Sequence[str]) -> Iterator[Case]:
    """Run tests against a cluster of so many nodes."""
    with cluster_of(nodes) as (_, servers):
        (TESTS / "test.conf").write_text(f"bootstrap.servers={servers}\n")
        for number in numbers:
            begun = time.monotonic()
            text = _failure(number)
            word = "failed" if text else "passed"
            print(f"{number} {word} {time.monotonic() - begun:5.1f} s", flush=True)
            yield Case(number, not text, text=text)


def _failure(number: str) -> str:
    """Run one test, or the parts of it that can pass; return its output if it failed."""
    return next(filter(None, (_part(number, part) for part in PARTS.get(number, ("",)))), "")


def _part(number: str, part: str) -> str:
    """Run one part in a process of its own; return its output if it failed."""
    libraries = f"{SOURCE / 'src'}:{SOURCE / 'src-cpp'}"
    environment = {**os.environ, "TESTS": number, "LD_LIBRARY_PATH": libraries}
    if part:
        environment["SUBTESTS"] = part
    try:
        done = subprocess.run(
            ["./test-runner", "-p1", "-Q"], cwd=TESTS, env=environment, timeout=TIMEOUT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", text=True,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not done after {TIMEOUT} s"
    return (done.stdout or "no output") if done.returncode else ""
