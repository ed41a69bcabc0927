"""`python -m cluster`: one node, until SIGTERM or SIGINT.

Exit codes: 0 stopped as asked, 1 failed while running or at start, 2 bad settings,
or a Python that leaves out assertions.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

import grpc
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.config import NodeConfig
from cluster.errors import ClusterError, ConfigError
from cluster.node.allocator import keep_large_buffers
from cluster.node.descriptors import raise_limit
from cluster.node.logging import configure_logging
from oncelog._engine.net.channels import Channels
from oncelog.config import ClientConfig
from storage.errors import StorageError

HEALTH_TIMEOUT = 3.0


def main() -> int:
    argv = sys.argv[1:]
    if len(argv) == 2 and argv[0] == "--health":
        return asyncio.run(_check_health(argv[1]))
    if not __debug__:  # the invariants of a node are assertions
        text = "assertions are off: start the node without python -O and PYTHONOPTIMIZE"
        print(f"oncelog: {text}", file=sys.stderr)
        return 2
    try:
        config = NodeConfig.load(argv, os.environ)
    except ConfigError as error:
        print(f"oncelog: {error}", file=sys.stderr)
        return 2
    if config.print_config:
        print(config.describe())
        return 0
    configure_logging(config.log_level)
    raise_limit()
    keep_large_buffers()
    return uvloop.run(_run(config))


async def _run(config: NodeConfig) -> int:
    from cluster.node.node import Node  # after logging is set up

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(Node.start(config))
    # A new node may wait for long until its cluster takes it in.
    await asyncio.wait((stopped, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return 0
    try:
        node = starting.result()
    except (ClusterError, StorageError) as error:
        print(f"oncelog: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1  # of files that settings name
    gc.freeze()  # what is made at start stays; do not look at it in every collection
    await asyncio.wait((stopped, node.failure), return_when=asyncio.FIRST_COMPLETED)
    if node.failure.done():
        print(f"oncelog: {node.failure.result()}", file=sys.stderr)
        # What is not on stable storage now must not look as if it were.
        os._exit(1)
    await node.stop()
    return 0


async def _check_health(address: str) -> int:
    """As any client: with TLS by its variables, ONCELOG_CLIENT_*."""
    async with Channels(ClientConfig(bootstrap_servers=(address,))).open(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=HEALTH_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            print(f"oncelog: {address}: {error.details()}", file=sys.stderr)
            return 1
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    print("SERVING" if serving else "NOT_SERVING")
    return 0 if serving else 1


if __name__ == "__main__":
    sys.exit(main())
