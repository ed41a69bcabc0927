"""Payload vectors of tests/vectors, as records and as stored payloads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.payload import decompress

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "vectors"


@dataclass(frozen=True, slots=True)
class Vector:
    """One vector. `records` follow the driver protocol: bytes in hexadecimal."""

    name: str
    records: list[dict[str, Any]]
    crc32c: str

    @classmethod
    def load(cls, name: str) -> Vector:
        found = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        return cls(name, found["records"], found["crc32c"])

    @property
    def max_timestamp_us(self) -> int:
        return max(int(record["timestamp_us"]) for record in self.records)

    def stored(self, codec: str) -> bytes:
        """Reads the stored payload. `codec`: none, or the file name's codec."""
        suffix = "" if codec == "none" else f".{codec}"
        text = (FOLDER / f"{self.name}{suffix}.hex").read_text(encoding="utf-8")
        return bytes.fromhex("".join(text.split()))


@cache
def _names() -> dict[bytes, str]:
    names = [path.stem for path in sorted(FOLDER.glob("*.json"))]
    return {Vector.load(name).stored("none"): name for name in names}


def name_of(codec: int, payload: bytes) -> str:
    """Finds the vector with exactly this payload once decompressed; empty: no vector has it."""
    return _names().get(decompress(codec, payload), "")
