"""Cleaner of a node: has a worker clean the partitions that this node leads, one at a time.

    Maintenance --look--> Cleaner --asks--> CleaningRead, worker --pieces--> Partition.carry

A pass reads the dirty part once for its keys, then all batches from the log's start on, in order.
Each carried batch is committed before the next one is proposed, so an older record of a key is gone
before its tombstone is carried for the first time. A pass may end at any step: the batches that it
carried are right as they are, and the next pass, here or at another leader, goes on with the rest.

The Raft log is kept from the oldest carried batch on. So a pass carries as many bytes again of the
oldest ones as it cleans for the first time, about: the log stays within a multiple of its records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from cluster.cleaning import messages
from cluster.cleaning.by_key import CleaningTerms
from cluster.cleaning.passes import Piece
from cluster.consensus.background_reads import BackgroundReads
from cluster.consensus.proposals import Abandoned, Outcome
from cluster.dedup.verdict import Kind
from cluster.node.cleaning.due import CleaningDue, Due
from cluster.node.cleaning.reading import CleaningChunk, CleaningRead
from cluster.partition.replica import OffsetOutOfRangeError, Partition
from cluster.partition.types import Cleanup
from storage.errors import StorageError

log = logging.getLogger(__name__)

CHANGED = "the batches changed meanwhile"
FULL = "the partition has as many carried batches as it may have: spread its keys over more"
# A partition with many carried batches gets larger ones, so that there is room for more records.
GROWTH = 4
RETRY = 1.0  # seconds until a carried batch is proposed again that has to wait
ANSWER = 120.0  # seconds for a reply of the worker; one takes 0.1 to 3 s of a core
# The worker ends with so many looks in a row that find nothing: to start one costs 0.2 s of a core.
IDLE_LOOKS = 4
# Clean parts that one look measures. The loop waits 3 to 5 ms for each, and a new leader knows none
# of them, so the others follow one by one.
MEASURED = 4
PAUSE = 0.05  # seconds between those
# Seconds until a partition is cleaned again after an error that is a bug of ours; each further one
# doubles them, so often at most: a pass reads the whole partition.
HELD, DOUBLED = 64.0, 6
T = TypeVar("T")
Resume = Callable[[Any], None]
# Begins something; calls back once, later, with what came of it.
Step = Callable[[Resume], None]
Steps = Generator[Step, Any, T]
Pass = Steps[None]


class BrokenOffError(Exception):
    """A pass cannot go on; the text says why."""


class CleaningPort(Protocol):
    """Worker's process. It starts with the first request."""

    def ask(self, request: bytes, done: Callable[[bytes | None], None]) -> None:
        """Sends a request; `done` is called once, later. None: the worker has ended."""

    def close(self) -> None:
        """Ends the process, if there is one; requests are answered by None."""


class CleanerSettings(NamedTuple):
    """bytes_per_s: that are read; 0: without a limit. memory_bytes: of the keys of one pass.

    min_dirty_bytes: see CleaningDue.
    """

    bytes_per_s: int
    memory_bytes: int
    min_dirty_bytes: int


@dataclass(slots=True)
class CleanerCounters:
    """Counters since the node started. errors: partition -> why its newest pass broke off."""

    passes: int = 0
    broken_off: int = 0
    read_bytes: int = 0
    carried_batches: int = 0
    carried_bytes: int = 0
    left_batches: int = 0  # found in newest passes that cannot be cleaned
    errors: dict[str, str] = field(default_factory=dict)


