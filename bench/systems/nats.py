"""NATS JetStream: three servers on loopback, streams with three replicas on file storage.

A partition is a stream of its own, since a stream is one Raft group. As shipped, JetStream
syncs its files every two minutes; with sync_interval: always each write is synced. Message
ids are on: they are JetStream's protection from duplicates (a window of two minutes).
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.fetch import debian, go_program
from bench.processes import BenchError, Server, run_text, wait_until
from bench.systems.face import MessagePeer, Unavailable
from harness.ports import LOOPBACK, free_ports

MODULE, VERSION = "github.com/nats-io/nats-server/v2", "v2.15.2"
START_S = 60.0
MESSAGE_LIMIT = 8 * 1024 * 1024

SERVER = """\
server_name: n{node}
listen: "{host}:{port}"
http: "{host}:{monitor}"
max_payload: {limit}
jetstream {{
  store_dir: "{data}"
  max_mem: 1G
  max_file: 50G
{sync}
}}
cluster {{
  name: bench
  listen: "{host}:{route}"
  routes: [{routes}]
}}
"""


class Nats(MessagePeer):
    """NATS. sync: every write is fsynced before it is acknowledged."""

    module = "nats"
    window = 4000  # the Python client's default

    def __init__(self, *, sync: bool) -> None:
        super().__init__()
        self.durable = sync
        self.name = "NATS JetStream, sync_interval: always" if sync else "NATS JetStream"
        self._monitors: list[str] = []
        self._program = Path()
        self._version = ""  # set by `prepare`

    def prepare(self) -> None:
        try:
            self._program = go_program("nats-server", MODULE, VERSION)
        except Unavailable as no_go:
            try:
                unpacked = debian("nats-debian", "nats-server", "nats-server")
            except Unavailable as error:
                raise Unavailable(f"{no_go}; {error}") from None
            self._program = unpacked / "usr/sbin/nats-server"
        self._version = run_text([self._program, "--version"], 30).strip()

    def start(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        ports = free_ports(9)
        routes = ", ".join(f'"nats://{LOOPBACK}:{port}"' for port in ports[6:])
        self.addresses[:] = [f"{LOOPBACK}:{port}" for port in ports[:3]]
        self._monitors = [f"http://{LOOPBACK}:{port}/healthz" for port in ports[3:6]]
        for node in (1, 2, 3):
            config = directory / f"node{node}.conf"
            config.write_text(
                SERVER.format(
                    node=node, host=LOOPBACK, port=ports[node - 1], monitor=ports[node + 2],
                    route=ports[node + 5], routes=routes, data=directory / f"data{node}",
                    limit=MESSAGE_LIMIT, sync="  sync_interval: always" if self.durable else "",
                )
            )  # fmt: skip
            log = directory / f"node{node}.log"
            self.stack.add(Server(f"nats {node}", [str(self._program), "-c", str(config)], log))
        wait_until("NATS cluster", self._three_serve, START_S, self.stack.servers)

    def _three_serve(self) -> bool:
        try:
            for url in self._monitors:
                with urllib.request.urlopen(url, timeout=2):
                    pass
        except (urllib.error.URLError, OSError):
            return False
        return True

    def settings(self) -> Mapping[str, Any]:
        return {
            "version": self._version,
            "servers": "3, sync_interval: always" if self.durable else "3, defaults",
            "max_payload": MESSAGE_LIMIT,
            "streams": "file storage, 3 replicas, one for each partition",
            "client python": f"nats-py {importlib.metadata.version('nats-py')}",
            "publish": f"publish_async with Nats-Msg-Id, {self.window} pending",
            "consume": "pull consumer, no acknowledgements",
        }

    def create(self, topic: str, partitions: int) -> None:
        try:
            asyncio.run(asyncio.wait_for(self._create(topic, partitions), START_S))
        except TimeoutError:
            raise BenchError(f"{topic} could not be made in {START_S:g} s") from None

    async def _create(self, topic: str, partitions: int) -> None:
        import nats
        from nats.js.api import StorageType, StreamConfig
        from nats.js.errors import ServiceUnavailableError

        client = await nats.connect([f"nats://{one}" for one in self.addresses])
        try:
            stream = client.jetstream(timeout=20)
            for number in range(partitions):
                config = StreamConfig(
                    name=f"{topic}-{number}",
                    subjects=[f"{topic}.{number}"],
                    storage=StorageType.FILE,
                    num_replicas=3,
                )
                while True:
                    try:
                        await stream.add_stream(config)
                        break
                    except ServiceUnavailableError:  # the meta group has no leader yet
                        await asyncio.sleep(0.2)
        finally:
            await client.close()
