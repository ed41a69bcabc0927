"""Payload vectors of tests/vectors, as records and as stored payloads.

`kafka/CLIENT` is a record batch of that client of Kafka's protocol, without its first 21 bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.payload import decompress

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "vectors"
KAFKA = "kafka/"
KAFKA_V2 = 16
CODECS = {"none": 0, "zstd": 1, "zstd-stream": 1, "lz4": 2}
# One record whose header has the key ff: no client that we know of writes such a batch.
BAD_HEADER = bytes(39) + bytes([1, 18, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1])
_LEFT_OUT = 21


@dataclass(frozen=True, slots=True)
class Vector:
    """One vector. `records` follow the driver protocol: bytes in hexadecimal."""

    name: str
    records: list[dict[str, Any]]
    crc32c: str

    @classmethod
    def load(cls, name: str) -> Vector:
        if name.startswith(KAFKA):
            return cls(name, _kafka_records(), "")
        found = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        return cls(name, found["records"], found["crc32c"])

    @property
    def max_timestamp_us(self) -> int:
        return max(int(record["timestamp_us"]) for record in self.records)

    def stored(self, codec: str) -> bytes:
        """Reads the stored payload. `codec`: none, or the file name's codec."""
        if self.name.startswith(KAFKA):
            return _kafka_batch(self.name.removeprefix(KAFKA), codec)
        suffix = "" if codec == "none" else f".{codec}"
        text = (FOLDER / f"{self.name}{suffix}.hex").read_text(encoding="utf-8")
        return bytes.fromhex("".join(text.split()))

    def codec_number(self, codec: str) -> int:
        return KAFKA_V2 if self.name.startswith(KAFKA) else CODECS[codec]


def _kafka_vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "kafka/batches.json").read_text(encoding="utf-8"))
    return found


def _kafka_records() -> list[dict[str, Any]]:
    return [
        {
            "value": record["value"],
            "key": record["key"],
            "timestamp_us": record["timestamp_ms"] * 1000,
            "headers": record["headers"],
        }
        for record in _kafka_vectors()["records"]
    ]


def _kafka_batch(client: str, codec: str) -> bytes:
    [found] = [
        bytes.fromhex(one["batch"])[_LEFT_OUT:]
        for one in _kafka_vectors()["batches"]
        if (one["client"].split()[0], one["codec"]) == (client, codec)
    ]
    return found


@cache
def _names() -> dict[bytes, str]:
    names = [path.stem for path in sorted(FOLDER.glob("*.json"))]
    return {Vector.load(name).stored("none"): name for name in names}


def name_of(codec: int, payload: bytes) -> str:
    """Finds the vector with exactly this payload once decompressed; empty: no vector has it."""
    return _names().get(decompress(codec, payload), "")
