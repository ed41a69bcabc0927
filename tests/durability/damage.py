"""Damage to files of a stopped node, as by a failing disk or a careless hand.

Each function takes the node's data directory, changes something and describes it in words.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from storage.engine import Engine
from storage.kv import Family
from storage.options import EngineOptions
from storage.watermark import Watermark

Damage = Callable[[Path], str]


ENTRIES = "log/*.log"
HEADER = 36  # bytes, at the beginning of each file of the commit log
HEAD = 36  # bytes, before a record's body and its values
FLIPPED = 5


def _largest(directory: Path, pattern: str) -> Path:
    return max((directory / "db").glob(pattern), key=lambda file: file.stat().st_size)


def flip(file: Path, place: float = 0.5, bit: int = 0x10) -> str:
    content = bytearray(file.read_bytes())
    at = int(place * (len(content) - 1))
    content[at] ^= bit
    file.write_bytes(content)
    return f"a bit of {file.name} flipped at {at} of {len(content)}"


def cut(file: Path, place: float = 0.5) -> str:
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(int(place * size))
    return f"{file.name} cut from {size} to {int(place * size)}"


def of(pattern: str, how: Callable[..., str], place: float = 0.5) -> Damage:
    """Applies `how` to the largest of the store's files that match."""
    return lambda directory: how(_largest(directory, pattern), place)


def _records(content: bytes) -> list[tuple[int, int, int]]:
    """Finds (begin, body's bytes, values' bytes) of each record of a log file."""
    records, at = [], HEADER
    while at < len(content):  # salt u64 | crc u32 | body bytes u32 | values bytes u32 | ...
        body, values = (int.from_bytes(content[at + n : at + n + 4]) for n in (12, 16))
        records.append((at, body, values))
        at += HEAD + body + values
    return records


def record_flip(place: float) -> Damage:
    """Flips a bit in the body of a record of the commit log, not in an entry."""

    def damage(directory: Path) -> str:
        file = _largest(directory, ENTRIES)
        content = file.read_bytes()
        records = _records(content)
        at, _, _ = records[int(place * (len(records) - 1))]
        return flip(file, (at + HEAD + 1) / (len(content) - 1))

    return damage


def entries_flip(directory: Path) -> str:
    """Flips a bit in the middle of each of the largest values: batches, which a reader asks for.

    Among equal ones it takes those in the middle of the file: its end is read by a start. Other
    bits may lie where nobody reads again: the head of a record that the tables hold by now, an
    entry that another leader replaced.
    """
    file = _largest(directory, ENTRIES)
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    ranked = sorted(_records(bytes(content)), key=lambda one: (-one[2], abs(one[0] - middle)))
    for at, body, values in ranked[:FLIPPED]:
        content[at + HEAD + body + values // 2] ^= 0x10
    file.write_bytes(content)
    return f"a bit of {FLIPPED} entries of {file.name} flipped"


def of_file(name: str, how: Callable[..., str], place: float = 0.5) -> Damage:
    return lambda directory: how(directory / name, place)


def all_of(pattern: str, how: Callable[..., str]) -> Damage:
    """Damages every file that matches, in three places."""

    def damage(directory: Path) -> str:
        files = list((directory / "db").glob(pattern))
        assert files
        for file in files:
            for place in (0.2, 0.5, 0.8) if how is flip else (0.5,):
                how(file, place)
        return f"{len(files)} files {pattern} damaged"

    return damage


def rewritten_checkpoints(*, metadata: bool) -> Damage:
    """Changes chunks where RocksDB's checksums are right: our own must notice.

    metadata: those of the metadata group instead of those of all partitions.
    """

    def damage(directory: Path) -> str:
        with Engine.open(directory / "db", options=EngineOptions(min_free_bytes=0)) as engine:
            batch, count = engine.batch(), 0
            for key, value in list(engine.scan(Family.CHECKPOINTS, b"", b"\xff" * 32)):
                is_chunk, is_metadata = key[8:9] == b"\x02", key[:8] == bytes(8)
                if is_chunk and is_metadata == metadata:
                    changed = bytearray(value)
                    changed[len(changed) // 2] ^= 0x10
                    batch.put(Family.CHECKPOINTS, key, bytes(changed))
                    count += 1
            assert count, "there are no checkpoints"
            engine.write(batch)
            engine.sync()
        return f"{count} chunks of checkpoints rewritten"

    return damage


def gone(pattern: str) -> Damage:
    def damage(directory: Path) -> str:
        files = [f for f in (directory / "db").glob(pattern) if f.stat().st_size]
        assert files
        for file in files:
            file.unlink()
        return f"{', '.join(file.name for file in files)} deleted"

    return damage


def store_gone(directory: Path) -> str:
    """Removes the store, as if the volume were not mounted."""
    shutil.rmtree(directory / "db")
    return "db deleted"


def with_old_mark(damage: Damage) -> Damage:
    """Leaves the mark as a power cut may: it says next to nothing."""

    def both(directory: Path) -> str:
        (directory / "db" / "synced").unlink()
        mark = Watermark(directory / "db" / "synced")
        mark.advance(1)
        mark.close()
        return f"{damage(directory)}, with an old mark"

    return both


def cut_offset_index(directory: Path) -> str:
    """Cuts the last byte off each row of all partitions' offset indexes."""
    with Engine.open(directory / "db", options=EngineOptions(min_free_bytes=0)) as engine:
        batch, count = engine.batch(), 0
        for key, value in list(engine.scan(Family.OFFSETS, b"", b"\xff" * 32)):
            batch.put(Family.OFFSETS, key, value[:-1])
            count += 1
        assert count, "there is no offset index"
        engine.write(batch)
        engine.sync()
    return f"{count} rows of the offset index cut"
