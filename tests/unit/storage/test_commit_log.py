"""The commit log alone: records, files, torn ends, the view of a start."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from storage.commitlog.log import BEGIN, CommitLog, Place, Pointer
from storage.commitlog.record import (
    HEAD_BYTES,
    Change,
    decode,
    encode,
    is_whole,
    parse_head,
)
from storage.commitlog.replay import Replay
from storage.commitlog.segment import HEADER_BYTES, Segment, numbers_in, path_of
from storage.commitlog.usage import SegmentUsage
from storage.errors import CorruptionError, IdentityError, StorageFullError
from storage.kv import Family
from storage.watermark import Watermark

SALT = 2**40 + 1
CHANGES: list[Change] = [
    (Family.ENTRIES, b"group--1index--1", b"an entry", False),
    (Family.STATE, b"group--1s", b"", False),
    (Family.OFFSETS, b"group--1o", None, False),
    (Family.CHECKPOINTS, b"group--1a", b"group--1b", True),
    (Family.CHECKPOINTS, b"group--1c", b"x" * 100_000, False),
]


def change(number: int, size: int = 50) -> list[Change]:
    """Changes of one record: an entry, and a row that says which record it is."""
    return [
        (Family.ENTRIES, b"group--1%08d" % number, b"%04d" % number * size, False),
        (Family.STATE, b"group--1last", b"%d" % number, False),
    ]


def append(log: CommitLog, changes: list[Change]) -> Place:
    place = log.append(encode(changes))
    log.accept()
    return place


def opened(directory: Path, end: Place = BEGIN) -> CommitLog:
    return CommitLog(directory, end, Watermark(directory / "mark"), open_segments=4)


def found(directory: Path, start: Place = BEGIN, synced: int = 0) -> tuple[list[int], Place]:
    """The numbers that the records say they are, and the end; cut off there."""
    replay = Replay(directory, start, synced)
    numbers = [
        int(value)
        for _, operations in replay.records()
        for operation, value in operations
        if operation.family is Family.STATE and value is not None
    ]
    replay.finish()
    return numbers, replay.end


# -- records ------------------------------------------------------------------------


def test_a_record_says_what_was_written() -> None:
    encoded = encode(CHANGES)
    content = b"".join([encoded.head(SALT, 7, 5), encoded.body, *encoded.values])
    head = parse_head(content[:HEAD_BYTES], SALT)
    assert head is not None
    assert (head.number, head.synced) == (7, 5)
    assert head.record_bytes == len(content) == encoded.record_bytes
    body = content[HEAD_BYTES : HEAD_BYTES + head.body_bytes]
    assert is_whole(head, body)
    again: list[Change] = []
    for op in decode(head, body):
        value = content[op.value_at : op.value_at + op.value_bytes] if op.value_at else op.end
        again.append((op.family, op.key, value, op.end is not None))
    assert again == CHANGES
    assert [content[at : at + size] for at, size, _ in encoded.places] == encoded.values


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_head_and_body_is_noticed(bit: int) -> None:
    encoded = encode(CHANGES[:4])
    whole = encoded.head(SALT, 7, 5) + encoded.body
    for at in range(len(whole)):
        content = bytearray(whole)
        content[at] ^= 1 << bit
        head = parse_head(bytes(content[:HEAD_BYTES]), SALT)
        assert head is None or not is_whole(head, bytes(content[HEAD_BYTES:]))


# -- reading back -------------------------------------------------------------------


def test_values_are_read_back_from_every_segment(tmp_path: Path) -> None:
    log = opened(tmp_path)
    pointers = []
    for number in range(1, 41):
        encoded = encode(change(number))
        place = log.append(encoded)
        log.accept()
        at, size, crc = encoded.places[0]
        pointers.append(Pointer(place.segment, place.position + at, size, crc))
        if number % 5 == 0:
            log.roll(log.following())
    assert len(numbers_in(tmp_path)) == 9
    for number, pointer in enumerate(pointers, 1):
        assert log.read(Pointer.unpack(pointer.pack())) == b"%04d" % number * 50
    file = path_of(tmp_path, pointers[0].segment)
    content = bytearray(file.read_bytes())
    content[pointers[0].position] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptionError, match=r"00000001\.log.*fail their checksum"):
        log.read(pointers[0])
    assert len(log.read_unchecked(pointers[0])) == 200
    file.write_bytes(content[:20])
    with pytest.raises(CorruptionError, match="only 0 bytes are there"):
        log.read_unchecked(pointers[0])
    log.delete([2])
    with pytest.raises(CorruptionError, match="the file is missing"):
        log.read(pointers[6])


def test_a_reader_outlives_the_cache_and_the_file(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, BEGIN, Watermark(tmp_path / "mark"), open_segments=1)
    append(log, change(1))
    log.roll(log.following())
    held = Segment(tmp_path, 1)
    log.delete([1])
    assert held.read(0, 4) != b""


# -- the view of a start ---------------------------------------------------------------


def write_three(directory: Path) -> list[Place]:
    log = opened(directory)
    places = [append(log, change(number, 2000)) for number in (1, 2, 3)]
    return [*places, log.end]


def test_a_log_cut_anywhere_is_a_prefix(tmp_path: Path) -> None:
    places = write_three(tmp_path)
    file = path_of(tmp_path, 1)
    whole = file.read_bytes()
    for size in [*range(0, len(whole), 97), *(place.position for place in places)]:
        file.write_bytes(whole[:size])
        numbers, end = found(tmp_path)
        assert numbers == [n for n in (1, 2, 3) if places[n].position <= size]
        assert file.stat().st_size == end.position, "what is torn is gone"


def test_a_flipped_bit_behind_the_mark_ends_the_log_there(tmp_path: Path) -> None:
    places = write_three(tmp_path)
    file = path_of(tmp_path, 1)
    whole = file.read_bytes()
    for at in [*range(0, len(whole), 97), len(whole) - 1]:
        content = bytearray(whole)
        content[at] ^= 0x20
        file.write_bytes(content)
        numbers, _ = found(tmp_path)
        assert numbers == [n for n in (1, 2, 3) if places[n].position <= at]


def test_damage_up_to_the_mark_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    places = write_three(tmp_path)
    file = path_of(tmp_path, 1)
    content = bytearray(file.read_bytes())
    content[places[1].position + 30] ^= 1  # in the body of the second
    file.write_bytes(content)
    with pytest.raises(CorruptionError, match=r"2 synced writes are missing.*up to 3"):
        found(tmp_path, synced=3)
    assert file.read_bytes() == content
    assert found(tmp_path, synced=1)[0] == [1]


def test_an_entry_damaged_up_to_the_mark_is_left_to_its_reader(tmp_path: Path) -> None:
    places = write_three(tmp_path)
    file = path_of(tmp_path, 1)
    content = bytearray(file.read_bytes())
    content[places[2].position - 2000] ^= 1  # within the second's entry
    file.write_bytes(content)
    assert found(tmp_path, synced=3)[0] == [1, 2, 3]


def test_what_follows_a_torn_segment_is_dropped(tmp_path: Path) -> None:
    """The disk writes in its own order: the next segment can be there, and the end of this not."""
    log = opened(tmp_path)
    for number in (1, 2, 3):
        append(log, change(number, 2000))
    size = log.end.position
    log.roll(log.following())
    append(log, change(4))
    assert found(tmp_path)[0] == [1, 2, 3, 4]
    with path_of(tmp_path, 1).open("r+b") as file:
        file.truncate(size - 1)
    numbers, end = found(tmp_path)
    assert (numbers, end.segment, numbers_in(tmp_path)) == ([1, 2], 1, [1])


def test_a_record_inside_of_a_torn_value_is_not_taken_for_one(tmp_path: Path) -> None:
    """Clients choose values, and can write bytes that look like a record into them."""
    inner = encode(change(2))
    disguised = b"".join([inner.head(SALT, 2, 2), inner.body, *inner.values])
    log = opened(tmp_path)
    append(log, change(1))
    place = append(log, [(Family.ENTRIES, b"group--1%08d" % 9, disguised * 3, False)])
    with path_of(tmp_path, 1).open("r+b") as file:
        file.truncate(log.end.position - 1)
    numbers, end = found(tmp_path)
    assert numbers == [1] and end == place
    # The next record is shorter, and nothing of the value stands behind it.
    log = opened(tmp_path, end)
    append(log, [(Family.STATE, b"group--1last", b"7", False)])
    assert found(tmp_path)[0] == [1, 7]


def test_a_record_of_another_number_ends_the_log(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, change(1))
    log._end = log._end._replace(number=2)
    append(log, change(3))
    assert found(tmp_path)[0] == [1]


def test_replay_from_the_middle(tmp_path: Path) -> None:
    places = write_three(tmp_path)
    assert found(tmp_path, places[1], 3) == ([2, 3], places[3])
    assert found(tmp_path, places[3], 3) == ([], places[3])
    file = path_of(tmp_path, 1)
    with file.open("r+b") as opened:
        opened.truncate(places[2].position)
    with pytest.raises(CorruptionError, match="1 synced writes are missing"):
        found(tmp_path, places[2], 3)
    # Earlier records are not replayed, but somebody will read them.
    with file.open("r+b") as opened:
        opened.truncate(places[1].position)
    for _ in range(2):
        with pytest.raises(CorruptionError, match="synced writes are missing"):
            found(tmp_path, places[2], 2)
    file.unlink()
    with pytest.raises(CorruptionError, match="synced writes are missing"):
        found(tmp_path, places[2], 2)


# -- references of records to earlier ones -------------------------------------------


def log_of_steps(directory: Path, steps: str, size: int = 2000) -> list[Place]:
    """ "w" writes a record, "s" syncs, "r" rolls; where each record begins, from 1 on."""
    log = opened(directory)
    places = [BEGIN]
    for step in steps:
        if step == "w":
            places.append(append(log, change(len(places), size)))
        elif step == "s":
            log.sync()
        else:
            log.roll(log.following())
    return places


def flip(directory: Path, place: Place, distance: int) -> bytes:
    """A bit at that distance from where a record begins; the file as it is then."""
    file = path_of(directory, place.segment)
    content = bytearray(file.read_bytes())
    content[place.position + distance] ^= 4
    file.write_bytes(content)
    return bytes(content)


@pytest.mark.parametrize("distance", [0, 8, 12, 20, 30, HEAD_BYTES, HEAD_BYTES + 40])
@pytest.mark.parametrize("steps", ["wswsw", "wwsw", "wsrwsw", "wwsrw", "wwsrwrw"])
def test_a_whole_record_behind_a_damaged_one_proves_that_it_was_synced(
    tmp_path: Path, distance: int, steps: str
) -> None:
    """The mark lags and proves nothing. Nothing is cut off, and the second start knows it too."""
    places = log_of_steps(tmp_path, steps)
    damaged = flip(tmp_path, places[2], distance)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"1 synced writes are missing.*synced up to 2"):
            found(tmp_path)
    assert path_of(tmp_path, places[2].segment).read_bytes() == damaged


def test_without_the_claims_the_same_damage_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = log_of_steps(tmp_path, "wswsw")
    flip(tmp_path, places[2], 30)
    monkeypatch.setattr(Replay, "_claims_behind", lambda _: iter(()))
    assert found(tmp_path)[0] == [1]


def test_a_damaged_entry_that_was_synced_is_left_to_its_reader(tmp_path: Path) -> None:
    """As with damage below the mark, one replica stops, not the node."""
    places = log_of_steps(tmp_path, "wswsw")
    flip(tmp_path, places[3], -1000)
    assert found(tmp_path)[0] == [1, 2, 3]


@pytest.mark.parametrize("steps", ["wswww", "wswwrww", "wsrwww"])
def test_good_records_behind_a_torn_one_prove_nothing(tmp_path: Path, steps: str) -> None:
    """The disk writes in its own order; bytes no sync covered may be lost before later ones."""
    places = log_of_steps(tmp_path, steps)
    for distance in (0, 20, HEAD_BYTES + 3, 1000):
        flip(tmp_path, places[2], distance)
    numbers, end = found(tmp_path)
    assert (numbers, end.number) == ([1], 1)
    assert found(tmp_path)[0] == [1]


def test_lost_pages_of_what_no_sync_covered_prove_nothing(tmp_path: Path) -> None:
    """Any unsynced page may be zeros, whether or not later pages are there."""
    rng = random.Random(1)
    for number in range(60):
        directory = tmp_path / str(number)
        directory.mkdir()
        places = log_of_steps(directory, "wwsw" + rng.choice(("w", "rw")) * 12, 700)
        synced = places[3]
        lost = 0
        for segment in numbers_in(directory):
            content = bytearray(path_of(directory, segment).read_bytes())
            least = synced.position if segment == synced.segment else HEADER_BYTES
            for page in range(0, len(content), 512):
                if rng.random() < 0.2:
                    begin, end = max(page, least), min(page + 512, len(content))
                    content[begin:end] = bytes(max(0, end - begin))
                    lost += 1
            path_of(directory, segment).write_bytes(content)
        numbers, _ = found(directory)
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 2 and (lost == 0 or len(numbers) < 16)


def test_a_missing_file_in_the_middle_is_noticed(tmp_path: Path) -> None:
    log_of_steps(tmp_path, "wsrwsrw")
    path_of(tmp_path, 2).unlink()
    with pytest.raises(CorruptionError, match="1 synced writes are missing"):
        found(tmp_path)


def test_a_claim_is_found_across_the_pieces_that_are_read(tmp_path: Path) -> None:
    for shift in range(-8, 1):  # the salt of the fourth, from the boundary on
        directory = tmp_path / str(shift)
        directory.mkdir()
        log = opened(directory)
        append(log, change(1))
        second = append(log, change(2))
        log.sync()
        space = second.position + 1024 * 1024 + shift - log.end.position
        space -= encode([(Family.ENTRIES, b"k", b"", False)]).record_bytes
        third = append(log, [(Family.ENTRIES, b"k", bytes(space), False)])
        assert append(log, change(4)).position == second.position + 1024 * 1024 + shift
        flip(directory, second, 30)
        flip(directory, third, 30)
        with pytest.raises(CorruptionError, match="synced up to 2"):
            found(directory)


# -- the files' headers -----------------------------------------------------------------


def test_a_header_names_its_file_and_its_directory(tmp_path: Path) -> None:
    mark = Watermark(tmp_path / "mark")
    log = CommitLog(tmp_path, BEGIN, mark, directory_id=7, open_segments=4)
    append(log, change(1))
    assert found(tmp_path)[0] == [1]
    with pytest.raises(IdentityError, match=r"00000001\.log belongs to .* id 7, here is 8"):
        list(Replay(tmp_path, BEGIN, 0, directory_id=8).records())
    path_of(tmp_path, 1).rename(path_of(tmp_path, 2))
    with pytest.raises(CorruptionError, match="the header is of segment 1"):
        list(Replay(tmp_path, Place(2, 0, 0), 0).records())


@pytest.mark.parametrize("at", [0, 7, 8, 20, 30, HEADER_BYTES - 1])
def test_a_damaged_header_is_an_error(tmp_path: Path, at: int) -> None:
    """The header was durable before anything was written behind it."""
    log_of_steps(tmp_path, "wsrw")
    flip(tmp_path, Place(2, 0, 0), at)
    with pytest.raises(CorruptionError, match=r"00000002\.log: the header"):
        list(Replay(tmp_path, BEGIN, 0, has_log=True).records())


@pytest.mark.parametrize("size", [0, 5, HEADER_BYTES - 1, HEADER_BYTES])
def test_a_file_torn_when_it_was_made_is_made_anew(tmp_path: Path, size: int) -> None:
    log_of_steps(tmp_path, "wsr")
    path_of(tmp_path, 2).write_bytes(bytes(size))
    numbers, end = found(tmp_path)
    assert (numbers, end.segment, numbers_in(tmp_path)) == ([1], 1, [1])
    log = opened(tmp_path, end)
    log.roll(log.following())
    append(log, change(2))
    assert found(tmp_path)[0] == [1, 2]


# -- faults -----------------------------------------------------------------------------


def test_a_record_taken_back_was_never_there(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, change(1))
    log.append(encode(change(2)))
    assert log.sync() == 1, "what was not accepted is not counted"
    log.take_back()
    append(log, change(2, 1))
    assert found(tmp_path)[0] == [1, 2]


def test_no_space_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    append(log, change(1))
    size = path_of(tmp_path, 1).stat().st_size
    written = os.pwritev

    def half(descriptor: int, parts: list[bytes], position: int) -> int:
        return written(descriptor, [b"".join(parts)[:100]], position)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", half)
    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(2):
        with pytest.raises(StorageFullError) as caught:
            append(log, change(2))
        assert caught.value.recoverable_in_place
        assert path_of(tmp_path, 1).stat().st_size == size
    monkeypatch.undo()
    append(log, change(2))
    assert found(tmp_path)[0] == [1, 2]


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, parts, at: written(fd, [b"".join(parts)[:70_000]], at)
    )
    log = opened(tmp_path)
    encoded = encode([(Family.STATE, b"group--1last", b"%04000d" % 1, False)] * 600)
    log.append(encoded)
    log.accept()
    assert found(tmp_path)[0] == [1] * 600


# -- owners of a segment's entries -----------------------------------------------------


def key(group: int, index: int) -> bytes:
    return group.to_bytes(8) + index.to_bytes(8)


def test_usage_says_what_is_left() -> None:
    usage = SegmentUsage()
    for index in range(10, 20):
        usage.note(key(1, index), 100)
    usage.note(key(2, 5), 7)
    usage = SegmentUsage.unpack(usage.pack())
    one, two = usage.spans.values()
    assert usage.size == 1007
    assert [one.left(None), one.left(key(1, 20))] == [0, 0]
    assert [one.left(key(1, 1)), one.left(key(1, 15)), one.left(key(1, 19))] == [1000, 500, 100]
    assert (two.left(key(2, 5)), two.left(key(2, 6))) == (7, 0)
    with pytest.raises(CorruptionError):
        SegmentUsage.unpack(usage.pack()[:-1])
    usage.note(b"\xff" * 16, 1)
    with pytest.raises(CorruptionError, match="is of no group"):
        SegmentUsage.unpack(usage.pack())
