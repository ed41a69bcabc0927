"""Messages encoded by hand: equal to those that protobuf reads and writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.services.log.fetch_encoding import FetchSection, encode
from oncelog.v1 import batch_pb2, log_pb2


def _view(payload: bytes) -> memoryview:
    return memoryview(payload)


number = st.integers(-(2**63), 2**63 - 1)
batches = st.tuples(
    st.builds(
        batch_pb2.StoredBatch,
        header=st.builds(batch_pb2.BatchHeader, topic=st.text(max_size=9), base_sequence=number),
        base_offset=number,
        append_time_ms=number,
    ),
    st.one_of(st.binary(max_size=200), st.integers(127, 70_000).map(bytes)).map(_view),
)
sections = st.builds(
    FetchSection,
    st.builds(
        log_pb2.PartitionRecords,
        topic=st.text(max_size=9),
        high_watermark=number,
        message=st.text(max_size=200),
    ),
    st.lists(batches, max_size=4),
)


def as_protobuf(section: FetchSection) -> log_pb2.PartitionRecords:
    records = log_pb2.PartitionRecords()
    records.CopyFrom(section.records)
    for stored, payload in section.batches:
        one = records.batches.add()
        one.CopyFrom(stored)
        one.payload = bytes(payload)
    return records


@given(st.lists(sections, max_size=4))
def test_protobuf_reads_it(answer: list[FetchSection]) -> None:
    expected = log_pb2.FetchResponse(partitions=[as_protobuf(section) for section in answer])
    assert log_pb2.FetchResponse.FromString(encode(answer)) == expected
