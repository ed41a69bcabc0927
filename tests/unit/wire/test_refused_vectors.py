"""tests/vectors/refused: a reader refuses each payload, a node each batch, for the reason given.

Both must take the vectors in the folder above.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.metadata.lease_tokens import sign
from oncelog.errors import InvalidBatchError
from oncelog.v1 import batch_pb2
from oncelog.wire.batch import decode_payload
from tests.unit.services.log_rig import SECRET, TOPIC, LogNode

FOLDER = Path(__file__).parent.parent.parent / "vectors/refused"
PAYLOADS: list[dict[str, str]] = json.loads((FOLDER / "payloads.json").read_text())
BATCHES: list[dict[str, Any]] = json.loads((FOLDER / "batches.json").read_text())
LEASED = (7, (0, 1))  # the producer id and its epochs that the vectors take to be leased


@pytest.mark.parametrize("vector", PAYLOADS, ids=lambda vector: vector["name"])
def test_a_reader_refuses_the_payload(vector: dict[str, str]) -> None:
    with pytest.raises(InvalidBatchError):
        decode_payload(bytes.fromhex(vector["payload"])).check()


def batch_of(vector: dict[str, Any]) -> batch_pb2.Batch:
    fields = {"topic": TOPIC, **vector["header"]}
    fields["crc32c"] = int(fields["crc32c"], 16)
    batch = batch_pb2.Batch(
        header=batch_pb2.BatchHeader(**fields), payload=bytes.fromhex(vector["payload"])
    )
    producer_id, epochs = LEASED
    if batch.header.producer_id == producer_id and batch.header.epoch in epochs:
        batch.lease_token = sign(SECRET, producer_id, batch.header.epoch, 1)
    return batch


@pytest.mark.parametrize("vector", BATCHES, ids=lambda vector: vector["name"])
async def test_a_node_refuses_the_last_batch(vector: dict[str, Any]) -> None:
    node = LogNode()
    for step in vector["batches"]:
        batch, answers = batch_of(step), list[Any]()
        await node.appender.append(batch, batch.payload, answers.append)
        (answer,) = answers
        assert answer.verdict.kind.name == step["verdict"], answer.verdict
        if "field" in step:
            assert answer.verdict.message.startswith(f"{step['field']}:"), answer.verdict
    assert len(node.log.entries) == len(
        [s for s in vector["batches"] if s["verdict"] == "APPENDED"]
    )


def test_each_kind_of_refusal_has_a_vector() -> None:
    last = {vector["batches"][-1]["verdict"] for vector in BATCHES}
    assert last == {
        "INVALID_BATCH", "UNKNOWN_PRODUCER", "SEQUENCE_CONFLICT", "OUT_OF_ORDER", "FENCED",
        "OFFSET_MISMATCH", "DUPLICATE",
    }  # fmt: skip


def test_a_vector_is_wrong_in_one_thing() -> None:
    """With the same header the plain payload is stored, and read: see the first batches."""
    sound = {step["payload"] for vector in BATCHES for step in vector["batches"][:-1]}
    assert sound == {(FOLDER.parent / "01-one-value.hex").read_text().replace("\n", "")}
