"""Varints of protobuf: seven bits a byte, the lowest first.

Place in the flow: used by code that assembles or cuts up messages by hand, so that payloads are not
copied: `wire/fetched.py`, the producer's `sealing`, the nodes' answers to a fetch.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError


def encode_varint(number: int) -> bytes:
    assert number >= 0, "a negative number has another form"
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at` and the position behind it.

    Raises DecodeError if it has more than 64 bits, IndexError if the data ends within it.
    """
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise DecodeError("a number of more than 64 bits")
