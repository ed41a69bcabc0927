"""End of a gRPC call with an error."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from oncelog.errors import OncelogError
from oncelog.wire.status import to_status


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: OncelogError) -> NoReturn:
    """End the call with the status of `error`."""
    code, message, trailing = to_status(error)
    await context.abort(code, message, trailing)
    raise AssertionError("abort returned")
