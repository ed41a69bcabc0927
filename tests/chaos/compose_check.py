"""Docker test, once the image is there: three services, faults, every count.

    client container --records--> node1, node2, node3 (docker compose, one network)
         |                            ^ docker kill, network disconnect, stop, down and up
         v acknowledgements           |
    this process ---------------------+   then reads each replica by itself and compares

Exit code 0 only if nothing was lost, twice, out of order or different, and the containers,
volumes and network are gone again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc

from harness.api import Api, as_call
from harness.audit import Audit, Ledger, audit_all
from harness.node_process import ROOT, HarnessError
from harness.replicas import compare
from tests.chaos.compose import ADDRESSES, MORE, NODES, TIMEOUT, Compose, run_command

TOPIC = "docker-test"
PARTITIONS = 3
RATE = 600  # records/s: a load under which faults happen, no measurement
BOOTSTRAP = ",".join(f"node{node}:{7000 + node}" for node in NODES)
PROGRESS = 50  # records to be acknowledged in each partition before the next fault
END_TIMEOUT = 150.0  # seconds; the producer gives a record up after 120
FAULT_TIMEOUT = 180.0  # of one call of scripts/chaos


_CLIENT_FILES = {
    "ONCELOG_CLIENT_TLS_CA_FILE": "ca.crt",
    "ONCELOG_CLIENT_TLS_CERT_FILE": "client.crt",
    "ONCELOG_CLIENT_TLS_KEY_FILE": "client.key",
}
# Options of `docker run` for a client of the secured nodes.
_SECURED = (
    "--volume", "{project}_certs:/certs:ro",
    *(word for name, file in _CLIENT_FILES.items()
      for word in ("--env", f"{name}=/certs/client-tester/{file}")),
)  # fmt: skip


class Workload:
    """A producer in a fourth container, and its acknowledgements."""

    def __init__(self, image: str, network: str, name: str, more: Sequence[str]) -> None:
        """more: options of `docker run`."""
        code = (Path(__file__).parent / "compose_client.py").read_text()
        self._name = name
        self._process = subprocess.Popen(
            ["docker", "run", "--rm", "--interactive", "--network", network, "--name", name,
             *more, "--no-healthcheck", "--entrypoint", "python", image,
             "-c", code, TOPIC, str(PARTITIONS), str(RATE), BOOTSTRAP],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.sent = 0
        self.duplicates = 0  # acknowledged as stored by an earlier attempt
        self.slowest = 0.0  # seconds without an acknowledgement from some partition
        self._acknowledged: dict[int, tuple[int, int]] = {}
        self._counts = Counter[int]()
        self._latest: dict[int, float] = {}
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="acknowledgements")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._note(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _note(self, line: str) -> None:
        if line.startswith("sent "):
            self.sent = int(line.split()[1])
            return
        row, partition, offset, duplicate = map(int, line.split())
        assert row not in self._acknowledged, f"row {row} was acknowledged twice"
        self._acknowledged[row] = (partition, offset)
        self.duplicates += duplicate
        self._counts[partition] += 1
        now = time.monotonic()
        self.slowest = max(self.slowest, now - self._latest.get(partition, now))
        self._latest[partition] = now

    def wait_progress(self) -> None:
        """Waits until each partition has acknowledged more records from now on."""
        with self._news:
            begin = Counter(self._counts)

            def progressed() -> bool:
                return self._ended or all(
                    self._counts[partition] - begin[partition] >= PROGRESS
                    for partition in range(PARTITIONS)
                )

            if not self._news.wait_for(progressed, TIMEOUT) or self._ended:
                counts = dict(self._counts - begin)
                raise HarnessError(f"the workload does not go on: {counts} ended={self._ended}")

    def finish(self) -> Ledger:
        """Lets the producer end by itself. Raises HarnessError if a record was not acknowledged."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise HarnessError(f"the workload does not end in {END_TIMEOUT} s") from None
        self._reader.join()
        ledger = Ledger.of(self.sent)
        for row, (partition, offset) in self._acknowledged.items():
            ledger.acknowledge(row, partition, offset)
        if code or not self.sent or ledger.acknowledged != self.sent:
            text = f"{self.sent} records sent, {ledger.acknowledged} acknowledged"
            raise HarnessError(f"the workload failed with exit code {code}: {text}")
        return ledger

    def close(self) -> None:
        """Removes the container if it is still there."""
        words = ["docker", "rm", "--force", "--volumes", self._name]
        subprocess.run(words, capture_output=True, check=False, timeout=TIMEOUT)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)


