"""Operating system for the store: files, locks, randomness.

All disk access of the commit log, the mark and the identity goes through one object of this class.
So a test can pass one that fails, loses unsynced writes, or decides which thread goes on. RocksDB
handles its own files.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from storage.errors import NO_DESCRIPTORS

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, *NO_DESCRIPTORS)


class System:
    """The real system. Raises OSError from every call."""

    def has_descriptors(self, count: int) -> bool:
        """Whether so many files could be opened now."""
        try:
            with ExitStack() as stack:
                for _ in range(count):
                    stack.enter_context(Path(os.devnull).open("rb"))
        except OSError:
            return False
        return True

    def lock(self) -> AbstractContextManager[object]:
        """Returns a lock for one thread at a time."""
        return threading.Lock()

    def random_number(self) -> int:
        """Returns 1 to 2**63 - 1, unpredictable."""
        return 1 + secrets.randbelow(2**63 - 1)

    # -- one file -----------------------------------------------------------------

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        return os.pread(descriptor, size, position)

    def is_cached(self, descriptor: int, position: int) -> bool:
        """Whether the page is in the page cache. True if the file system does not tell."""
        try:
            os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True

    def pwrite(self, descriptor: int, content: bytes | memoryview, position: int) -> int:
        return os.pwrite(descriptor, content, position)

    def pwritev(self, descriptor: int, parts: Sequence[bytes], position: int) -> int:
        return os.pwritev(descriptor, parts, position)

    def fdatasync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def ftruncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    # -- names --------------------------------------------------------------------

    def mkdir(self, path: Path) -> None:
        path.mkdir()

    def rename(self, path: Path, target: Path) -> None:
        path.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory durable."""
        descriptor = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.fsync(descriptor)
        finally:
            self.close(descriptor)

    # -- combined steps -----------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        """Creates it and its missing parents; durable on return."""
        if path.is_dir():
            return
        if path.parent != path:
            self.make_directory(path.parent)
        try:
            self.mkdir(path)
        except FileExistsError:
            if not path.is_dir():
                raise
        self.sync_directory(path.parent)

    def write_atomically(self, path: Path, content: bytes) -> None:
        """Replaces a file, durable on return; after a crash it has the old content or the new."""
        temporary = path.with_name(path.name + ".tmp")
        descriptor = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            view, done = memoryview(content), 0
            while done < len(view):
                done += self.pwrite(descriptor, view[done:], done)
            self.fsync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(temporary, path)
        self.sync_directory(path.parent)


SYSTEM = System()
