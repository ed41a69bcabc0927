"""A disk whose power can be cut: ext4 on a loop device, shut down without writing back.

`cut` is what a power loss is to the file system: from that moment nothing more reaches the
device, neither dirty pages nor the journal, and every call fails. What had been synced is
there after `restore`, which mounts it again; what had not been is gone, as far as the kernel
had not written it by itself. (The device itself has no cache here that could lose a write
that the file system had flushed.)
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = 2
# More than a node's reserve of free space; the file is sparse.
SIZE = 768 * 1024 * 1024


class PowerDisk:
    """A file system of its own at `mount_point`, in the file `image`. Needs root."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.mount_point, self._image = mount_point, image
        with image.open("wb") as file:
            file.truncate(SIZE)
        mount_point.mkdir(parents=True)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1", str(image))
        self._mounted = False
        self.mount()

    def mount(self) -> None:
        _run("mount", "-t", "ext4", "-o", "loop", str(self._image), str(self.mount_point))
        self._mounted = True

    def cutter(self) -> Callable[[], None]:
        """A function that cuts the power: prepared, so that several cuts are close together."""
        descriptor = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)

        def cut() -> None:
            try:
                fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
            finally:
                os.close(descriptor)

        return cut

    def restore(self) -> None:
        """The power is back. Nobody may hold a file of it any more."""
        self.unmount()
        self.mount()

    def unmount(self) -> None:
        if self._mounted:
            _run("umount", str(self.mount_point))
            self._mounted = False


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


@functools.cache
def missing() -> str:
    """Why there can be no such disk here; empty if there can be. Tries it."""
    if os.geteuid() != 0:
        return "power cuts need root, to mount a loop device"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"power cuts need {tool}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            disk = PowerDisk(Path(folder) / "image", Path(folder) / "mounted")
        except OSError as error:
            return f"power cuts need loop mounts: {error}"
        try:
            disk.cutter()()
        except OSError as error:
            return f"power cuts need a kernel that can shut ext4 down: {error}"
        finally:
            disk.unmount()
    return ""
