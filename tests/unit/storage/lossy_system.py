"""A system for tests of the store: threads that take turns as a seed says, and a disk that
oses pages after a failed fsync, as Linux does.

    Turns        runs functions in threads, one at a time; at each lock and each sync the seed
                decides which goes on, so that a seed is one interleaving
   LossySystem  real files, and beside them the bytes that a power cut would leave of them:
                those that an fdatasync covered. When one fails, the pages are clean, still
                read as they were written, and never reach the disk; the next fdatasync
                says yes
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from storage.system import System
from tests.unit.storage.small_store import copy_at_rest


class Turns:
    """Chooses the thread that goes on.

    errors: the error that ended each of them, None if it returned. blocked: how many wait for a
    lock.
    """

    def __init__(self, rng: random.Random) -> None:
        self.errors: list[BaseException | None] = []
        self.blocked = 0
        self._rng = rng
        self._changed = threading.Condition()
        self._ready: list[threading.Thread] = []
        self._now: threading.Thread | None = None

    def run(self, *works: Callable[[], None]) -> None:
        """Runs them all to their end."""
        self.errors = [None] * len(works)
        threads = [
            threading.Thread(target=self._work, args=(number, work), daemon=True)
            for number, work in enumerate(works)
        ]
        self._ready = list(threads)
        self._now = self._rng.choice(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "the threads wait for each other"

    def pause(self) -> None:
        """Lets other threads go on first, if the seed says so."""
        me = threading.current_thread()
        if me in self._ready:
            with self._changed:
                self._now = self._rng.choice(self._ready)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._now is me)

    def _work(self, number: int, work: Callable[[], None]) -> None:
        me = threading.current_thread()
        with self._changed:
            self._changed.wait_for(lambda: self._now is me)
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self.errors[number] = error
        finally:
            with self._changed:
                self._ready.remove(me)
                self._now = self._rng.choice(self._ready) if self._ready else None
                self._changed.notify_all()


class TurnsLock:
    """A lock whose waiting threads take turns; the next holder is open."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._turns.pause()
        self._turns.blocked += 1
        while not self._lock.acquire(blocking=False):
            self._turns.pause()
        self._turns.blocked -= 1

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @property
    def is_held(self) -> bool:
        return self._lock.locked()


class LossySystem(System):
    """syncing: how many threads are inside of an fdatasync."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._paths: dict[int, Path] = {}
        self._dirty: dict[Path, list[tuple[int, int]]] = {}
        self._durable: dict[Path, bytearray] = {}
        self._syncs = 0
        self._fail_at = 0
        self._is_met = False
        self.syncing = 0

    def arm(self, fail_at: int, *, is_met: bool = False) -> None:
        """The fdatasync of that number from now on fails; is_met: not before another thread
        waits for a lock."""
        self._syncs, self._fail_at, self._is_met = 0, fail_at, is_met

    def lock(self) -> AbstractContextManager[object]:
        return TurnsLock(self._turns)

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._paths[descriptor] = path
        if flags & os.O_TRUNC:
            self._durable[path] = bytearray()
        return descriptor

    def pwrite(self, descriptor: int, content: bytes | memoryview, position: int) -> int:
        done = super().pwrite(descriptor, content, position)
        self._note(descriptor, position, done)
        return done

    def pwritev(self, descriptor: int, parts: Sequence[bytes], position: int) -> int:
        done = super().pwritev(descriptor, parts, position)
        self._note(descriptor, position, done)
        return done

    def _note(self, descriptor: int, position: int, size: int) -> None:
        self._dirty.setdefault(self._paths[descriptor], []).append((position, position + size))

    def fdatasync(self, descriptor: int) -> None:
        path = self._paths[descriptor]
        dirty = self._dirty.pop(path, [])
        self._syncs += 1
        fails = self._syncs == self._fail_at
        self.syncing += 1
        self._turns.pause()  # the disk is slow
        while fails and self._is_met and not self._turns.blocked:
            self._turns.pause()
        self.syncing -= 1
        if fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        durable = self._durable.setdefault(path, bytearray())
        for begin, end in dirty:
            durable.extend(bytes(max(0, end - len(durable))))
            durable[begin:end] = self.pread(descriptor, end - begin, begin)

    def ftruncate(self, descriptor: int, size: int) -> None:
        super().ftruncate(descriptor, size)
        del self._durable.setdefault(self._paths[descriptor], bytearray())[size:]

    def durable(self, path: Path) -> bytes:
        """Bytes of a file that a power cut would leave."""
        return bytes(self._durable.get(path, b""))

    def cut_power(self, store: Path, image: Path) -> None:
        """Copies a store as a power cut leaves it: RocksDB with all its files, the mark as it was
        written, the synced part of the commit log.
        """
        copy_at_rest(store, image)
        for file in (store / "log").iterdir():
            (image / "log" / file.name).write_bytes(self.durable(file))
