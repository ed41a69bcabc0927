"""Snapshots that arrive in parts: in order, of one piece, and not too many at a time."""

from __future__ import annotations

import pytest

from cluster.access.budget import Budget
from cluster.consensus.message import SnapshotError
from cluster.transport import snapshots
from cluster.transport.snapshots import PART_TIMEOUT, SnapshotParts
from cluster.v1 import peer_pb2 as pb


def part(
    offset: int, data: bytes, size: int = 6, group: int = 16, index: int = 9
) -> pb.SnapshotPart:
    return pb.SnapshotPart(
        group=group, term=3, index=index, index_term=2, size=size, offset=offset, data=data
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget() -> Budget:
    return Budget(1 << 40, 1 << 39)


@pytest.fixture
def parts(clock: Clock, budget: Budget) -> SnapshotParts:
    return SnapshotParts(clock, budget.open("snapshots"))


def test_parts_of_several_at_a_time(parts: SnapshotParts) -> None:
    assert parts.take(1, part(0, b"abc")) is None
    assert parts.take(2, part(0, b"ABC")) is None
    assert parts.take(1, part(0, b"123", group=17)) is None
    states = [
        parts.take(1, part(3, b"def")),
        parts.take(2, part(3, b"DEF")),
        parts.take(1, part(3, b"456", group=17)),
    ]
    assert [one and one.state for one in states] == [b"abcdef", b"ABCDEF", b"123456"]


@pytest.mark.parametrize(
    "second",
    [
        part(4, b"ef"),
        part(2, b"cdef"),
        part(3, b"def", index=10),
        part(3, b"def", size=7),
        part(3, b"defg"),
        part(3, b""),
        part(2**63, b"def"),
    ],
    ids=["a gap", "again", "of another", "another size", "too long", "nothing", "far beyond"],
)
def test_what_does_not_fit_ends_it(parts: SnapshotParts, second: pb.SnapshotPart) -> None:
    parts.take(1, part(0, b"abc"))
    with pytest.raises(SnapshotError):
        parts.take(1, second)
    with pytest.raises(SnapshotError, match="does not follow"):
        parts.take(1, part(3, b"def"))
    parts.take(1, part(0, b"abc"))
    assert parts.take(1, part(3, b"def")) is not None


def test_a_later_one_takes_the_place_of_one_that_was_given_up(parts: SnapshotParts) -> None:
    parts.take(1, part(0, b"xxx"))
    parts.take(1, part(0, b"abc"))
    found = parts.take(1, part(3, b"def"))
    assert found is not None and found.state == b"abcdef"


def test_a_lost_peer_leaves_nothing(parts: SnapshotParts) -> None:
    parts.take(1, part(0, b"abc"))
    parts.take(2, part(0, b"abc"))
    parts.forget(1)
    with pytest.raises(SnapshotError):
        parts.take(1, part(3, b"def"))
    assert parts.take(2, part(3, b"def")) is not None


def test_memory_is_bounded(
    parts: SnapshotParts, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MAX_ARRIVING_BYTES", 10)
    monkeypatch.setattr(snapshots, "MAX_SNAPSHOT_BYTES", 100)
    with pytest.raises(SnapshotError, match="above the limit, 100"):
        parts.take(1, part(0, b"x", size=101))
    parts.take(1, part(0, b"x", size=100))  # large, and the only one
    with pytest.raises(SnapshotError, match="100 bytes come first"):
        parts.take(2, part(0, b"x", size=6))
    clock.now = PART_TIMEOUT + 1.0  # its sender has given it up by now
    parts.take(2, part(0, b"x", size=6))
    parts.take(3, part(0, b"x", size=4))
    with pytest.raises(SnapshotError, match="10 bytes come first"):
        parts.take(1, part(0, b"x", size=1))


def test_what_has_come_is_counted(parts: SnapshotParts, budget: Budget) -> None:
    parts.take(1, part(0, b"abc"))
    parts.take(2, part(0, b"ABC"))
    assert budget.used == 6
    parts.forget(2)
    assert budget.used == 3
    with pytest.raises(SnapshotError):
        parts.take(1, part(1, b"abc"))
    assert budget.used == 0
