"""A node with one real partition, whose log commits at once: for tests of produce and fetch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import crc32c
import grpc

from cluster.consensus.proposals import Applied
from cluster.metadata.lease_tokens import SECRET_BYTES, sign
from cluster.partition.replica import Answer, Partition, Policy
from cluster.partition.types import NodeView
from cluster.rpc.decoding import Decoding
from cluster.rpc.memory import Metering
from cluster.rpc.services import add_service
from cluster.security.caller import UNIDENTIFIED, Caller
from cluster.services.log.produce import Appender
from cluster.services.log.resolve import Resolver
from cluster.services.log.service import LogService
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1 import batch_pb2, log_pb2, log_pb2_grpc
from oncelog.wire.batch import encode_payload
from storage.errors import NotCachedError
from storage.offset_index import OffsetIndex
from tests.sim.disk import Disk
from tests.unit.small_node import Node

TOPIC, GROUP = "orders", 16  # the first group that is not of the nodes themselves
PAYLOAD = encode_payload([b"value"], [1])
SECRET = bytes(range(SECRET_BYTES))


class OneLog:
    """The partition's group and its journal: each proposal is committed at once."""

    base_index = 0
    memory_from = 0  # entries below are on the disk only

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.failed: Exception | None = None
        self.from_disk: Callable[[int], bytes] = lambda index: self.entries[index - 1]
        self.is_leader, self.is_ready, self.leader_id = True, True, 1
        self.entries_behind = 0
        self.config = SimpleNamespace(group=GROUP, node_id=1, peers=())
        self.journal = self
        self.entries: list[bytes] = []
        self.partition: Any = None

    def open(self, machine: Any) -> Any:
        self.partition = machine
        machine.restore(None, 0)
        return self

    def propose(self, data: bytes, done: Any, *, outlives_term: bool = False) -> None:
        self.entries.append(data)
        index, batch = len(self.entries), self.disk.batch()
        result = self.partition.apply(index, 1, data, batch)
        self.disk.write(batch)
        done(Applied(index, result))

    def confirm(self, done: Any) -> None:
        done(Applied(len(self.entries), None))

    def is_in_memory(self, index: int) -> bool:
        return index >= self.memory_from

    def entry(self, index: int, is_intact: Any = None) -> bytes:
        assert self.is_in_memory(index)
        return self.entries[index - 1]

    def stored_entry(self, index: int, is_intact: Any, *, cached_only: bool) -> bytes:
        if cached_only:
            raise NotCachedError("on the disk only")
        return self.from_disk(index)


class LogNode(Node):
    """Node 1 leads the only partition of TOPIC; the test chooses the other nodes."""

    def __init__(self, **policy: Any) -> None:
        super().__init__()
        self.register(1, 2, 3)
        create = meta.CreateTopic(name=TOPIC, placements=[meta.Placement(replicas=[1, 2, 3])])
        self.apply(meta.MetadataCommand(create_topic=create))
        allocate = meta.AllocateProducerIds(node_id=1, count=100)
        self.apply(meta.MetadataCommand(allocate_producer_ids=allocate))
        secret = meta.CreateLeaseSecret(secret=SECRET)
        self.apply(meta.MetadataCommand(create_lease_secret=secret))
        self.storage_full = False
        disk = Disk()
        self.log = OneLog(disk)
        self.part = Partition(
            TOPIC,
            0,
            OffsetIndex(disk, GROUP),
            Policy(names=self.metadata, **policy),
            NodeView(lambda: self.now_ms, lambda: None, lambda: self.storage_full, lambda: True),
            self.log.open,
        )
        self.leaders[GROUP] = 1
        self.hosted: Partition | None = self.part
        self.part.on_role(leader=True, ready=True, term=1)
        self.appender = Appender(self, Resolver(self))

    def partition(self, group_id: int) -> Partition | None:
        return self.hosted if group_id == GROUP else None

    async def send(self, header: batch_pb2.BatchHeader, payload: bytes) -> Answer:
        """The answer to a batch, which comes at once here."""
        answers: list[Answer] = []
        await self.appender.append(self.batch(header, payload), payload, answers.append)
        (answer,) = answers
        return answer

    def batch(
        self, header: batch_pb2.BatchHeader, payload: bytes, caller: Caller = UNIDENTIFIED
    ) -> batch_pb2.Batch:
        """With the token of its lease, as if its id had been leased, if it was issued."""
        batch = batch_pb2.Batch(header=header, payload=payload)
        if self.metadata.is_issued(header.producer_id) and header.epoch >= 0:
            batch.lease_token = sign(SECRET, header.producer_id, header.epoch, 1, caller.principal)
        return batch


def header(payload: bytes = PAYLOAD, **fields: Any) -> batch_pb2.BatchHeader:
    """A sound header, but for the fields given."""
    sound: dict[str, Any] = {"topic": TOPIC, "record_count": 1, "crc32c": crc32c.crc32c(payload)}
    return batch_pb2.BatchHeader(**(sound | fields))


def batch(payload: bytes = PAYLOAD, **fields: Any) -> batch_pb2.Batch:
    return batch_pb2.Batch(header=header(payload, **fields), payload=payload)


@asynccontextmanager
async def serving(node: LogNode) -> AsyncIterator[tuple[Any, grpc.aio.Channel]]:
    """A stub of the node's LogService over real gRPC, and its channel."""
    server = grpc.aio.server(interceptors=[Metering(node.memory), Decoding()])
    add_service(server, LogService(node))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    limit = ("grpc.max_receive_message_length", -1)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[limit]) as channel:
        yield log_pb2_grpc.LogServiceStub(channel), channel
    await server.stop(None)


def fetch(**fields: Any) -> log_pb2.FetchRequest:
    return log_pb2.FetchRequest(
        partitions=[log_pb2.PartitionFetch(topic=TOPIC, partition=0)], **fields
    )
