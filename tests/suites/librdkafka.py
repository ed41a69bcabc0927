"""librdkafka's own tests. The crate rdkafka-sys holds librdkafka with them.

All tests run with that librdkafka, which make builds. The tests of CI run with the one that comes
with confluent-kafka: only they are compiled, in a few seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import confluent_kafka

from tests.suites.outcome import Case
from tests.suites.places import FOLDER, cluster_of, require, step

VERSION = "4.10.0+2.12.1"
HOME = FOLDER / f"librdkafka-{VERSION}"
SOURCE = HOME / "vendor" / "rdkafka-sys" / "librdkafka"
TESTS = SOURCE / "tests"
ALL_TESTS, SOME_TESTS = TESTS / "test-runner", TESTS / "runner-of-ci"
TIMEOUT = 300.0  # seconds for a test
QUICK = ("0075", "0076", "0090", "0094", "0103")  # retries, idempotence and transactions
# Sources of SOME_TESTS beside the tests themselves.
HELPERS = ("test.c", "rusage.c", "sockem.c", "sockem_ctrl.c", "../src/tinycthread.c",
           "../src/tinycthread_extra.c", "../src/rdlist.c")  # fmt: skip
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


def build(*, quick: bool) -> Path:
    """Fetch and build the tests, once; returns the program."""
    require("cargo", "make", "c++")
    program = SOME_TESTS if quick else ALL_TESTS
    if program.exists():
        return program
    fetched = HOME / "fetched"
    if not fetched.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        (HOME / "Cargo.toml").write_text(
            '[package]\nname = "tests-of-librdkafka"\nversion = "0.0.0"\n[lib]\n'
            f'path = "empty.rs"\n[dependencies]\nrdkafka-sys = "={VERSION.partition("+")[0]}"\n'
            "[workspace]\n"
        )
        (HOME / "empty.rs").touch()
        step("cargo", "vendor", "--quiet", "vendor", cwd=HOME)
        fetched.touch()
    step("./configure", cwd=SOURCE)
    if quick:
        _compile_some(program)
    else:
        step("make", "-j2", "libs", cwd=SOURCE)
        step("make", "-C", "tests", "-j2", "build", cwd=SOURCE)
    return program


def _compile_some(program: Path) -> None:
    """Compile the tests of CI. The list of all tests in test.c names the others as well."""
    names = re.findall(r"_TEST_DECL\((\w+)\)", (TESTS / "test.c").read_text())
    weak = TESTS / "weak.h"
    weak.write_text("".join(f"#pragma weak main_{name}\n" for name in names))
    tests = [path for number in QUICK for path in sorted(TESTS.glob(f"{number}-*.c"))]
    step("cc", "-w", "-I../src", "-include", weak, *HELPERS, *tests, "-rdynamic", _library(),
         "-lpthread", "-lm", "-ldl", "-o", program, cwd=TESTS)  # fmt: skip


def _library() -> Path:
    """Find the librdkafka that comes with confluent-kafka."""
    package = Path(confluent_kafka.__file__).parent
    (found,) = package.parent.glob("confluent_kafka.libs/librdkafka-*.so*")
    return found


def run(only: Sequence[str], *, quick: bool) -> Iterator[Case]:
    some = quick and not only
    program = build(quick=some)
    numbers = {path.name[:4] for path in TESTS.glob("0[0-9][0-9][0-9]-*.c*")} - NO_NODE
    wanted = only or (QUICK if some else sorted(numbers))
    for nodes in (1, 3):
        chosen = [number for number in wanted if (number in THREE_NODES) == (nodes == 3)]
        if chosen:
            yield from _run_at(nodes, program, chosen)


def _run_at(nodes: int, program: Path, numbers: Sequence[str]) -> Iterator[Case]:
    """Run tests against a cluster of so many nodes."""
    with cluster_of(nodes) as (_, servers):
        (TESTS / "test.conf").write_text(f"bootstrap.servers={servers}\n")
        for number in numbers:
            begun = time.monotonic()
            text = _failure(program, number)
            word = "failed" if text else "passed"
            print(f"{number} {word} {time.monotonic() - begun:5.1f} s", flush=True)
            yield Case(number, not text, text=text)


def _failure(program: Path, number: str) -> str:
    """Run one test, or the parts of it that can pass; return its output if it failed."""
    parts = (_part(program, number, part) for part in PARTS.get(number, ("",)))
    return next(filter(None, parts), "")


def _part(program: Path, number: str, part: str) -> str:
    """Run one part in a process of its own; return its output if it failed."""
    own = program == ALL_TESTS
    libraries = f"{SOURCE / 'src'}:{SOURCE / 'src-cpp'}" if own else str(_library().parent)
    # CI: its limits of time are three times as long.
    environment = {**os.environ, "TESTS": number, "LD_LIBRARY_PATH": libraries, "CI": "true"}
    if part:
        environment["SUBTESTS"] = part
    try:
        done = subprocess.run(
            [program, "-p1", "-Q"], cwd=TESTS, env=environment, timeout=TIMEOUT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", text=True,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not done after {TIMEOUT} s"
    return (done.stdout or "no output") if done.returncode else ""
