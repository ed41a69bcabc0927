"""Downloads of the peers from package registries, once, by the registries' ordinary clients.

All lands in ~/.cache/oncelog-bench (or ONCELOG_BENCH_CACHE): jars from Maven Central,
programs built from Go modules, Debian packages unpacked and not installed, so that the system
starts none of their services. A missing tool is installed by apt-get if this runs as root; else
the error names the package to install.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from bench.processes import BenchError, run_text
from bench.systems.face import Unavailable

_DOWNLOAD_S = 600.0
_DONE = ".complete"
_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}
_MIN_JAVA = 17


def cache() -> Path:
    given = os.environ.get("ONCELOG_BENCH_CACHE")
    path = Path(given) if given else Path.home() / ".cache" / "oncelog-bench"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def tool(program: str, package: str) -> Path:
    """Finds a program, from its Debian package if need be. Raises Unavailable."""
    found = shutil.which(program)
    if found is None and _may_install():
        try:
            _apt_update()
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
            run_text(install, _DOWNLOAD_S, env=_QUIET)
        except BenchError as error:
            raise Unavailable(f"{program} is missing: {error}") from None
        found = shutil.which(program)
    if found is None:
        raise Unavailable(f"{program} is missing: apt-get install {package}")
    return Path(found)


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _apt_update() -> None:
    run_text(["apt-get", "update", "-qq"], _DOWNLOAD_S, env=_QUIET)


def java() -> Path:
    """Finds a Java runtime of at least version 17, which Kafka 4 brokers need."""
    path = tool("java", "default-jre-headless")
    text = run_text([path, "--version"], 60)
    version = re.search(r"\d+", text)
    if version is None or int(version.group()) < _MIN_JAVA:
        raise Unavailable(f"Java {_MIN_JAVA} or later is needed, there is {text.splitlines()[0]}")
    return path


def maven(name: str, artifacts: Iterable[str]) -> Path:
    """Directory with these artifacts ("group:artifact:version") and their dependencies."""
    wanted = sorted(artifacts)
    directory = cache() / name
    if _complete(directory, wanted):
        return directory
    mvn = tool("mvn", "maven")
    _clear(directory)
    pom = directory / "pom.xml"
    pom.write_text(_pom(wanted))
    _download(
        [mvn, "-q", "-B", "-f", pom, "dependency:copy-dependencies",
         f"-DoutputDirectory={directory}", "-DincludeScope=runtime"],
        directory,
    )  # fmt: skip
    _finish(directory, wanted)
    return directory


def _pom(artifacts: Iterable[str]) -> str:
    rows = []
    for one in artifacts:
        group, artifact, version = one.split(":")
        rows.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>peer</artifactId><version>1</version>"
        f"<dependencies>{''.join(rows)}</dependencies></project>\n"
    )


def go_program(name: str, module: str, version: str) -> Path:
    """Program that `go install MODULE@VERSION` builds."""
    directory = cache() / f"{name}-{version}"
    if not _complete(directory, [module, version]):
        go = tool("go", "golang-go")
        _clear(directory)
        _download([go, "install", f"{module}@{version}"], directory, {"GOBIN": str(directory)})
        _finish(directory, [module, version])
    (program,) = (path for path in directory.iterdir() if path.name != _DONE)
    return program


def debian(name: str, package: str, also: str) -> Path:
    """Directory with the unpacked package, and its dependencies that match `also`.

    also: a regular expression of package names; other dependencies are on the system.
    """
    directory = cache() / name
    if _complete(directory, [package, also]):
        return directory
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable(f"{package} comes as a Debian package, and this is no Debian")
    needs = _needs(package)
    # Packages stand at the start of a line, their dependencies below, indented.
    found = {line for line in needs.splitlines() if re.fullmatch(also, line)}
    names = sorted(found | {package})
    _clear(directory)
    _download(["apt-get", "download", *names], directory)
    for file in directory.glob("*.deb"):
        run_text(["dpkg-deb", "-x", file, directory], _DOWNLOAD_S)
        file.unlink()
    _finish(directory, [package, also])
    return directory


def _needs(package: str) -> str:
    """Output of `apt-cache depends` for a package. Raises Unavailable."""
    command = [
        "apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests",
        "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", package,
    ]  # fmt: skip
    try:
        try:
            return run_text(command, _DOWNLOAD_S)
        except BenchError:
            if not _may_install():
                raise
            _apt_update()  # a fresh image has no lists of packages
            return run_text(command, _DOWNLOAD_S)
    except BenchError as error:
        raise Unavailable(f"apt knows no {package}: {error}") from None


def _download(
    command: list[str | Path], directory: Path, env: dict[str, str] | None = None
) -> None:
    try:
        run_text(command, _DOWNLOAD_S, env=env, cwd=directory)
    except BenchError as error:
        shutil.rmtree(directory)
        raise Unavailable(f"the registry gave no {directory.name}: {error}") from None


def _complete(directory: Path, what: Iterable[str]) -> bool:
    try:
        return (directory / _DONE).read_text() == "\n".join(what)
    except OSError:
        return False


def _clear(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


def _finish(directory: Path, what: Iterable[str]) -> None:
    (directory / _DONE).write_text("\n".join(what))
