"""franz-go's tests of its client pkg/kgo, from the Go module proxy, against three nodes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.suites.outcome import Case
from tests.suites.places import FOLDER, cluster_of, require, step

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.3"
HOME = FOLDER / f"franz-go-{VERSION}"
PROGRAM = HOME / "kgo.test"
RECORDS, QUICK_RECORDS = 50_000, 20_000  # for a test of groups or transactions
TIMEOUT = "20m"  # of all tests together
QUICK = ("TestTxnEtl",)
CANNOT: dict[str, str] = {
    "TestConsumeRegex": "wants the topic __consumer_offsets",
}


def build() -> Path:
    """Fetch the module and compile its tests, once; returns the package's folder."""
    require("go")
    HOME.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false"}
    told = step("go", "mod", "download", "-json", f"{MODULE}@{VERSION}", cwd=HOME, env=env)
    package = Path(json.loads(told)["Dir"]) / "pkg" / "kgo"
    if not PROGRAM.exists():
        env["GOFLAGS"] = "-mod=readonly -buildvcs=false"
        step("go", "test", "-c", "-o", PROGRAM, ".", cwd=package, env=env)
    return package


def run(only: Sequence[str], *, quick: bool) -> Iterator[Case]:
    package = build()
    wanted = only or (QUICK if quick else ())
    chosen = [f"-test.run=^({'|'.join(wanted)})$"] if wanted else []
    with cluster_of(3) as (_, servers):
        environment = {
            **os.environ,
            "KGO_SEEDS": servers,
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": str(QUICK_RECORDS if quick else RECORDS),
            "KGO_LOG_LEVEL": "none",
        }
        with subprocess.Popen(
            ["go", "tool", "test2json", "-t", PROGRAM, "-test.v=test2json",
             f"-test.timeout={TIMEOUT}", *chosen],
            cwd=package, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as tests:  # fmt: skip
            assert tests.stdout is not None
            yield from events(tests.stdout)


def events(lines: Iterable[str]) -> Iterator[Case]:
    """Read the events of test2json."""
    output: dict[str, list[str]] = {}
    running: set[str] = set()
    failed = 0
    for line in lines:
        if not line.startswith("{"):
            print(line, end="", flush=True)
            continue
        event = json.loads(line)
        name, action = event.get("Test", ""), event["Action"]
        if action == "output":
            output.setdefault(name, []).append(event["Output"])
        elif action == "run":
            running.add(name)
        elif action in ("pass", "fail", "skip") and name:
            running.discard(name)
            failed += action == "fail"
            text = "".join(output.pop(name, ()))
            print(f"{name} {action} {event.get('Elapsed', 0):.1f} s", flush=True)
            yield Case(name, action == "pass", action == "skip", text)
        elif action == "fail" and (running or not failed):  # a panic, or the timeout
            yield Case("kgo.test", False, text="".join(output.get("", ())))
