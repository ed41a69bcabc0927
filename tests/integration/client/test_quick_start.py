"""README's quick start, typed as it stands, in an empty directory, from wheels of this tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Typed(NamedTuple):
    """A command, and its output according to README."""

    command: str
    printed: list[str]


def blocks() -> list[tuple[str, str]]:
    """Language and text of each block of the section."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Quick start\n")[1]
    found = BLOCK.findall(section.split("\n## ")[0])
    assert [language for language, _ in found] == ["console", "console", "python", "text"]
    return found


def typed(block: str) -> Iterator[Typed]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *printed = part.splitlines()
        yield Typed(command, printed)


class Stranger:
    """Somebody with an empty directory, an empty environment, and a network of their own."""

    def __init__(self, home: Path, wheels: Path) -> None:
        self.home, self.network = home, f"quick-start-{os.getpid()}"
        venv = home.parent / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        given = {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "HOME": str(home)}
        versions = wheels / "constraints.txt"
        versions.write_text(locked_versions(), encoding="utf-8")
        own = {"PIP_CONSTRAINT": str(versions), "PIP_CACHE_DIR": str(wheels / "cache")}
        wheel_folders = [str(wheels), *os.environ.get("PIP_FIND_LINKS", "").split()]
        own["PIP_FIND_LINKS"] = " ".join(wheel_folders)
        kept = ("PYTHON", "ONCELOG_", "VIRTUAL_ENV", "PIP_FIND_LINKS")
        others = {k: v for k, v in os.environ.items() if not k.startswith(kept)}
        self.environment = others | given | own

    def start(self, command: str, *, online: bool = False) -> subprocess.Popen[str]:
        prefix = [] if online else ["ip", "netns", "exec", self.network]
        return subprocess.Popen(
            [*prefix, "bash", "-c", command],
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, *, online: bool = False) -> list[str]:
        process = self.start(command, online=online)
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, f"{command}: {error}"
        return (out + error).replace(str(self.home), "/home/you").splitlines()


def locked_versions() -> str:
    """Versions of packages that this tree is tested with."""
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    found = re.findall(r'^name = "([^"]+)"\nversion = "([^"]+)"\nsource = \{ registry', lock, re.M)
    # A package with two versions is for two releases of Python.
    names = [name for name, _ in found]
    return "".join(f"{name}=={version}\n" for name, version in found if names.count(name) == 1)


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    if os.geteuid():
        pytest.skip("a network of its own needs root; port 7001 may be somebody else's")
    wheels, home = tmp_path / "wheels", tmp_path / "home"
    home.mkdir()
    for folder in (ROOT, ROOT / "packaging" / "server"):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
        subprocess.run(build, cwd=folder, check=True, capture_output=True)
    made = Stranger(home, wheels)
    subprocess.run(["ip", "netns", "add", made.network], check=True)
    try:
        made.run("ip link set lo up")
        yield made
    finally:
        subprocess.run(["ip", "netns", "delete", made.network], check=True)


def test_the_quick_start_says_what_is_seen(stranger: Stranger) -> None:
    (_, install), (_, records), (_, program), (_, printed) = blocks()
    pip, server = typed(install)
    assert pip.printed == []
    stranger.run(f"{pip.command} --quiet", online=True)
    general = "import importlib.util as u; print(u.find_spec('cluster'), u.find_spec('storage'))"
    assert stranger.run(f'python -c "{general}"') == ["None None"], "names too general for others"
    node = stranger.start(f"exec {server.command}")
    try:
        assert node.stdout is not None
        for line in server.printed:
            seen = node.stdout.readline().rstrip("\n").replace(str(stranger.home), "/home/you")
            assert seen == line
        for step in typed(records):
            assert stranger.run(step.command) == step.printed
        assert stranger.run("oncelog cluster health") == ["healthy"]
        (stranger.home / "example.py").write_text(program, encoding="utf-8")
        assert sorted(stranger.run("python example.py")) == sorted(printed.splitlines())
    finally:
        node.terminate()
        node.communicate(timeout=60)
    assert node.returncode == 0
