"""Clients that waste a secured node's time: others are served, and its memory stays bounded."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import grpc

from harness.api import CHANNEL_OPTIONS, batch, credentials, verdict
from oncelog.v1 import log_pb2, log_pb2_grpc
from tests.integration.conftest import MakeCluster

RESETS = 10_000
AT_ONCE = 100
HALF_OPEN = 300
ROOM = 300 * 1024 * 1024  # bytes: far less than each reset or handshake could hold


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


async def reset_streams(address: str, files: dict[str, str]) -> int:
    """Opens streams and resets each at its first answer; returns how many there were."""
    done = 0
    options = CHANNEL_OPTIONS
    async with grpc.aio.secure_channel(address, credentials(files), options=options) as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        request = log_pb2.ProduceRequest(batches=[batch("t", 0, 0, 0, b"x" * 100)])

        async def one() -> None:
            call = stub.ProduceStream()
            try:
                await call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # refused, as it deserves
            call.cancel()

        while done < RESETS:
            await asyncio.gather(*(one() for _ in range(AT_ONCE)))
            done += AT_ONCE
    return done


def test_ten_thousand_reset_streams_and_half_open_handshakes(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, secured=True)
    api = cluster.api(1)
    api.create_topic("t")
    lease = api.lease()
    before = resident(cluster.nodes[1].pid)
    host, _, port = cluster.addresses[1].rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(HALF_OPEN)]
    sequence = 0

    async def flood_and_write() -> None:
        nonlocal sequence
        flood = asyncio.create_task(reset_streams(cluster.addresses[1], cluster.client_files))
        while not flood.done():
            sent = batch("t", 0, lease.producer_id, sequence, b"mine")
            (result,) = await asyncio.to_thread(api.produce, sent)
            assert verdict(result) == "APPENDED"
            sequence += 1
        assert await flood == RESETS

    asyncio.run(flood_and_write())
    for sock in silent:
        sock.close()
    assert sequence > 10
    assert resident(cluster.nodes[1].pid) - before < ROOM