class Run:
    """One run. `project` names the containers, the volumes and the network."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.secured, self.five = options.secured, options.five
        self.project, self.image = options.project, options.image
        self.network, self.kills = options.network, options.kills
        self.compose = Compose(self.project)

    def __call__(self) -> None:
        with self._section("three nodes, healthy"):
            self.compose.up()
            self.compose.wait_healthy()
            if self.secured:
                self._take_certificates()
            self._health_check_can_fail()
        with self._section("a topic, from a fourth container"):
            self._oncelog("topic", "create", TOPIC, "--partitions", str(PARTITIONS),
                          "--replicas", str(len(NODES)))  # fmt: skip
        more = _SECURED if self.secured else ()
        words = [word.format(project=self.project) for word in more]
        workload = Workload(self.image, self.network, f"{self.project}-workload", words)
        try:
            ledger = self._under_load(workload)
        finally:
            workload.close()
        print(f"{workload.sent} records acknowledged, {workload.duplicates} of them stored by an")
        print(f"earlier attempt; longest silence of a partition {workload.slowest:.1f} s")
        with self._section("every replica"):
            first = self._audit(ledger)
        with self._section("consumers, in a container and on this machine"):
            self._consume(workload.sent)
        with self._section("down and up: the volumes are kept"):
            self._stop_all()
            self.compose.down()
            self.compose.up()
            self.compose.wait_healthy()
            again = self._audit(ledger)
            _demand(
                [one.digests for one in again] == [one.digests for one in first],
                "the logs are not those from before",
            )

        if self.five:
            self._five(ledger, again)

    def _five(self, ledger: Ledger, before: list[Audit]) -> None:
        """Adds two nodes, balances, removes them: the first three hold their old share."""
        with self._section("a fourth and a fifth node, and a balance"):
            self.compose.up_more()
            for node in MORE:
                self._oncelog("node", "add", str(node), "--wait")
            self._oncelog("cluster", "balance", "--wait")
            with Api(ADDRESSES[1]) as api:
                held = Counter(n for part in api.topic(TOPIC).partitions for n in part.replicas)
            print(f"replicas of each node: {dict(sorted(held.items()))}")
            _demand(all(held[node] for node in MORE), f"the new nodes hold nothing: {held}")
        with self._section("both go again"):
            for node in MORE:
                self._oncelog("node", "remove", str(node), "--wait")
            after = self._audit(ledger)
            _demand(
                [one.digests for one in after] == [one.digests for one in before],
                "the logs are not those from before",
            )

    def _under_load(self, workload: Workload) -> Ledger:
        with self._section("a workload, in a fourth container"):
            workload.wait_progress()
        for number in range(self.kills):
            partition = number % PARTITIONS
            with self._section(f"docker kill to the leader of {TOPIC}-{partition}"):
                self._chaos("kill-leader", TOPIC, str(partition), "--down", "0.5")
                workload.wait_progress()
        self._cut_off(workload)
        with self._section("docker kill to all nodes"):
            before = {node: self.compose.inspect(node)["State"] for node in NODES}
            self._chaos("kill-all", "--down", "0")
            for node, state in before.items():
                now = self.compose.inspect(node)["State"]
                _demand(now["StartedAt"] != state["StartedAt"], f"node{node} was not killed")
            workload.wait_progress()
        with self._section("rolling restart"):
            self._chaos("rolling-restart")
            workload.wait_progress()
        with self._section("the workload's end"):
            return workload.finish()

    def _cut_off(self, workload: Workload) -> None:
        with self._section(f"the leader of {TOPIC}-0 off its network"):
            node = self.compose.leader(TOPIC, 0)
            with self.compose.cut_off(node):
                new = self.compose.leader(TOPIC, 0, not_in=[node])
                workload.wait_progress()
                with Api(ADDRESSES[node]) as api:
                    _demand(not api.serving(0.5), f"node{node} is reached all the same")
                print(f"node {node} cut off, node {new} leads")
            self.compose.wait_serving([node])
            self.compose.wait_healthy([node])
            workload.wait_progress()

    # -- checks -------------------------------------------------------------------------------

    def _take_certificates(self) -> None:
        """Takes the certificates of this machine's clients, for this process and those that it
        starts; without them no client gets an answer."""
        with Api(ADDRESSES[1], files={}) as stranger:
            _demand(not stranger.serving(1.0), "node1 answers whoever asks in the clear")
        files = Path(tempfile.mkdtemp()) / "client"
        container = self.compose.container(1)
        run_command(["docker", "cp", f"{container}:/certs/client-tester", str(files)])
        for name, file in _CLIENT_FILES.items():
            os.environ[name] = str(files / file)

    def _health_check_can_fail(self) -> None:
        """Checks that the image's check passes for the node and fails for a closed port."""
        script = ["python", "-I", "-S", "/app/cluster/health_check.py"]
        for port, expected in ((7080, 0), (7999, 1)):
            at = ["--env", f"ONCELOG_HEALTH_LISTEN=127.0.0.1:{port}", self.compose.container(1)]
            done = subprocess.run(
                ["docker", "exec", *at, *script], capture_output=True, text=True, check=False,
                timeout=TIMEOUT,
            )  # fmt: skip
            text = f"health of port {port}: exit code {done.returncode}: {done.stdout}{done.stderr}"
            _demand(done.returncode == expected, text)

    def _audit(self, ledger: Ledger) -> list[Audit]:
        self.compose.wait_level(TOPIC, PARTITIONS)
        with ExitStack() as stack:
            apis = {node: stack.enter_context(Api(at)) for node, at in ADDRESSES.items()}
            copies = {node: [api] * PARTITIONS for node, api in apis.items()}
            audits, identical = audit_all(copies, TOPIC, ledger, _row_of)
            differing = compare(apis, TOPIC, range(PARTITIONS))
        for one in audits:
            print(f"node {one.node_id}: {one.records} records, lost {one.lost}, twice {one.twice}, "
                  f"order broken {one.disordered}, misplaced {one.misplaced}, holes {one.holes}, "
                  f"unknown {one.unknown}")  # fmt: skip
            _demand(one.clean, "\n".join(one.examples))
            _demand(one.records == len(ledger.offsets), f"{len(ledger.offsets)} were sent")
        _demand(identical and not differing, "replicas differ\n" + "\n".join(differing))
        print("replicas identical: logs and last-seen maps")
        return audits

    def _consume(self, records: int) -> None:
        words = ["topic", "consume", TOPIC, "--from", "start", "-e"]
        at = ["--bootstrap", ",".join(ADDRESSES.values())]
        for who, text in (
            ("the container", self._oncelog(*words)),
            ("this machine", run_command([sys.executable, "-m", "oncelog.cli", *words, *at])),
        ):
            rows = [_row_of(line.encode()) for line in text.splitlines()]
            _demand(sorted(rows) == list(range(records)), f"{who} read {len(rows)} records")
            print(f"{who} read {len(rows)} records, each once")

    def _stop_all(self) -> None:
        self.compose.run("stop")
        for node in NODES:
            state = self.compose.inspect(node)["State"]
            _demand(state["ExitCode"] == 0, f"node{node} stopped with {state}")

    # -- tools --------------------------------------------------------------------------------

    def _oncelog(self, *words: str) -> str:
        return self.compose.run("run", "--rm", "-T", "client", *words)

    def _chaos(self, *words: str) -> str:
        script = str(ROOT / "scripts" / "chaos")
        said = run_command([script, *words, "--compose", "--project", self.project], FAULT_TIMEOUT)
        print(said.strip())
        return said

    @contextmanager
    def _section(self, title: str) -> Iterator[None]:
        print(f"\n===== {title}", flush=True)
        begun = time.monotonic()
        yield
        print(f"      {time.monotonic() - begun:.1f} s", flush=True)


def _row_of(value: bytes) -> int:
    return int(value.partition(b":")[0])


def _demand(condition: bool, text: str) -> None:
    if not condition:
        raise HarnessError(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--project", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--kills", type=int, default=PARTITIONS, help="leaders to kill")
    parser.add_argument("--secured", action="store_true", help="TLS: docker-compose.secured.yml")
    parser.add_argument("--five", action="store_true", help="two nodes more, and a balance")
    options = parser.parse_args()
    try:
        Run(options)()
    except HarnessError as error:
        print(f"docker-test: {error}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"docker-test: {as_call(error).code()} {as_call(error).details()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
