"""Types of interceptors' handlers, and the names of our own calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

Handler = Any  # grpc.RpcMethodHandler: only its stub is generic
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


def is_ours(method: str) -> bool:
    """Return whether a call is of Oncelog's services, not of gRPC's own."""
    return method.startswith("/oncelog.")
