"""The image: bill of materials, labels, health check, and packages for other processors."""

from __future__ import annotations

import importlib.metadata
import json
import re
import runpy
import subprocess
import sys
import tomllib
from typing import Any

from harness.node_process import ROOT

SCRIPT = ROOT / "packaging/image/sbom.py"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SOURCE_ONLY = {"pysyncobj"}  # pure Python: scripts/wheelhouse builds it
DEBIAN = """\
Package: libc6
Status: install ok installed
Architecture: arm64
Version: 2.41-12+deb13u1
Description: GNU C Library
 A second line: of it.

Package: gone
Status: deinstall ok config-files
Architecture: arm64
Version: 1:2.0
"""


def test_the_bill_names_what_is_installed() -> None:
    command = [sys.executable, "-I", "-B", str(SCRIPT), "1.2.3", "/"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    bill = json.loads(done.stdout)
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    places = [one["purl"] for one in bill["components"]]
    assert places == sorted(set(places))
    assert f"pkg:pypi/grpcio@{importlib.metadata.version('grpcio')}" in places


def test_the_bill_names_debians_packages() -> None:
    of_debian = runpy.run_path(str(SCRIPT))["of_debian"]
    (found,) = of_debian(DEBIAN, 'ID=debian\nVERSION_ID="13"\n')
    place = "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=arm64&distro=debian-13"
    assert (found["version"], found["purl"]) == ("2.41-12+deb13u1", place)


def test_the_labels() -> None:
    labels = re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]+)"', DOCKERFILE)
    filled = {*re.findall(r'--build-arg "(\w+)=', (ROOT / "scripts/image").read_text())}
    for name, text in labels:
        assert {*re.findall(r"\$\{(\w+)\}", text)} <= filled, f"scripts/image does not fill {name}"
    asked = "title description url source documentation vendor licenses version revision created"
    assert {name for name, _ in labels} == {*asked.split(), "base.name", "base.digest"}


def test_nothing_runs_on_the_processor_of_the_image() -> None:
    """Else an image for another processor needs an emulation of it."""
    stages = re.split(r"^(?=FROM )", DOCKERFILE, flags=re.MULTILINE)[1:]
    here = [stage for stage in stages if "--platform=${BUILDPLATFORM" in stage]
    assert [stage.count("\nRUN ") for stage in here] == [3]
    assert not any("\nRUN " in stage for stage in stages if stage not in here)


def test_the_health_check_imports_nothing_that_takes_time() -> None:
    (text,) = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    python, *options, path = json.loads(text)
    assert (python, options) == ("python", ["-I", "-S"])
    script = ROOT / path.removeprefix("/app/")
    code = f"exec(compile(open({str(script)!r}).read(), 'check', 'exec'), {{'__name__': 'check'}})"
    code = f"import sys; own = {{*sys.modules}}; {code}; print(*{{*sys.modules}} - own)"
    command = [sys.executable, *options, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    loaded = {*done.stdout.split()}
    assert "_socket" in loaded
    assert not loaded & {"socket", "ssl", "re", "urllib", "json", "asyncio", "grpc", "cluster"}


def needed(extras: list[str]) -> dict[str, list[str]]:
    """Packages of the lock behind our extras, each with its wheels."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    known = {one["name"]: one for one in packages}
    found: dict[str, list[str]] = {}
    waiting: list[dict[str, Any]] = [{"name": "oncelog", "extra": extras}]
    while waiting:
        wanted = waiting.pop()
        package = known[wanted["name"]]
        for extra in wanted.get("extra", []):
            waiting += package["optional-dependencies"].get(extra, [])
        if wanted["name"] not in found:
            found[wanted["name"]] = [one["url"] for one in package.get("wheels", [])]
            waiting += package.get("dependencies", [])
    del found["oncelog"]
    return found


def test_each_package_of_the_image_has_a_wheel_for_arm64() -> None:
    extras = re.findall(r"--extra (\w+)", DOCKERFILE)
    assert {"node", "console"} <= {*extras}
    packages = needed(extras)
    assert {"grpcio", "starlette", "rocksdict", "pysyncobj", "cffi"} <= {*packages}
    python = "".join(re.findall(r"^ARG BASE=python:(\d)\.(\d+)", DOCKERFILE, re.MULTILINE)[0])
    fits = re.compile(rf"-(cp{python}|cp3\d+-abi3|py3|py2\.py3)[-.].*(any|manylinux\w*_aarch64)")
    lacking = {name for name, wheels in packages.items() if not any(map(fits.search, wheels))}
    assert lacking == SOURCE_ONLY
