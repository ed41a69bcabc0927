"""Disk of one node: ext4 on a loop device, with power cuts and a way to fill it.

    IMAGE (a sparse file) -- loop device -- ext4 --> MOUNT POINT, the node's data directory

`cutter` acts on the file system like a power loss: from then on no dirty page and no journal
write reaches the device, and every call fails. `restore` mounts the file system again. Synced
data is then still there; unsynced data is gone, unless the kernel had already written it. The
device has no cache of its own that could lose a write the file system had flushed.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.node_process import HarnessError

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = 2
# More than a node's reserve of free space plus the writes of a long chaos run; sparse.
SIZE = 1024 * 1024 * 1024
FILLER = ".filler"
LARGEST_PIECE, SMALLEST_PIECE = 256 * 1024 * 1024, 4096


class Disk:
    """File system at `mount_point`, kept in the file `image`. Needs root.

    Methods raise HarnessError with the failed command's output.
    """

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.mount_point = mount_point
        self._image = image

    def open(self) -> None:
        """Makes the disk if it is missing, and mounts it afresh. No process may use it."""
        self.close()
        if not self._image.exists():
            self._make()
        self.mount_point.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "ext4", "-o", "loop", str(self._image), str(self.mount_point))

    def close(self) -> None:
        """Unmounts the disk, even if another process mounted it; the image stays."""
        if os.path.ismount(self.mount_point):
            _run("umount", str(self.mount_point))

    def _make(self) -> None:
        self._image.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._image.with_suffix(".making")
        with fresh.open("wb") as file:
            file.truncate(SIZE)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1", str(fresh))
        fresh.rename(self._image)

    # -- power ----------------------------------------------------------------------------

    def cutter(self) -> Callable[[], None]:
        """Prepares a function that cuts the power, so that several cuts are close together."""
        descriptor = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)

        def cut() -> None:
            try:
                fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
            finally:
                os.close(descriptor)

        return cut

    def restore(self) -> None:
        """Restores the power. No process may still hold a file of the disk open."""
        self.open()

    # -- space ----------------------------------------------------------------------------

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fills the disk for the body: no block is free unless the node frees some."""
        filler = self.mount_point / FILLER
        try:
            _take_all(filler)
            yield
        finally:
            filler.unlink(missing_ok=True)


def _take_all(path: Path) -> None:
    """Allocates all free space without writing to it."""
    piece, size = LARGEST_PIECE, 0
    with path.open("ab") as file:
        while piece >= SMALLEST_PIECE:
            try:
                os.posix_fallocate(file.fileno(), size, piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                piece //= 2
            else:
                size += piece


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"{' '.join(words)}: {done.stderr.strip()}")


@functools.cache
def missing() -> str:
    """Reason that this machine cannot have such a disk; empty if it can. Tries one."""
    if os.geteuid() != 0:
        return "disks of their own need root, to mount a loop device"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"disks of their own need {tool}"
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder) / "image", Path(folder) / "mounted")
        try:
            disk.open()
        except HarnessError as error:
            return f"disks of their own need loop mounts: {error}"
        try:
            disk.cutter()()
        except OSError as error:
            return f"power cuts need a kernel that can shut ext4 down: {error}"
        finally:
            disk.close()
    return ""
