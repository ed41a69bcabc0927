"""Errors over gRPC and back: one table, both directions, strange statuses included."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from oncelog import errors
from oncelog.types import TopicPartition
from oncelog.v1 import log_pb2
from oncelog.wire import verdicts
from oncelog.wire.reasons import BY_REASON
from oncelog.wire.status import (
    DETAILS_KEY,
    DOMAIN,
    ERROR_CODES,
    from_rpc_error,
    from_status,
    to_status,
)

ALL = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.OncelogError)
]


@pytest.mark.parametrize("cls", ERROR_CODES, ids=lambda cls: cls.__name__)
def test_there_and_back(cls: type[errors.OncelogError]):
    given = {name: 42 if kind is int else "näme" for name, kind in cls.detail_types}
    error = cls("what happened", **given)
    code, message, trailing = to_status(error)
    assert code is ERROR_CODES[cls]
    again = from_status(code, message, trailing)
    assert type(again) is cls
    assert str(again) == "what happened"
    assert again.details == given
    assert again.retriable == error.retriable


def test_the_status_says_what_the_protocol_promises():
    error = errors.NotLeaderError("no", leader_id=2, leader_address="b:2")
    _, _, ((key, value),) = to_status(error)
    assert key == DETAILS_KEY
    status = status_pb2.Status.FromString(value)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("oncelog", "NOT_LEADER")
    assert dict(info.metadata) == {
        "retriable": "true",
        "leader_id": "2",
        "leader_address": "b:2",
    }


def test_reasons_are_unique_and_upper_snake():
    groups = (errors.OncelogError, errors.RetriableError, errors.FatalError)
    reasons = [cls.reason for cls in ALL if cls not in groups]
    assert len(set(reasons)) == len(reasons) > 25
    assert len(BY_REASON) == len(ERROR_CODES)
    assert all(reason.replace("_", "").isupper() for reason in reasons)


def test_what_is_not_in_the_table_travels_as_internal():
    code, message, trailing = to_status(errors.ClientClosedError("closed"))
    assert code is grpc.StatusCode.INTERNAL
    assert isinstance(from_status(code, message, trailing), errors.InternalError)


def test_long_messages_are_cut():
    _, message, ((_, value),) = to_status(errors.InternalError("x" * 100_000))
    assert len(message) == 1024
    assert len(value) < 4096


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.BrokerUnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.RequestTimeoutError),
        (grpc.StatusCode.CANCELLED, errors.BrokerUnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.InvalidRequestError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.NotSupportedError),
        (grpc.StatusCode.PERMISSION_DENIED, errors.InternalError),
        (grpc.StatusCode.UNKNOWN, errors.InternalError),
    ],
)
def test_plain_statuses(code: grpc.StatusCode, kind: type[errors.OncelogError]):
    assert type(from_status(code, "text")) is kind
    assert "text" in str(from_status(code, "text"))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (from_status(*to_status(errors.InternalError("a bug"))), "unknown"),
        (from_status(grpc.StatusCode.INTERNAL, "Received RST_STREAM"), "unknown"),
        (from_status(grpc.StatusCode.UNKNOWN, "Stream removed"), "unknown"),
        (from_status(grpc.StatusCode.PERMISSION_DENIED, "of a proxy"), None),
        (from_status(*to_status(errors.NotReadyError("wait"))), None),
    ],
)
def test_a_call_that_broke_may_have_been_done(
    error: errors.OncelogError, outcome: errors.Outcome | None
):
    assert error.outcome == outcome


def packed(info: error_details_pb2.ErrorInfo) -> tuple[tuple[str, bytes], ...]:
    status = status_pb2.Status(code=9)
    status.details.add().Pack(info)
    return ((DETAILS_KEY, status.SerializeToString()),)


def test_a_reason_from_the_future():
    for retriable, kind in (("true", errors.RetriableError), ("false", errors.FatalError)):
        info = error_details_pb2.ErrorInfo(
            domain=DOMAIN, reason="TOO_NEW", metadata={"retriable": retriable}
        )
        error = from_status(grpc.StatusCode.ABORTED, "hm", packed(info))
        assert isinstance(error, kind)
        assert "TOO_NEW" in str(error)


@pytest.mark.parametrize(
    "trailing",
    [
        (),
        (("other", "text"),),
        ((DETAILS_KEY, b"\xff\xff nonsense"),),
        ((DETAILS_KEY, status_pb2.Status(code=5).SerializeToString()),),
        packed(error_details_pb2.ErrorInfo(domain="example.com", reason="FENCED")),
    ],
)
def test_statuses_that_are_not_ours(trailing: tuple):
    error = from_status(grpc.StatusCode.UNAVAILABLE, None, trailing)
    assert type(error) is errors.BrokerUnavailableError


def test_details_that_do_not_parse_keep_their_default():
    info = error_details_pb2.ErrorInfo(
        domain=DOMAIN, reason="NOT_LEADER", metadata={"leader_id": "two"}
    )
    error = from_status(grpc.StatusCode.UNAVAILABLE, "no", packed(info))
    assert isinstance(error, errors.NotLeaderError)
    assert error.leader_id == 0


# --- verdicts ------------------------------------------------------------------------


def test_every_verdict_is_a_success_retriable_or_an_error():
    tp = TopicPartition("t", 0)
    number: Any
    for number in log_pb2.Verdict.values():
        verdict = number
        if verdict in verdicts.STORED or verdict in verdicts.RETRIABLE or not verdict:
            continue
        error = verdicts.error_of(log_pb2.BatchResult(verdict=verdict, message="why"), tp)
        assert error.reason == verdicts.verdict_name(verdict)
        assert "t-0: why" in str(error)


def test_details_of_verdicts():
    tp = TopicPartition("t", 0)
    fenced = verdicts.error_of(
        log_pb2.BatchResult(verdict=log_pb2.VERDICT_FENCED, current_epoch=4), tp
    )
    assert isinstance(fenced, errors.FencedError)
    assert fenced.current_epoch == 4
    unknown = verdicts.error_of(log_pb2.BatchResult(verdict=77), tp)  # type: ignore[arg-type]
    assert isinstance(unknown, errors.InvalidBatchError)


class Refusing(grpc.GenericRpcHandler):
    """Ends each stream before it has read anything."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the node stops")
        yield b""


def test_a_write_that_meets_the_end_of_its_stream_is_worth_a_retry() -> None:
    """A member that says hello to a node that stops must not fail for good by chance."""

    async def hello(channel: grpc.aio.Channel) -> errors.OncelogError:
        call: Any = channel.stream_stream("/any/call")()
        try:
            await call.write(b"hello")
            await call.read()
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error)
        raise AssertionError("the stream was not refused")

    async def many() -> set[type[errors.OncelogError]]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Refusing(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            found = await asyncio.gather(*(hello(channel) for _ in range(500)))
        await server.stop(None)
        return {type(one) for one in found}

    assert asyncio.run(many()) == {errors.BrokerUnavailableError}
