"""Spark's own cluster with a host for each executor: 127.0.0.1, 127.0.0.2, ...

Speculation needs it. Spark runs the second attempt of a task on another host only, and in local
mode, and in `local-cluster`, all is one host.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark

from harness.ports import LOOPBACK, free_ports
from oncelog.spark import ensure_java
from tests.spark.drivers import ROOT, kill_session

HOME = Path(pyspark.__file__).parent


class Standalone:
    def __init__(self, directory: Path, hosts: int, cores: int) -> None:
        ensure_java()
        directory.mkdir()
        (port,) = free_ports(1)
        self.master = f"spark://{LOOPBACK}:{port}"
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        master = ("--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
        self._start("master", "master.Master", *master)
        for number in range(1, hosts + 1):
            where = ("--host", f"127.0.0.{number}", "--webui-port", "0", "--memory", "2g")
            self._start(
                f"host{number}", "worker.Worker", *where, "--cores", str(cores), self.master
            )

    def _start(self, name: str, role: str, *words: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *words]
        settings = {
            "SPARK_HOME": str(HOME),
            "SPARK_WORKER_DIR": str(self._directory / name),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYTHONPATH": str(ROOT),
        }
        with (self._directory / f"{name}.log").open("w") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **settings},
                    cwd=self._directory,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for process in self._processes:
            kill_session(process.pid)
            process.wait()
