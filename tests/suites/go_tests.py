"""Tests of a Go module: fetched by the go command, compiled once, run under test2json."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.suites.outcome import Case
from tests.suites.places import FOLDER, require, step

PROGRAM = "the program"  # name of the case for a panic, or the timeout
TIMEOUT = "20m"  # of all tests together


@dataclass(frozen=True, slots=True)
class GoTests:
    """Tests of one package. package: its folder in the module. tags: of the build."""

    module: str
    version: str
    package: str = "."
    tags: str = ""

    @property
    def home(self) -> Path:
        return FOLDER / f"{self.module.rpartition('/')[2]}-{self.version}"

    def run(self, only: Sequence[str], environment: Mapping[str, str]) -> Iterator[Case]:
        """Run the tests of these names, or all."""
        package, program = self._build()
        chosen = [f"-test.run=^({'|'.join(only)})$"] if only else []
        with subprocess.Popen(
            ["go", "tool", "test2json", "-t", program, "-test.v=test2json",
             f"-test.timeout={TIMEOUT}", *chosen],
            cwd=package, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as tests:  # fmt: skip
            assert tests.stdout is not None
            yield from events(tests.stdout)

    def _build(self) -> tuple[Path, Path]:
        """Fetch the module and compile its tests, once; returns the package's folder and them."""
        require("go")
        self.home.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false"}
        told = step(
            "go", "mod", "download", "-json", f"{self.module}@{self.version}",
            cwd=self.home, env=env,
        )  # fmt: skip
        package = Path(json.loads(told)["Dir"]) / self.package
        program = self.home / "tests"
        if not program.exists():
            env["GOFLAGS"] = "-mod=readonly -buildvcs=false"
            step("go", "test", "-c", f"-tags={self.tags}", "-o", program, ".", cwd=package, env=env)
        return package, program


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
        elif action == "fail" and (running or not failed):
            yield Case(PROGRAM, False, text="".join(output.get("", ())))
