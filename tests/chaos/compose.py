"""docker-compose.yml's three services: started, asked, and disturbed by the docker command."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from harness.api import Api
from harness.node_process import ROOT, HarnessError
from oncelog.v1 import log_pb2

NODES = (1, 2, 3)
ADDRESSES = {node: f"localhost:{7000 + node}" for node in NODES}
MORE = {node: f"localhost:{7000 + node}" for node in (4, 5)}  # of the profile five
TIMEOUT = 60.0  # seconds that a node or a leader may take
COMMAND_TIMEOUT = 120.0  # seconds for one docker command
ANSWER_TIMEOUT = 2.0  # seconds for one question to a node that may be gone
LOOK_AGAIN = 0.1  # seconds; neither docker nor a node has a call that waits for these


class Compose:
    """docker-compose.yml's services: node N is the service nodeN, at localhost:700N."""

    def __init__(self, project: str = "") -> None:
        self._base, self._project = _compose_command(), project
        if project:
            self._base += ["--project-name", project]
        self._containers: dict[int, str] = {}

    # -- life ---------------------------------------------------------------------------------

    def up(self) -> None:
        """Makes and starts missing containers; does not wait for them. Builds nothing."""
        self._containers.clear()
        self.run("up", "--detach", "--no-build", *(f"node{node}" for node in NODES))

    def up_more(self) -> None:
        """Starts the nodes of the profile five, too: they wait until they are added."""
        self.run("--profile", "five", "up", "--detach", "--no-build", *(f"node{n}" for n in MORE))

    def down(self, *options: str) -> None:
        """Removes containers and network; with --volumes also the data."""
        self._containers.clear()
        self.run("--profile", "five", "down", *options)

    def run(self, *words: str) -> str:
        """Runs a command of docker compose; returns its output. Raises HarnessError."""
        return run_command([*self._base, *words])

    def container(self, node: int) -> str:
        """Finds a service's container. Raises HarnessError if the service does not exist."""
        if node not in self._containers:
            name = self._find(node)
            if not name:
                text = f"docker compose has no container of node{node}: docker compose up"
                raise HarnessError(text)
            self._containers[node] = name
        return self._containers[node]

    def _find(self, node: int) -> str:
        if not self._project:  # compose makes one up from the folder
            return self.run("ps", "--all", "--quiet", f"node{node}").strip()
        label = "label=com.docker.compose."
        words = ["docker", "ps", "--all", "--quiet", "--no-trunc",
                 "--filter", f"{label}project={self._project}",
                 "--filter", f"{label}service=node{node}"]  # fmt: skip
        return run_command(words).strip()

    def inspect(self, node: int) -> dict[str, Any]:
        """Reads docker's record of the node's container."""
        found: dict[str, Any] = json.loads(
            run_command(["docker", "inspect", self.container(node)])
        )[0]
        return found

    def wait_healthy(self, nodes: Iterable[int] = NODES) -> None:
        """Waits for the image's own health check. Raises HarnessError if one does not pass."""
        for node in nodes:
            state: dict[str, Any] = {}

            def healthy(node: int = node) -> bool:
                nonlocal state
                state = self.inspect(node)["State"]
                return bool(state["Running"]) and state["Health"]["Status"] == "healthy"

            if not _wait(healthy):
                raise HarnessError(f"node{node} is not healthy after {TIMEOUT} s: {state}")

    # -- state --------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int, *, not_in: Iterable[int] = ()) -> int:
        """Waits until a node reports that it leads."""
        asked = set(NODES) - set(not_in)
        found = 0

        def led() -> bool:
            nonlocal found
            found = next((node for node in asked if _leads(node, topic, partition)), 0)
            return found != 0

        if not _wait(led):
            where = ", ".join(ADDRESSES[node] for node in sorted(asked))
            raise HarnessError(f"{topic}-{partition} has no leader at {where}")
        return found

    def wait_serving(self, nodes: Iterable[int] = NODES) -> None:
        for node in nodes:
            with Api(ADDRESSES[node]) as api:
                if not api.serving(TIMEOUT):
                    raise HarnessError(f"node{node} does not serve after {TIMEOUT} s")

    def wait_level(self, topic: str, partitions: int) -> None:
        """Waits until all replicas have all records of their leaders."""
        marks: dict[int, list[int]] = {}
        led: dict[int, int] = {}

        def level() -> bool:
            marks.clear()
            led.clear()
            for node, address in ADDRESSES.items():
                with Api(address) as api:
                    try:
                        parts = api.topic(topic, timeout=ANSWER_TIMEOUT).partitions
                        marks[node] = [part.high_watermark for part in parts]
                        led.update(_led(api, topic, partitions))
                    except grpc.RpcError:
                        return False
            return len(led) == partitions and all(
                marks[node] == [led[partition] for partition in range(partitions)] for node in NODES
            )

        if not _wait(level):
            raise HarnessError(f"replicas of {topic} are not level: leaders {led}, {marks}")

    # -- faults -------------------------------------------------------------------------------

    def kill(self, nodes: list[int]) -> None:
        run_command(["docker", "kill", *(self.container(node) for node in nodes)])

    def start_nodes(self, nodes: list[int]) -> None:
        """Starts the containers and waits until their nodes serve."""
        run_command(["docker", "start", *(self.container(node) for node in nodes)])
        self.wait_serving(nodes)

    def pause(self, node: int) -> None:
        run_command(["docker", "pause", self.container(node)])

    def resume(self, node: int) -> None:
        run_command(["docker", "unpause", self.container(node)])

    def stop(self, node: int) -> int:
        """Sends SIGTERM; returns the exit code."""
        run_command(["docker", "stop", "--time", "30", self.container(node)])
        return int(self.inspect(node)["State"]["ExitCode"])

    @contextmanager
    def cut_off(self, node: int) -> Iterator[None]:
        """Takes a node off its network: peers and all clients lose it, this machine's too."""
        container = self.container(node)
        networks = list(self.inspect(node)["NetworkSettings"]["Networks"].items())
        if len(networks) != 1:
            raise HarnessError(f"node{node} is on {len(networks)} networks, not on one")
        ((network, settings),) = networks
        # Docker forgets the names by which the others know the node.
        names = [word for name in settings["Aliases"] for word in ("--alias", name)]
        run_command(["docker", "network", "disconnect", network, container])
        try:
            yield
        finally:
            run_command(["docker", "network", "connect", *names, network, container])


