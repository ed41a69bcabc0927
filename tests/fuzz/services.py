"""Requests with random fields to every method of a live node.

The node must answer each with a result or with a status that names the error: a reason in
ErrorInfo, also where bytes are no message. Afterwards it must still serve, with no more memory than
before and no traceback in its log.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from harness.api import as_call, batch, reason, verdict
from harness.local_cluster import QUICK, LocalCluster
from oncelog.v1 import (
    cluster_pb2,
    group_pb2,
    log_pb2,
    producer_pb2,
    security_pb2,
    transaction_pb2,
)

TOPIC = "fuzzed"
CALL_TIMEOUT = 5.0
MEMORY = 400 * 1024 * 1024  # bytes that the node may grow
LONG_WAITS = ("max_wait_ms", "timeout_ms")
NUMBERS = (0, 1, -1, 2, 7, 255, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**53)
LARGE = (2**63 - 1, -(2**63), 2**62, 2**64 - 1)
TEXTS = ("", TOPIC, "__offsets", "a", "a" * 249, "a" * 300, "Ünïcode", ".", "..", "a/b", "\0", "g")
# No reason of ours: gRPC cut the call off, or could not read the message.
WITHOUT_REASON = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}

_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


# -- random messages --------------------------------------------------------------------


def fill(message: Message, rng: random.Random, depth: int = 0) -> None:
    """Sets some of the fields, more or less sensibly."""
    for one in message.DESCRIPTOR.fields:
        if rng.random() < 0.25 or depth > 4:
            continue
        if one.is_repeated:
            for _ in range(rng.choice((0, 1, 1, 2, 5, 40))):
                _add(message, one, rng, depth)
        elif one.message_type is not None:
            fill(getattr(message, one.name), rng, depth + 1)
        else:
            setattr(message, one.name, _value(one, rng))


def _add(message: Message, one: Any, rng: random.Random, depth: int) -> None:
    if one.message_type is None:
        getattr(message, one.name).append(_value(one, rng))
    elif one.message_type.GetOptions().map_entry:
        key, value = one.message_type.fields
        if value.message_type is None:
            getattr(message, one.name)[_value(key, rng)] = _value(value, rng)
    else:
        fill(getattr(message, one.name).add(), rng, depth + 1)


def _value(one: Any, rng: random.Random) -> Any:
    kind = one.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice((0, 1, 2, 3, 7, 1000, -1))
    if kind in _RANGES:
        low, high = _RANGES[kind]
        if one.name in LONG_WAITS:
            return rng.choice((0, 1, 50, -1))  # asking for a long wait is no fault
        if one.name == "partition" and rng.random() < 0.6:
            return rng.choice((0, 1))
        return max(low, min(high, rng.choice((*NUMBERS, *LARGE))))
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e300, float("inf"), float("nan")))
    if one.type == FieldDescriptor.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 20, 1000)))
    if one.name == "topic" and rng.random() < 0.6:
        return TOPIC
    return rng.choice(TEXTS)


# -- calls ------------------------------------------------------------------------------


@dataclass(slots=True)
class Findings:
    """Executions by method, and findings in words, a bounded number of times."""

    executions: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        if len(self.wrong) < 20:
            self.wrong.append(what)


def methods() -> list[MethodDescriptor]:
    files = (log_pb2, producer_pb2, cluster_pb2, group_pb2, security_pb2, transaction_pb2)
    return [
        method
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


def call_for(channel: grpc.Channel, method: MethodDescriptor) -> Callable[..., Any]:
    """Builds a call that takes serialized requests and returns serialized answers."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kinds: dict[tuple[bool, bool], Any] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    call: Callable[..., Any] = kinds[method.client_streaming, method.server_streaming](path)
    return call


