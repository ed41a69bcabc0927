"""Translation of the node's faults and rejections into public errors and gRPC statuses.

A servicer method decorated with `public_errors` may raise an error of
`oncelog.errors`, a `ClusterError` or a `Rejected`; each leaves as a gRPC status
with `google.rpc.ErrorInfo`, as `oncelog.wire.status` writes it. Any other error is
a bug: logged with its traceback, answered INTERNAL.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, Protocol, TypeVar

import grpc

from cluster import errors as faults
from cluster.budget import Account
from cluster.metadata.topics import INVALID_REQUEST, Rejected
from cluster.services.context import NodeContext
from cluster.v1.metadata_pb2 import MetadataResult
from oncelog import errors
from oncelog.wire.status import BY_REASON, to_status

logger = logging.getLogger(__name__)


class HasNode(Protocol):
    """A servicer that knows the node it serves."""

    @property
    def node(self) -> NodeContext: ...


ServicerT = TypeVar("ServicerT", bound=HasNode)
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
# grpc's own type of the context needs both message types; nothing here depends on them.
Method = Callable[[ServicerT, RequestT, Any], Awaitable[ResponseT]]


def public_errors(
    method: Method[ServicerT, RequestT, ResponseT],
) -> Method[ServicerT, RequestT, ResponseT]:
    """Decorate a servicer method so that its errors leave as gRPC statuses.

    A method that answers with a stream writes it with `write`.
    """

    @functools.wraps(method)
    async def answered(self: ServicerT, request: RequestT, context: Any) -> ResponseT:
        try:
            return await method(self, request, context)
        except (errors.OncelogError, faults.ClusterError, Rejected) as error:
            public = to_public(error, self.node.metadata.nodes)
        except Exception:  # the last stop before gRPC, which logs nothing
            logger.exception("%s failed", method.__name__)
            public = errors.InternalError(f"{method.__name__} failed; the node's log says why")
        return await abort(context, public)

    return answered


async def write(
    context: grpc.aio.ServicerContext[Any, ResponseT], message: ResponseT, account: Account
) -> None:
    """Send one message of a stream. Ends the call if the client has gone.

    account: the call's; it may be ended while the client leaves the message unread.
    """
    account.blocked_since = asyncio.get_running_loop().time()
    try:
        await context.write(message)
        account.blocked_since = None
    except grpc.aio.InternalError as error:
        # gRPC cancels the call next; any other error here it would log as our bug.
        raise asyncio.CancelledError("the client has gone") from error


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], error: errors.OncelogError
) -> NoReturn:
    """End the call with the status of `error`."""
    code, message, trailing = to_status(error)
    await context.abort(code, message, trailing)
    raise AssertionError("abort returned")


def to_public(
    error: errors.OncelogError | faults.ClusterError | Rejected, nodes: Mapping[int, str]
) -> errors.OncelogError:
    """Return the public form of any error that a service raises on purpose.

    `nodes` maps node ids to the addresses that clients use.
    """
    match error:
        case errors.OncelogError():
            return error
        case Rejected():
            return rejection(error.reason, str(error), limit=error.limit)
        case faults.NotLeaderError():
            address = nodes.get(error.leader_id, "")
            return errors.NotLeaderError(
                str(error), leader_id=error.leader_id, leader_address=address
            )
        case faults.NotReadyError():
            return errors.NotReadyError(str(error))
        case faults.FeatureOffError():
            return errors.NotSupportedError(str(error))
        case faults.ProposalTimeoutError():
            return errors.RequestTimeoutError(str(error))
    return errors.InternalError(str(error))


def rejection(reason: str, message: str, **details: str | int) -> errors.OncelogError:
    """Return the public form of a rejected command."""
    kind = BY_REASON.get(reason, errors.InternalError)
    if reason == INVALID_REQUEST:
        details["field"] = message.partition(": ")[0]
    known = {name for name, _ in kind.detail_types}
    return kind(message, **{name: value for name, value in details.items() if name in known})


def accepted(result: MetadataResult, **details: str | int) -> MetadataResult:
    """Return `result` unless the command was rejected. Raises the public error."""
    if result.error:
        raise rejection(result.error, result.message, **details)
    return result