def _leads(node: int, topic: str, partition: int) -> bool:
    with Api(ADDRESSES[node]) as api:
        try:
            info = api.topic(topic, timeout=ANSWER_TIMEOUT)
        except grpc.RpcError:
            return False
    if partition >= len(info.partitions):
        raise HarnessError(f"{topic} has the partitions 0..{len(info.partitions) - 1}")
    return info.partitions[partition].leader_id == node


def _led(api: Api, topic: str, partitions: int) -> Iterator[tuple[int, int]]:
    """Finds (partition, high watermark) of those that the node surely leads."""
    queries = [
        log_pb2.OffsetQuery(topic=topic, partition=partition, latest=True)
        for partition in range(partitions)
    ]
    answer = api.log.ListOffsets(
        log_pb2.ListOffsetsRequest(queries=queries), timeout=ANSWER_TIMEOUT
    )
    for result in answer.results:
        if not result.error:
            yield result.partition, result.offset


def _wait(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_AGAIN)
    return True


def run_command(words: list[str], timeout: float = COMMAND_TIMEOUT) -> str:
    """Runs a command; returns its output. Raises HarnessError with all of it if it fails."""
    try:
        done = subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise HarnessError(f"{' '.join(words)}: no end after {timeout} s") from None
    if done.returncode:
        text = f"exit code {done.returncode}: {done.stdout}{done.stderr}".strip()
        raise HarnessError(f"{' '.join(words)}: {text}")
    return done.stdout


def _compose_command() -> list[str]:
    if shutil.which("docker"):
        done = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if done.returncode == 0:
            return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise HarnessError("there is no docker compose on this machine")
