"""Kafka's own Java producers, as a load of numbers and as sessions with transactions.

Each is a process of java/KafkaWriter.java, which says and is told everything by lines.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from harness.local_cluster import LocalCluster
from tests.chaos.kafka_producers import DELIVERY_MS, FLUSH_TIMEOUT, Load
from tests.chaos.kafka_transactions import EndedError, MustAbortError, Session
from tests.integration.kafka.kafka_rig import servers
from tests.suites.places import FOLDER, jars, step

HAS_JAVA = all(shutil.which(program) for program in ("java", "javac", "mvn"))
VERSION = "4.3.1"
HOME = FOLDER / f"kafka-writer-{VERSION}"
SOURCE = Path(__file__).parent / "java" / "KafkaWriter.java"
ANSWERS = {"abort": MustAbortError, "ended": EndedError}


@cache
def build() -> str:
    """Fetch the client and compile the program; returns the class path."""
    libraries = jars(HOME / "lib", ("org.apache.kafka", "kafka-clients", VERSION))
    step("javac", "-nowarn", "-cp", f"{libraries}/*", "-d", HOME, SOURCE, cwd=HOME)
    return f"{HOME}:{libraries}/*"


def start(cluster: LocalCluster, *words: object, **settings: object) -> subprocess.Popen[str]:
    """Start the program. settings: with _ in place of dots."""
    common = {
        "bootstrap_servers": servers(cluster), "acks": "all", "linger_ms": 2,
        "retry_backoff_ms": 50, "retry_backoff_max_ms": 500, "reconnect_backoff_max_ms": 500,
        "delivery_timeout_ms": DELIVERY_MS, "max_block_ms": DELIVERY_MS,
    }  # fmt: skip
    named = {name.replace("_", "."): value for name, value in (common | settings).items()}
    return subprocess.Popen(
        ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
         "-cp", build(), "KafkaWriter", *map(str, words),
         *(f"{name}={str(value).lower()}" for name, value in named.items())],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        bufsize=1,
    )  # fmt: skip


class JavaLoad(Load):
    client = "java"

    def __init__(self, cluster: LocalCluster, topic: str, partitions: int, *, once: bool) -> None:
        super().__init__(cluster, topic, partitions, once=once)
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._process = start(
            self.cluster, "load", self.topic, self.partitions, enable_idempotence=self.once
        )
        self._reader.start()

    def hold(self) -> None:
        self._tell("hold")

    def go(self) -> None:
        self._tell("go")

    def _tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def finish(self) -> None:
        assert self._process is not None
        with self._process as process:
            self._tell("stop")
            self._reader.join(FLUSH_TIMEOUT)
            process.kill()
        assert any(self.sent), "records are still on their way"

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            word, _, text = line.strip().partition(" ")
            if word == "sent":
                self.sent = [int(count) for count in text.split()]
            elif word == "delivered":
                self.note(int(text) - self.delivered)
            else:
                self.note(0, line)


class JavaSession(Session):
    client = "java"

    def __init__(self, cluster: LocalCluster, topic: str, name: str) -> None:
        kind: dict[str, object] = {"enable_idempotence": False}
        if name:
            kind = {"transactional_id": name, "transaction_timeout_ms": 30_000}
        self._process = start(cluster, "write", topic, **kind)
        try:
            self._answer()
        except BaseException:
            self.leave()
            raise

    def begin(self) -> None:
        self._call("begin")

    def send(self, values: Mapping[int, Sequence[bytes]]) -> None:
        for partition, some in values.items():
            for value in some:
                self._tell(f"send {partition} {value.decode()}")
        self._call("flush")

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def leave(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _call(self, line: str) -> None:
        """Makes a call; after a timeout, once more."""
        self._tell(line)
        while self._answer() == "again":
            self._tell(line)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        word, _, text = line.strip().partition(" ")
        if word in ANSWERS:
            raise ANSWERS[word](text)
        assert word in ("ok", "again"), f"{line!r}, and exit code {self._process.poll()}"
        return word