def requests(method: MethodDescriptor, rng: random.Random) -> Iterator[bytes]:
    """Yields one request, or the few of a stream; now and then bytes that are no message."""
    for _ in range(rng.randint(1, 3) if method.client_streaming else 1):
        if rng.random() < 0.05:
            yield rng.randbytes(rng.randint(0, 64))
            continue
        message = GetMessageClass(method.input_type)()
        fill(message, rng)
        if isinstance(message, cluster_pb2.DeleteTopicRequest) and message.name == TOPIC:
            message.name = "a"  # else all that follows would find no topic
        yield message.SerializeToString()


def execute(
    channel: grpc.Channel, method: MethodDescriptor, rng: random.Random, found: Findings
) -> None:
    sent = list(requests(method, rng))
    call = call_for(channel, method)
    found.executions += 1
    try:
        answer = call(iter(sent) if method.client_streaming else sent[0], timeout=CALL_TIMEOUT)
        if method.server_streaming:
            for received, _ in enumerate(answer):
                if received >= 3 or method.name == "Subscribe":
                    answer.cancel()
                    break
        found.statuses["OK"] += 1
    except grpc.RpcError as error:
        code, why = as_call(error).code(), reason(error)
        found.statuses[f"{code.name} {why}"] += 1
        details = as_call(error).details() or ""
        if code is grpc.StatusCode.UNKNOWN or why == "INTERNAL":
            found.note(f"{method.name}: {code.name} {why} {details}: {[s.hex() for s in sent]}")
        elif not why and code not in WITHOUT_REASON:
            found.note(f"{method.name}: {code.name} without a reason: {details}")


def resident(pid: int) -> int:
    """Reads a process's memory in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no VmRSS")


def attack(
    cluster: LocalCluster,
    seed: int,
    *,
    seconds: float = math.inf,
    executions: int = sys.maxsize,
) -> Findings:
    """Sends requests to node 1 until either is reached; returns the findings."""
    rng, found = random.Random(seed), Findings()
    api, process = cluster.api(1), cluster.nodes[1]
    api.create_topic(TOPIC, 2)
    before = resident(process.pid)
    callable_methods = methods()
    end = time.monotonic() + seconds
    while found.executions < executions and time.monotonic() < end and process.running:
        execute(api.channel, rng.choice(callable_methods), rng, found)
    if not process.running:
        found.note(f"the node ended\n{process.log_tail()}")
        return found
    grown = resident(process.pid) - before
    if grown > MEMORY:
        found.note(f"the node's memory grew by {grown} bytes")
    for line in process.log_text().splitlines():
        if "Traceback" in line or "replica stopped" in line:
            found.note(f"in the node's log: {line[:2500]}")
    still_serves(cluster, found)
    return found


def still_serves(cluster: LocalCluster, found: Findings) -> None:
    try:
        producer = cluster.api(1).lease()
        one = batch(TOPIC, 0, producer.producer_id, 0, b"after", epoch=producer.epoch)
        result = cluster.produce(one)
        if verdict(result) not in ("APPENDED", "OFFSET_MISMATCH"):
            found.note(f"a sound batch is answered {result}")
    except grpc.RpcError as error:
        found.note(f"the node does not serve any more: {error}")


def secured_node(folder: Path) -> LocalCluster:
    """Starts a cluster of one node, with all layers before a service: TLS, rules, the audit log."""
    settings = {
        **QUICK, "request_timeout_ms": 1000, "permissions": "true", "superusers": "dns:tester",
        "audit_file": str(folder / "audit"),
    }  # fmt: skip
    return LocalCluster(folder / "cluster", 1, settings=settings, secured=True)


def fuzz_node(seconds: float, seed: int) -> int:
    """Fuzzes a node for scripts/fuzz; returns the executions, or -1 after printing the findings."""
    with tempfile.TemporaryDirectory() as folder:
        with secured_node(Path(folder)) as cluster:
            found = attack(cluster, seed, seconds=seconds)
    for text, count in found.statuses.most_common(30):
        print(f"  {count:8} {text}")
    for text in found.wrong:
        print(text)
    return -1 if found.wrong else found.executions
