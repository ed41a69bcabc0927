"""Errors <-> gRPC status. The client reads errors with it, nodes send them.

Place in the flow: a service raises an `OncelogError`; `to_status` turns it into a gRPC code, a
message and trailing metadata with a `google.rpc.ErrorInfo`; `from_rpc_error` makes the same error
again in the client. Verdicts on batches do not pass here: they are fields of the produce response.

ErrorInfo: domain "oncelog", reason as in `ERROR_CODES`, metadata holds "retriable"
("true" or "false") and the error's details as decimal or plain strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from oncelog import errors as e
from oncelog.wire.reasons import BY_REASON, CODES

DOMAIN = "oncelog"
DETAILS_KEY = "grpc-status-details-bin"
# Longer texts are cut: gRPC carries a status in HTTP headers, which peers limit to 8 KiB.
MAX_MESSAGE_CHARS = 1024

ERROR_CODES: dict[type[e.OncelogError], grpc.StatusCode] = {
    cls: grpc.StatusCode[name] for cls, name in CODES.items()
}

# Errors for a status without our ErrorInfo: it comes from gRPC itself, from a proxy, or from a
# foreign server.
_PLAIN_CODES: dict[grpc.StatusCode, type[e.OncelogError]] = {
    grpc.StatusCode.UNAVAILABLE: e.BrokerUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: e.RequestTimeoutError,
    grpc.StatusCode.CANCELLED: e.BrokerUnavailableError,
    # Usually a message beyond a limit: the same message would fail again.
    grpc.StatusCode.RESOURCE_EXHAUSTED: e.InvalidRequestError,
    grpc.StatusCode.INVALID_ARGUMENT: e.InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: e.InvalidRequestError,
    grpc.StatusCode.UNIMPLEMENTED: e.NotSupportedError,
    grpc.StatusCode.DATA_LOSS: e.CorruptLogError,
}

# Begins gRPC's text for a call that was not sent; it has nothing else for it.
_NO_CONNECTION = "failed to connect"

# The call may have been done before something broke on its way.
_BROKEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)

# grpc.aio reports this instead of any status that ends a stream during a write, for instance that
# the node stops.
_WRITE_MET_THE_END = (grpc.StatusCode.INTERNAL, "Internal error from Core")

TrailingMetadata = tuple[tuple[str, bytes], ...]


def to_status(error: e.OncelogError) -> tuple[grpc.StatusCode, str, TrailingMetadata]:
    """Return (code, message, trailing metadata) for `context.abort`.

    An error that is not in the table travels as INTERNAL: it was not meant to leave the process,
    and the peer does not know its class.
    """
    known = next((cls for cls in type(error).__mro__ if cls in ERROR_CODES), e.InternalError)
    code = ERROR_CODES[known]
    message = error.message[:MAX_MESSAGE_CHARS]
    metadata = {"retriable": "true" if error.retriable else "false"}
    for name, _ in known.detail_types:
        metadata[name] = str(getattr(error, name))[:MAX_MESSAGE_CHARS]
    info = error_details_pb2.ErrorInfo(reason=known.reason, domain=DOMAIN, metadata=metadata)
    status = status_pb2.Status(code=code.value[0], message=message)
    status.details.add().Pack(info)
    return code, message, ((DETAILS_KEY, status.SerializeToString()),)


def from_status(
    code: grpc.StatusCode,
    message: str | None,
    trailing_metadata: Iterable[Any] | None = None,
) -> e.OncelogError:
    """Return the error that a gRPC status stands for; never raises on a strange status."""
    info = _error_info(trailing_metadata or ())
    text = message or code.name
    if info is None or info.domain != DOMAIN:
        cls = _PLAIN_CODES.get(code, e.InternalError)
        prefix = "" if code in _PLAIN_CODES else f"{code.name}: "
        error = cls(prefix + text)
        error.unsent = text.startswith(_NO_CONNECTION)
        if code in _BROKEN:
            error.outcome = "unknown"
        return error
    error = _of_info(info, text)
    error.from_node = True
    return error


def _of_info(info: error_details_pb2.ErrorInfo, text: str) -> e.OncelogError:
    known = BY_REASON.get(info.reason)
    if known is None:
        # A newer server decides itself whether to retry.
        retriable = info.metadata.get("retriable") == "true"
        fallback = e.BrokerUnavailableError if retriable else e.InternalError
        return fallback(f"{info.reason}: {text}")
    error = known(text)
    if known is e.InternalError:  # the node may have failed after it had done the call
        error.outcome = "unknown"
    for name, kind in known.detail_types:
        value = info.metadata.get(name)
        if value is None:
            continue
        try:
            setattr(error, name, kind(value))
        except ValueError:
            continue
    return error


def from_rpc_error(error: grpc.RpcError) -> e.OncelogError:
    """Return the error that a failed gRPC call (sync or asyncio) stands for."""
    code = error.code() if hasattr(error, "code") else grpc.StatusCode.UNKNOWN
    details = error.details() if hasattr(error, "details") else str(error)
    if (code, details) == _WRITE_MET_THE_END:
        return e.BrokerUnavailableError("the stream ended while a message was written to it")
    metadata = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    return from_status(code, details, metadata)


def _error_info(
    trailing_metadata: Iterable[Any],
) -> error_details_pb2.ErrorInfo | None:
    for key, value in trailing_metadata:
        if key != DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            status = status_pb2.Status.FromString(value)
        except DecodeError:  # not ours
            return None
        for detail in status.details:
            if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return info
    return None
