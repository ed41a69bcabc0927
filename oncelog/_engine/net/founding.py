"""Founding of the cluster that a client began with.

Place in the flow: `cluster` learns it from the first answer of a node, and names it in each call
from then on. A node of another founding rejects the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc.aio

from oncelog.errors import OtherClusterError
from oncelog.wire.foundings import KEY, named_founding


class ClientFounding:
    """`known`: its text; "": no node has named one. `metadata` goes with each call."""

    def __init__(self) -> None:
        self.known = ""
        self.metadata = grpc.aio.Metadata()

    def learn(self, address: str, trailing: Iterable[Any] | None) -> None:
        """Keep the first founding. Raises OtherClusterError if a node names another one."""
        named = named_founding(trailing)
        if not named or named == self.known:
            return  # an older release names none
        if self.known:
            raise OtherClusterError(
                f"{address} is of the cluster founded as {named}, this client began with the one "
                f"founded as {self.known}. Remove the address from bootstrap_servers, or stop "
                f"the node there"
            )
        self.known = named
        self.metadata = grpc.aio.Metadata((KEY, named))
