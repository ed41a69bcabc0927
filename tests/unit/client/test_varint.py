"""Whole numbers as protobuf writes them."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from oncelog.v1 import log_pb2
from oncelog.wire.varint import decode_varint, encode_varint


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_it_agrees_with_protobuf(number: int) -> None:
    encoded = encode_varint(number)
    assert decode_varint(b"\xff" + encoded + b"\x01", 1) == (number, 1 + len(encoded))
    if number:  # protobuf leaves a zero out
        assert log_pb2.BatchResult(id=number).SerializeToString() == b"\x08" + encoded


def test_what_has_no_end_is_an_error() -> None:
    with pytest.raises(IndexError):
        decode_varint(b"\x80\x80", 0)
    with pytest.raises(DecodeError, match="64 bits"):
        decode_varint(b"\x80" * 11, 0)
