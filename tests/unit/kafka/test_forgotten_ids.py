"""ResolveSequence about ids of Kafka's clients; the map forgets them after a day without use."""

from __future__ import annotations

import crc32c
import pytest

from cluster.dedup.last_seen import KAFKA_LIFETIME_MS
from cluster.dedup.verdict import BatchMeta
from cluster.entries import KAFKA_V2
from cluster.kafka import ids
from cluster.partition.types import Answer, AppendRequest
from cluster.services.log.resolve import Resolver
from oncelog.errors import UnknownProducerError
from oncelog.v1 import log_pb2 as pb
from tests.unit.kafka.test_produce import kafka_node
from tests.unit.services.log_rig import SECRET, TOPIC

ID, OTHER = ids.made(SECRET, 1), ids.made(SECRET, 2)
NEVER_ISSUED = ids.made(SECRET, 5_000)


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_what_it_stored_is_found(*, is_forgotten: bool) -> None:
    node, payload, answers = kafka_node(), b"three records", list[Answer]()
    stored = BatchMeta(ID, 0, 0, 2, -1, 3, crc32c.crc32c(payload), -1, True)
    node.part.append(AppendRequest(stored, KAFKA_V2, 0, 1, payload), answers.append)
    assert answers[0].verdict.base_offset == 0
    if is_forgotten:
        node.part.last_seen.advance(10**15, lifetime_ms=KAFKA_LIFETIME_MS)
    assert (node.part.last_seen.known(ID) is None) == is_forgotten

    async def asked(producer_id: int, epoch: int, sequence: int) -> tuple[str, int]:
        request = pb.ResolveSequenceRequest(
            topic=TOPIC, producer_id=producer_id, epoch=epoch, sequence=sequence
        )
        found = await Resolver(node).answer(request)
        return pb.Resolution.Name(found.resolution).removeprefix("RESOLUTION_"), found.offset

    for epoch in (0, -1):
        assert await asked(ID, epoch, 1) == ("COMMITTED", 1)
        assert await asked(ID, epoch, 3) == ("NOT_YET", -1)
        assert await asked(OTHER, epoch, 0) == ("NOT_YET", -1)
        with pytest.raises(UnknownProducerError):
            await asked(NEVER_ISSUED, epoch, 0)


async def test_what_a_forgotten_id_stored_in_a_later_epoch_is_found() -> None:
    """Kafka's clients raise the epoch of an id without a name themselves."""
    node, payload, answers = kafka_node(), b"three records", list[Answer]()
    stored = BatchMeta(ID, 3, 0, 2, -1, 3, crc32c.crc32c(payload), -1, True)
    node.part.append(AppendRequest(stored, KAFKA_V2, 0, 1, payload), answers.append)
    node.part.last_seen.advance(10**15, lifetime_ms=KAFKA_LIFETIME_MS)
    request = pb.ResolveSequenceRequest(topic=TOPIC, producer_id=ID, epoch=-1, sequence=1)
    found = await Resolver(node).answer(request)
    assert (found.resolution, found.epoch, found.offset) == (pb.RESOLUTION_COMMITTED, 3, 1)
