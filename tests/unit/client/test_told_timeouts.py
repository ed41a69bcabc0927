"""A timeout that a node tells: the node answers, and its text is not hidden."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from oncelog._engine.net.attempts import tells
from oncelog._engine.net.cluster import Cluster
from oncelog._engine.net.reachability import Reachability
from oncelog.config import ClientConfig
from oncelog.errors import OncelogError, OtherClusterError, RequestTimeoutError
from oncelog.wire.status import to_status

OWN = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ())
TEXT = "no longer the leader: the command may be committed yet"


class Rig:
    """A client of one node. Each call ends with the same status, 10 s after the one before."""

    def __init__(self, status: Any) -> None:
        code, text, trailing = status
        initial, last = grpc.aio.Metadata(), grpc.aio.Metadata(*trailing)
        self.error = grpc.aio.AioRpcError(code, initial, last, text)
        self.now = 0.0
        self.reachability = Reachability(30.0, lambda: self.now)
        pool: Any = SimpleNamespace(
            reachability=self.reachability, join=lambda client: None, channel=lambda address: None
        )
        self.cluster = Cluster(ClientConfig(bootstrap_servers=("n1:7001",)), pool)

    async def call(self) -> OncelogError:
        async def fails() -> None:
            raise self.error

        self.now += 10.0
        with pytest.raises(OncelogError) as caught:
            await self.cluster.call(
                lambda channel: lambda request, **more: fails(), None, address="n1:7001"
            )
        return caught.value


@pytest.mark.parametrize(
    ("status", "outages", "is_told"),
    [
        (to_status(RequestTimeoutError(TEXT)), 0, True),
        (OWN, 1, False),
        (to_status(OtherClusterError("another founding")), 1, True),
    ],
    ids=["of a node", "of the client", "of a node of another cluster"],
)
async def test_a_node_that_tells_a_timeout_answers(
    status: Any, outages: int, is_told: bool
) -> None:
    """Before, the client warned that no node answers, and its own deadline hid the text."""
    rig = Rig(status)
    for _ in range(2):
        await rig.call()
    error = await rig.call()
    assert rig.reachability.metrics()["outages"] == outages
    assert tells(error) == is_told
    if isinstance(error, RequestTimeoutError):
        assert error.message.startswith("n1:7001: ")
