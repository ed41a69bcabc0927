"""Lease tokens of raw calls: kept from answers and put into later requests.

    Api.lease, LeaseProducer --answer--> Tokens --into--> Produce, ProduceStream, OpenProducer

A request with a token keeps it. A request for an id leased elsewhere gets no token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc

from oncelog.v1 import batch_pb2, log_pb2, producer_pb2, transaction_pb2

_PROVEN = (producer_pb2.OpenProducerRequest, transaction_pb2.BeginTransactionRequest)


class Tokens(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Tokens of one cluster: (producer id, epoch) -> token."""

    def __init__(self) -> None:
        self.each = False  # whether each batch gets a token, for nodes that authenticate callers
        self._known: dict[tuple[int, int], bytes] = {}

    def of(self, producer_id: int, epoch: int) -> bytes:
        """Token of the lease; empty if it is unknown."""
        return self._known.get((producer_id, epoch), b"")

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        if isinstance(request, log_pb2.ProduceRequest):
            self._fill(request)
        elif isinstance(request, _PROVEN) and not request.lease_token:
            request.lease_token = self.of(request.producer_id, request.epoch)
        call = continuation(details, request)
        if isinstance(request, producer_pb2.LeaseProducerRequest):
            call.add_done_callback(self._keep)
        return call

    def _keep(self, call: Any) -> None:
        if call.code() is grpc.StatusCode.OK:
            lease = call.result()
            self._known[lease.producer_id, lease.epoch] = lease.lease_token

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details, self._filled(requests))

    def _filled(self, requests: Iterator[log_pb2.ProduceRequest]) -> Iterator[Any]:
        for request in requests:
            self._fill(request)
            yield request

    def _fill(self, request: log_pb2.ProduceRequest) -> None:
        for batch in request.batches:
            if not batch.lease_token and (self.each or _begins_chain(batch.header)):
                batch.lease_token = self.of(batch.header.producer_id, batch.header.epoch)


def _begins_chain(header: batch_pb2.BatchHeader) -> bool:
    if header.HasField("prev_sequence"):
        return header.prev_sequence == -1
    return header.base_sequence == 0