class Cleaner:
    """Cleans compacted partitions.

    by_group: replicas of this node. reads: of the disk. later(seconds, call): calls once, later.
    """

    def __init__(
        self,
        settings: CleanerSettings,
        by_group: Mapping[int, Partition],
        reads: BackgroundReads,
        worker: CleaningPort,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._settings = settings
        self._by_group = by_group
        self._reads = reads
        self._worker = worker
        self._later = later
        self._due = CleaningDue(settings.min_dirty_bytes)
        self._steps: Pass | None = None
        self._cleaned: Partition | None = None
        self._closed = False
        self._idle_looks = 0
        self._unmeasured = list[Partition]()  # while they are measured one by one
        self._requests = 0
        self._asked_now = 0  # number of the request that the worker has; 0: none
        self._set_back = set[int]()  # groups: their passes broke off since one was cleaned
        self._faults = dict[int, int]()  # group -> unexpected errors since it was cleaned
        self._held = set[int]()  # groups that wait after an unexpected error
        self.counters = CleanerCounters()

    @property
    def is_cleaning(self) -> bool:
        return self._steps is not None

    def look(self) -> None:
        """Begins a pass over the partition with the largest dirty share, if one is due.

        After a pass that broke off, a partition waits until another one is cleaned, if one is due.
        """
        if self._steps is not None or self._closed:
            return
        found = max(
            self._candidates(),
            key=lambda one: (one[0].group.config.group not in self._set_back, one[1].share),
            default=None,
        )
        self._idle_looks = 0 if found is not None else self._idle_looks + 1
        if found is None:
            if self._idle_looks >= IDLE_LOOKS:
                self._worker.close()
            return
        partition, due, now_ms = found
        self._cleaned = partition
        self._steps = self._pass(partition, due, now_ms)
        self._resume(self._steps, None)

    def due_of(self, partition: Partition) -> Due | None:
        """Returns the partition's dirty part; None: it is not compacted, or led elsewhere."""
        if partition.closed or partition.policy.cleanup == Cleanup.DELETE:
            return None
        now_ms = partition.cleaning_time_ms()
        return None if now_ms is None else self._due.of(partition, now_ms)

    def close(self) -> None:
        self._closed = True
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()
        self._worker.close()

    def _candidates(self) -> list[tuple[Partition, Due, int]]:
        found, led, unmeasured = [], set[str](), list[Partition]()
        most = self._due.measured + MEASURED
        for partition in list(self._by_group.values()):
            if partition.policy.cleanup == Cleanup.DELETE or partition.group.failed is not None:
                continue
            now_ms = partition.cleaning_time_ms()
            if now_ms is None:
                self._due.forget(partition.group.config.group)
                continue
            led.add(_name(partition))
            try:
                due = self._due.of(partition, now_ms, may_measure=self._due.measured < most)
            except StorageError as error:
                partition.unreadable(error)
                continue
            if due is None:
                unmeasured.append(partition)
            elif due.is_due and partition.group.config.group not in self._held:
                found.append((partition, due, now_ms))
        for name in self.counters.errors.keys() - led:
            del self.counters.errors[name]
        if unmeasured and not self._unmeasured:
            self._unmeasured = unmeasured
            self._later(PAUSE, self._measure)
        return found

    def _measure(self) -> None:
        """Measures a clean part that a look left out; the next look finds it."""
        if self._closed:
            return
        partition = self._unmeasured.pop()
        try:
            if partition.group.failed is None:
                self.due_of(partition)
        except StorageError as error:
            partition.unreadable(error)
        finally:
            if self._unmeasured:
                self._later(PAUSE, self._measure)

    # -- running ------------------------------------------------------------------------

    def _resume(self, steps: Pass, outcome: object) -> None:
        """Goes on with a pass until its next step; does nothing if it was closed meanwhile."""
        if steps is not self._steps:
            return
        try:
            step = steps.send(outcome)
            step(lambda outcome: self._resume(steps, outcome))
        except StopIteration:
            self._end("")
        except (BrokenOffError, StorageError) as error:
            self._end(str(error))
        except Exception as error:  # noqa: BLE001 - any fault ends this pass only
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Ends a pass with an error that nothing expects, and holds its partition back a while."""
        partition = self._cleaned
        assert partition is not None
        log.error("cleaning failed partition=%s", _name(partition), exc_info=error)
        group = partition.group.config.group
        faults = self._faults[group] = self._faults.get(group, 0) + 1
        self._held.add(group)
        self._later(HELD * 2 ** min(faults - 1, DOUBLED), lambda: self._held.discard(group))
        self._end(f"{type(error).__name__}: {error}")

    def _end(self, error: str) -> None:
        partition, self._cleaned, self._steps = self._cleaned, None, None
        assert partition is not None
        name = _name(partition)
        self.counters.passes += not error
        self.counters.broken_off += bool(error)
        self.counters.errors.pop(name, None)
        if error:
            # The worker may have half of a pass; the next one begins anew.
            self._worker.close()
            self.counters.errors[name] = error
            self._set_back.add(partition.group.config.group)
            log.warning("cleaning broke off partition=%s: %s", name, error)
        else:
            self._set_back.clear()
            self._faults.pop(partition.group.config.group, None)
            self._later(0.0, self.look)

    # -- one pass -------------------------------------------------------------------------

    def _pass(self, partition: Partition, due: Due, now_ms: int) -> Pass:
        """Cleans a partition. Raises BrokenOffError, StorageError."""
        partition.compact()
        terms = CleaningTerms(now_ms, partition.policy.delete_retention_ms)
        yield from self._asked(messages.begin(terms, self._settings.memory_bytes))
        offset, end = due.dirty_from, due.end
        while chunk := (yield from self._chunk(partition, offset, end)):
            if chunk.batches:
                full_at = messages.full_at((yield from self._asked(messages.note(chunk.batches))))
                end = end if full_at is None else full_at
            offset = chunk.end
            yield self._paused(chunk.size)
        dirty = due.share * (end - due.dirty_from) / (due.end - due.dirty_from)
        again = dirty / (max(1 - due.share, dirty) or 1.0)
        again_below = partition.machine.stored.carried.oldest_part(again)
        yield from self._clean(partition, end, now_ms, again_below)

    def _clean(self, partition: Partition, end: int, now_ms: int, again_below: int) -> Pass:
        offset, is_left, left = partition.log_start_offset, False, list[str]()
        while chunk := (yield from self._chunk(partition, offset, end)):
            if chunk.batches:
                # A tombstone's time counts from now: older records of its key were shown until now.
                now_ms = partition.cleaning_time_ms() or now_ms
                growth = GROWTH if partition.machine.stored.carried.is_half_full else 1
                request = messages.clean(chunk.batches, now_ms, again_below, growth, left=is_left)
                for piece in messages.pieces((yield from self._asked(request))):
                    if piece.data:
                        yield from self._carry(partition, piece)
                    left += [f"{piece.base_offset}: {piece.error}"] if piece.error else []
            left += [f"{offset}: its transaction is too large"] if chunk.is_left else []
            is_left = is_left or chunk.is_left
            offset = chunk.end
            yield self._paused(chunk.size)
        self.counters.left_batches += len(left)
        if left:
            log.warning(
                "cleaning left batches as they are partition=%s batches=%d, the first one at %s",
                *(_name(partition), len(left), left[0]),
            )
        self._due.cleaned(partition, end)
        partition.compact()

    def _chunk(self, partition: Partition, offset: int, end: int) -> Steps[CleaningChunk | None]:
        """Reads the next chunk, behind batches that retention deleted; None: `end` is reached.

        Raises BrokenOffError if the batches changed meanwhile, and what the read has raised.
        """
        while offset < end:
            chunk: CleaningChunk | Exception | None
            chunk = yield self._reading(partition, offset, end)
            if isinstance(chunk, Exception):
                raise chunk
            if chunk is not None:
                return chunk
            if offset >= partition.log_start_offset:
                raise BrokenOffError(CHANGED)
            offset = partition.log_start_offset
        return None

    def _asked(self, request: bytes) -> Steps[bytes]:
        """Asks the worker. Raises BrokenOffError if it ended, or does not answer in time."""
        self._requests += 1
        self._asked_now = number = self._requests
        self._later(ANSWER, lambda: self._give_up(number))
        reply: bytes | None = yield lambda resume: self._worker.ask(request, resume)
        is_late, self._asked_now = self._asked_now != number, 0
        if reply is None:
            late = f"the worker did not answer within {ANSWER:g} s"
            raise BrokenOffError(late if is_late else "the worker ended")
        return reply

    def _give_up(self, number: int) -> None:
        """Ends a worker that is not done with this request, for instance a stopped process."""
        if self._asked_now == number:
            self._asked_now = 0
            self._worker.close()

    def _carry(self, partition: Partition, piece: Piece) -> Pass:
        """Carries a batch. Raises BrokenOffError if it cannot."""
        while True:
            if partition.policy.cleanup == Cleanup.DELETE:
                raise BrokenOffError("the topic is not compacted any more")
            outcome = yield lambda resume: _propose(partition, piece.data, resume)
            if outcome is not Kind.NOT_READY:
                break
            yield lambda resume: self._later(RETRY, lambda: resume(None))
        if outcome is not True:
            unchanged = FULL if partition.machine.stored.carried.is_full else CHANGED
            reason = unchanged if outcome is False else getattr(outcome, "name", outcome)
            text = f"the batch at {piece.base_offset} was not carried: {reason}"
            raise BrokenOffError(text)
        self.counters.carried_batches += 1
        self.counters.carried_bytes += len(piece.data)

    # -- steps ----------------------------------------------------------------------------

    def _paused(self, size: int) -> Step:
        self.counters.read_bytes += size
        rate = self._settings.bytes_per_s
        seconds = size / rate if rate else 0.0
        return lambda resume: self._later(seconds, lambda: resume(None))

    def _reading(self, partition: Partition, offset: int, end: int) -> Step:
        def step(resume: Resume) -> None:
            group = partition.group.config.group
            try:
                if partition.closed or self._by_group.get(group) is not partition:
                    raise OffsetOutOfRangeError(offset, 0, 0)
                read = CleaningRead(partition, offset, end)
            except OffsetOutOfRangeError:
                resume(None)
                return

            def done(outcome: CleaningChunk | Exception | None) -> None:
                if isinstance(outcome, StorageError):
                    if not read.is_outdated:
                        partition.unreadable(outcome)
                    outcome = None
                resume(outcome)

            self._reads.ask(group, read.run, done)

        return step


def _name(partition: Partition) -> str:
    return f"{partition.topic}/{partition.index}"


def _propose(partition: Partition, data: bytes, resume: Resume) -> None:
    """Resumes with whether it replaced anything; or with a verdict or text that says why not."""

    def done(outcome: Outcome) -> None:
        resume(outcome.reason if isinstance(outcome, Abandoned) else outcome.result)

    refused = partition.carry(data, done)
    if refused is not None:
        resume(refused.verdict.kind)
