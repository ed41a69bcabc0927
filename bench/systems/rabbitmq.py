"""RabbitMQ: three nodes on loopback; quorum queues and streams, three replicas each.

The Debian package is unpacked, not installed: no service of the system is touched. The nodes
run as the caller's user, with a home, a cookie and an epmd of their own. A partition is a queue
or a stream of its own. Quorum queues sync their log before they confirm; streams leave that to
the operating system.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.fetch import debian
from bench.processes import Server, run_text, wait_until
from bench.systems.face import MessagePeer, Unavailable
from harness.ports import LOOPBACK, free_ports

START_S = 120.0
STREAM_FRAME = 8 * 1024 * 1024
ERLANG = re.compile(r"ROOTDIR=/usr/lib/erlang")

CONFIG = """\
listeners.tcp.1 = {host}:{amqp}
stream.listeners.tcp.1 = {host}:{stream}
stream.advertised_host = {host}
stream.advertised_port = {stream}
stream.frame_max = {frame}
cluster_formation.peer_discovery_backend = classic_config
{nodes}
vm_memory_high_watermark.absolute = 3GB
disk_free_limit.absolute = 500MB
log.file.level = warning
"""
ADVANCED = "[{kernel, [{inet_dist_use_interface, {127, 0, 0, 1}}]}].\n"


class RabbitMq(MessagePeer):
    """RabbitMQ. streams: RabbitMQ streams by rstream; else quorum queues by pika."""

    window = 10_000  # confirms that may be outstanding

    def __init__(self, *, streams: bool) -> None:
        super().__init__()
        self._streams = streams
        self.durable = not streams
        self.name = "RabbitMQ streams" if streams else "RabbitMQ quorum queues"
        self.module = "rabbitmq_stream" if streams else "rabbitmq_quorum"
        self._epmd = 0
        self._work = self._erlang = self._home = Path()  # `prepare` sets the last two
        self._version = ""

    # -- life ---------------------------------------------------------------------------

    def prepare(self) -> None:
        root = debian("rabbitmq", "rabbitmq-server", r"erlang-[\w-]+")
        self._erlang = root / "usr/lib/erlang"
        found = sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        if not found or not self._erlang.exists():
            raise Unavailable(f"the unpacked package in {root} holds no server")
        self._home = found[-1]
        self._version = self._home.name.partition("-")[2]
        # The start scripts know only the place of an installed package.
        for script in (*self._erlang.glob("bin/*"), *self._erlang.glob("erts-*/bin/*")):
            _relocate(script, self._erlang)

    def start(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._work = directory
        ports = free_ports(10)
        self._epmd = ports[9]
        amqp = [f"{LOOPBACK}:{port}" for port in ports[:3]]
        self.addresses[:] = amqp
        if self._streams:
            self.addresses[:] = [f"{LOOPBACK}:{port}" for port in ports[3:6]]
        cookie = directory / ".erlang.cookie"
        cookie.write_text("ONCELOGBENCH")
        cookie.chmod(0o600)
        (directory / "plugins").write_text("[rabbitmq_stream].\n")
        (directory / "advanced.config").write_text(ADVANCED)
        (epmd,) = self._erlang.glob("erts-*/bin/epmd")
        command = [str(epmd), "-port", str(self._epmd), "-address", LOOPBACK]
        self.stack.add(Server("epmd", command, directory / "epmd.log"))
        # One after the other: the first makes the cluster, the others join it.
        for node in (1, 2, 3):
            self._start_node(node, ports)
            address = amqp[node - 1]
            up = functools.partial(_takes, address)
            wait_until(f"RabbitMQ node at {address}", up, START_S, self.stack.servers)
        self._control("await_online_nodes", "3")

    def _start_node(self, node: int, ports: list[int]) -> None:
        nodes = "\n".join(
            f"cluster_formation.classic_config.nodes.{n} = bench{n}@localhost" for n in (1, 2, 3)
        )
        config = self._work / f"node{node}.conf"
        config.write_text(
            CONFIG.format(
                host=LOOPBACK, amqp=ports[node - 1], stream=ports[node + 2], nodes=nodes,
                frame=STREAM_FRAME,
            )
        )  # fmt: skip
        env = self._environment() | {
            "RABBITMQ_NODENAME": f"bench{node}@localhost",
            "RABBITMQ_NODE_PORT": str(ports[node - 1]),
            "RABBITMQ_DIST_PORT": str(ports[node + 5]),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self._work / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._work / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._work / f"data{node}"),
            "RABBITMQ_LOG_BASE": str(self._work / f"log{node}"),
            # One runtime binds its threads to cores; three on a machine should not.
            "RABBITMQ_SCHEDULER_BIND_TYPE": "u",
        }
        command = [self._home / "sbin/rabbitmq-server"]
        log = self._work / f"node{node}.log"
        self.stack.add(Server(f"rabbitmq {node}", command, log, env=env))

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self._work),
            "PATH": f"{self._erlang / 'bin'}:{os.environ.get('PATH', '')}",
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_CONF_ENV_FILE": str(self._work / "no-such-file"),
        }

    def _control(self, *words: str) -> str:
        command = [str(self._home / "sbin/rabbitmqctl"), "-n", "bench1@localhost", *words]
        return run_text(command, START_S, env=self._environment())

    def settings(self) -> Mapping[str, Any]:
        client = "rstream" if self._streams else "pika"
        own: dict[str, Any] = (
            {
                "streams": "3 replicas, one for each partition, segments by default",
                "publish": "send_batch with a publisher name (deduplication), binary codec",
                "stream.frame_max": STREAM_FRAME,
            }
            if self._streams
            else {
                "queues": "x-queue-type quorum, 3 members, one for each partition",
                "publish": "SelectConnection, publisher confirms, persistent",
                "consume": "prefetch 2000, acknowledged in blocks",
            }
        )
        return {
            "version": self._version,
            "scheduler bind type": "u: three nodes share the machine",
            "client python": f"{client} {importlib.metadata.version(client)}",
            "window": f"{self.window} unconfirmed messages",
            **own,
        }

    def clients(self, section: str) -> tuple[str, ...]:
        """Clients of a section: rstream's producers cannot wait for one message's confirm."""
        return () if self._streams and section == "producers" else super().clients(section)

    # -- workloads ----------------------------------------------------------------------

    def create(self, topic: str, partitions: int) -> None:
        """Leaves it to the client's own protocol, in its process."""
        asked = {"addresses": self.addresses, "topic": topic, "partitions": partitions}
        self.run_client("create", {**asked, "seconds": 10})


def _takes(address: str) -> bool:
    """Whether an AMQP server greets: it listens only when the node is up."""
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.settimeout(2)
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return bool(connection.recv(1))
    except OSError:
        return False


def _relocate(script: Path, erlang: Path) -> None:
    """Makes a shell script of Erlang's find the rest of Erlang beside itself."""
    data = script.read_bytes()
    if script.is_symlink() or not data.startswith(b"#!"):
        return
    text = data.decode()
    moved = ERLANG.sub(f"ROOTDIR={erlang}", text)
    if moved != text:
        script.write_text(moved)
