"""Checks of a history against the replicas. Pure; shares no code with the product.

Each check answers yes (holds), no (with examples) or unknown (it could not be made).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tests.chaos.history import NO, NO_OFFSET, YES, History, Read, Replica, write_of

MAX_EXAMPLES = 10


@dataclass(slots=True)
class Check:
    """A claim's result: `holds` is True, False, or None if nothing could be said.

    The name is that of the breach.
    """

    name: str
    claim: str
    found: int = 0
    examples: list[str] = field(default_factory=list)
    unknown: str = ""

    @property
    def holds(self) -> bool | None:
        if self.found:
            return False
        return None if self.unknown else True

    def note(self, text: str) -> None:
        self.found += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(text)


def check(
    history: History, replicas: Sequence[Replica], held: Collection[tuple[int, int]]
) -> list[Check]:
    """held: (node, partition) of all existing replicas; each had to be read."""
    checks = [
        *_content(history, replicas),
        *_replicas(replicas),
        *_reads(history.reads, replicas),
        *_conditions(history, replicas),
        *_takeovers(history, replicas),
    ]
    written = {part for writes in history.writes.values() for part in writes.partitions}
    there = {(replica.node, replica.partition) for replica in replicas}
    missing = [
        f"{part} of node {node}"
        for node, part in sorted(held)
        if part in written and (node, part) not in there
    ]
    missing += [f"{part}" for part in sorted(written - {part for _, part in held})]
    if missing:
        for one in checks:
            one.unknown = "not read: partition " + ", ".join(missing)
    return checks


# -- writes against logs ------------------------------------------------------------------------


def _content(history: History, replicas: Sequence[Replica]) -> Iterator[Check]:
    lost = Check("lost", "every acknowledged record is in every replica")
    twice = Check("duplicate", "no record is there twice")
    aborted = Check("aborted read", "no refused record is there")
    order = Check("reordered", "each producer's records lie in the order it sent them")
    misplaced = Check("misplaced", "every acknowledged record lies where its client was told")
    unknown = Check("unknown", "every record was sent by a client")
    nodes = sorted({replica.node for replica in replicas})
    for node in nodes:
        own = [replica for replica in replicas if replica.node == node]
        places: dict[tuple[int, int], tuple[int, int]] = {}
        for replica in own:
            highest: dict[int, int] = {}
            for offset, value in replica.records():
                where = f"node {node}, partition {replica.partition}, offset {offset}"
                write = _write(history, value)
                if write is None:
                    unknown.note(f"{where}: {value[:40]!r}")
                    continue
                if write in places:
                    twice.note(f"{where}: {write} was at {places[write]}")
                    continue
                places[write] = (replica.partition, offset)
                worker, number = write
                if number < highest.get(worker, -1):
                    order.note(f"{where}: {write} after number {highest[worker]}")
                highest[worker] = max(number, highest.get(worker, -1))
        held = {replica.partition for replica in own}
        _outcomes(history, node, held, places, (lost, aborted, misplaced))
    yield from (lost, twice, aborted, order, misplaced, unknown)


def _write(history: History, value: bytes) -> tuple[int, int] | None:
    try:
        worker, number = write_of(value)
    except ValueError:
        return None
    writes = history.writes.get(worker)
    return (worker, number) if writes and 0 <= number < len(writes.outcomes) else None


def _outcomes(
    history: History,
    node: int,
    held: Collection[int],
    places: dict[tuple[int, int], tuple[int, int]],
    checks: tuple[Check, Check, Check],
) -> None:
    """held: the partitions of which the node has a replica."""
    lost, aborted, misplaced = checks
    for worker, writes in history.writes.items():
        for number, outcome in enumerate(writes.outcomes):
            place = places.get((worker, number))
            if outcome == NO and place:
                aborted.note(f"node {node}: {(worker, number)} was refused and is at {place}")
            if outcome != YES:
                continue
            acked = (writes.partitions[number], writes.offsets[number])
            if place is None and acked[0] in held:
                lost.note(f"node {node}: {(worker, number)}, acknowledged at {acked}")
            elif place is not None and acked[1] != NO_OFFSET and place != acked:
                misplaced.note(f"node {node}: {(worker, number)} is at {place}, not at {acked}")


# -- replicas against each other ----------------------------------------------------------------


def _replicas(replicas: Sequence[Replica]) -> Iterator[Check]:
    holes = Check("holes", "offsets rise by one, without holes")
    same = Check("differing replicas", "all replicas of a partition are identical")
    maps = Check("differing last-seen maps", "all replicas remember producers alike")
    first: dict[int, Replica] = {}
    for replica in replicas:
        expected = replica.start
        for offset, values in replica.batches:
            if offset != expected:
                where = f"node {replica.node}, partition {replica.partition}"
                holes.note(f"{where}: offset {offset} instead of {expected}")
            expected = offset + len(values)
        if expected != replica.high_watermark:
            holes.note(
                f"node {replica.node}, partition {replica.partition}: ends at {expected}, "
                f"high watermark {replica.high_watermark}"
            )
        other = first.setdefault(replica.partition, replica)
        pair = f"partition {replica.partition}, nodes {other.node} and {replica.node}"
        if (other.start, other.high_watermark, other.digest) != (
            replica.start,
            replica.high_watermark,
            replica.digest,
        ):
            ranges = [f"{one.start}..{one.high_watermark}" for one in (other, replica)]
            same.note(f"{pair}: {' and '.join(ranges)}")
        for pid in sorted(other.last_seen.keys() | replica.last_seen.keys()):
            if other.last_seen.get(pid) != replica.last_seen.get(pid):
                maps.note(f"{pair}: producer {pid}")
    yield from (holes, same, maps)


# -- reads --------------------------------------------------------------------------------------


def _reads(reads: Sequence[Read], replicas: Sequence[Replica]) -> Iterator[Check]:
    above = Check("above the high watermark", "no read returns what is not committed")
    back = Check("non-monotonic", "a leader's high watermark never falls for a reader")
    gaps = Check("gap in a read", "a read starts at or before the offset asked for")
    changed = Check("changed", "what was read once is in the log for ever")
    final = _final(replicas)
    marks: dict[tuple[int, int], int] = {}
    for read in reads:
        where = f"reader {read.reader}, node {read.node}, partition {read.partition}"
        end = read.offset + len(read.values)
        if end > read.high_watermark and read.values:
            above.note(f"{where}: up to {end}, high watermark {read.high_watermark}")
        if read.values and not read.offset <= read.asked < end:
            gaps.note(f"{where}: asked for {read.asked}, got {read.offset}..{end}")
        if read.from_leader:
            key = (read.reader, read.partition)
            if read.high_watermark < marks.get(key, 0):
                back.note(f"{where}: {read.high_watermark} after {marks[key]}")
            marks[key] = max(marks.get(key, 0), read.high_watermark)
        for offset, value in enumerate(read.values, read.offset):
            if final.get((read.partition, offset), value) != value:
                changed.note(f"{where}, offset {offset}: {value[:40]!r} is no longer there")
        if read.values and (read.partition, end - 1) not in final and final:
            changed.note(f"{where}: offset {end - 1} was read and is gone")
    yield from (above, back, gaps, changed)


def _final(replicas: Sequence[Replica]) -> dict[tuple[int, int], bytes]:
    """(partition, offset) -> value, of one replica of each partition."""
    one = {replica.partition: replica for replica in replicas}
    return dict(
        chain.from_iterable(
            (((replica.partition, offset), value) for offset, value in replica.records())
            for replica in one.values()
        )
    )


# -- conditional appends ------------------------------------------------------------------------


def _conditions(history: History, replicas: Sequence[Replica]) -> Iterator[Check]:
    ignored = Check("condition ignored", "a record for one offset alone lies there or nowhere")
    vain = Check("refused in vain", "a condition is refused only if its offset was taken")
    ends: dict[int, int] = {}
    for replica in replicas:
        ends[replica.partition] = max(ends.get(replica.partition, 0), replica.high_watermark)
        for offset, value in replica.records():
            write = _write(history, value)
            if write is None:
                continue
            wanted = history.writes[write[0]].expected[write[1]]
            if wanted not in (NO_OFFSET, offset):
                where = f"node {replica.node}, partition {replica.partition}"
                ignored.note(f"{where}: {write}, for offset {wanted} alone, is at {offset}")
    winners: dict[tuple[int, int], tuple[int, int]] = {}
    for worker, writes in history.writes.items():
        for number, wanted in enumerate(writes.expected):
            if wanted == NO_OFFSET:
                continue
            write, place = (worker, number), (writes.partitions[number], wanted)
            if writes.outcomes[number] == YES and winners.setdefault(place, write) != write:
                ignored.note(f"{write} and {winners[place]} were both acknowledged at {place}")
            if writes.outcomes[number] == NO and wanted >= ends.get(place[0], 0):
                vain.note(f"{write} was refused at {place}; the log ends at {ends.get(place[0])}")
    yield from (ignored, vain)


# -- two instances of one producer name ---------------------------------------------------------


def _takeovers(history: History, replicas: Sequence[Replica]) -> Iterator[Check]:
    zombie = Check("zombie", "behind a successor's record lies none of its predecessor")
    one = Check("not one goes on", "of two instances of a name one goes on, the other is fenced")
    for replica in replicas:
        highest, latest = -1, (0, 0)
        for offset, value in replica.records():
            write = _write(history, value)
            epoch = history.writes[write[0]].epoch if write else -1
            if write is None or epoch < 0:
                continue
            if epoch < highest:
                zombie.note(
                    f"node {replica.node}, partition {replica.partition}, offset {offset}: "
                    f"{write}, epoch {epoch}, after {latest}, epoch {highest}"
                )
            highest, latest = max((highest, latest), (epoch, write))
    for contest in history.contests:
        a, b = (history.writes[worker] for worker in contest.workers)
        if contest.ends in (("fenced", "fenced"), ("went on", "went on")):
            one.note(f"workers {contest.workers}: both {contest.ends[0]}")
        if min(a.epoch, b.epoch) < 0:
            continue
        if (a.producer_id, a.epoch) == (b.producer_id, b.epoch):
            one.note(f"workers {contest.workers}: both have epoch {a.epoch}")
        if a.producer_id != b.producer_id:
            one.note(f"workers {contest.workers}: ids {a.producer_id} and {b.producer_id}")
    yield from (zombie, one)
