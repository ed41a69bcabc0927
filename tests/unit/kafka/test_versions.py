"""Heads of requests, ApiVersions, rights, and the bytes of Fetch's answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse

from cluster.access.gate import Gate
from cluster.dedup.verdict import Kind
from cluster.kafka.codec import CodecError, Source
from cluster.kafka.errors import Error, of_error, of_verdict
from cluster.kafka.fetch import _encoded, _Part
from cluster.kafka.messages import (
    API_VERSIONS,
    CALLS,
    FETCH,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    OffsetFetchRequest,
)
from cluster.kafka.needs import NEEDS, Rights
from cluster.kafka.offsets import Offsets
from cluster.kafka.sent import Sent
from cluster.kafka.versions import Head, api_versions, read_head
from cluster.security.caller import Caller
from cluster.security.permissions import KINDS, OPERATIONS, Authorizer, Rule
from tests.unit.small_node import Node

VERSIONS = range(FETCH.oldest, FETCH.newest + 1)


def head(data: bytes) -> Head:
    return read_head(Source(memoryview(data)))


@pytest.mark.parametrize(("version", "tail"), [(8, b"\0\4me"), (9, b"\0\2me\0"), (1, b"\xff\xff")])
def test_a_head_is_read_with_or_without_tagged_fields(version: int, tail: bytes) -> None:
    data = struct.pack(">hhi", METADATA.key, version, 77) + tail.replace(b"\0\4", b"\0\2")
    source = Source(memoryview(data + b"body"))
    found = read_head(source)
    assert (found.call, found.version, found.correlation) == (METADATA, version, 77)
    assert source.left == len(b"body")


@pytest.mark.parametrize(("key", "version"), [(METADATA.key, 10), (METADATA.key, -1), (10**4, 0)])
def test_a_call_that_is_not_offered_ends_the_connection(key: int, version: int) -> None:
    with pytest.raises(CodecError, match="is not offered"):
        head(struct.pack(">hhih", key, version, 1, -1))


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 99])
def test_every_client_can_read_the_answer_to_api_versions(version: int) -> None:
    tail = b"\xff\xff\0" if version == 3 else b"\xff\xff"
    found = head(struct.pack(">hhi", API_VERSIONS.key, version, 8) + tail)
    data = bytes(api_versions(found))
    assert data[:4] == struct.pack(">i", 8)
    answer = ApiVersionsResponse.decode(data[4:], version=found.version)
    assert answer.error_code == (Error.NONE if version <= 3 else Error.UNSUPPORTED_VERSION)
    offered = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    told = CALLS.values() if found.is_known else [API_VERSIONS]
    assert offered == {call.key: (call.oldest, call.newest) for call in told}


def test_produce_is_offered_from_0() -> None:
    assert PRODUCE.oldest == 0, "older clients of librdkafka compress only then"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_is_answered_at_every_version(version: int) -> None:
    topics: Sequence[tuple[str, list[_Part]]] = [
        ("a", [_Part(0, 0, 100, 7, [b"head", memoryview(b"payload")]), _Part(2, 6)]),
        ("b", [_Part(1, 0, 5, 0)]),
    ]
    made = _encoded(Head(FETCH, version, 3, "", True), topics)
    data = b"".join(bytes(one) for one in made)
    found = FetchResponse.decode(data[4 + (version >= FETCH.flexible) :], version=version)
    rows = [
        (topic.topic, one.partition_index, one.error_code, one.high_watermark,
         one.last_stable_offset, bytes(one.records or b""))
        for topic in found.responses for one in topic.partitions
    ]  # fmt: skip
    assert rows == [
        ("a", 0, 0, 100, 100, b"headpayload"), ("a", 2, 6, -1, -1, b""), ("b", 1, 0, 5, 5, b""),
    ]  # fmt: skip
    if version >= 5:
        assert found.responses[0].partitions[0].log_start_offset == 7


def test_every_call_declares_the_rights_that_it_needs() -> None:
    """A new one without a line in the table fails here."""
    assert NEEDS.keys() == CALLS.keys()
    known = {(operation, kind) for kind in KINDS for operation in OPERATIONS}
    assert {(*row,) for row in NEEDS.values()} <= known | {("", "")}


def test_a_right_is_asked_for_each_name() -> None:
    rule = Rule("alice", "topic", "mine", ("write",))
    gate = Gate(_Nobody(), Authorizer(lambda: (rule,), ()), None)  # type: ignore[arg-type]
    rights = Rights(gate, Caller("alice"), Sent(1))
    assert rights.refusal(PRODUCE, "mine") is None
    refused = rights.refusal(PRODUCE, "yours")
    assert refused is not None and of_error(refused) is Error.TOPIC_AUTHORIZATION_FAILED
    assert Rights(Gate(None, None, None), Caller(), Sent(1)).refusal(PRODUCE, "yours") is None


@pytest.mark.parametrize(("operation", "stable"), [("describe", Error.GROUP_AUTHORIZATION_FAILED),
                                                   ("read", Error.NONE)])  # fmt: skip
async def test_stable_offsets_need_what_ends_transactions(operation: str, stable: Error) -> None:
    rule = Rule("alice", "group", "g", (operation,))
    gate = Gate(_Nobody(), Authorizer(lambda: (rule,), ()), None)  # type: ignore[arg-type]
    groups: Any = SimpleNamespace(node=Node())
    offsets, rights = Offsets(groups, None), Rights(gate, Caller("alice"), Sent(1))  # type: ignore[arg-type]
    for is_stable, error in ((False, Error.NONE), (True, stable)):
        request = OffsetFetchRequest("g", [], [], is_stable)
        answer = await offsets.fetch(rights, Head(OFFSET_FETCH, 7, 1, "", True), request)
        assert answer.error_code == error


class _Nobody:
    """Identities that are never asked."""


# Never a final answer: the same batch waits, or its outcome is another verdict.
INTERNAL = {Kind.UNSPECIFIED, Kind.STAGED, Kind.JOINED, Kind.STAGED_DUPLICATE, Kind.UNREGISTERED}


@pytest.mark.parametrize("kind", sorted(set(Kind) - INTERNAL))
def test_every_verdict_has_a_number(kind: Any) -> None:
    assert of_verdict(kind) in Error
