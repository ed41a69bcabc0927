"""The C library's allocator in Spark's Python workers, set up for large buffers.

Place in the flow: a task that reads or writes calls `keep_large_buffers` first. A batch or message
of 1 to 4 MB passes through several buffers of its size. By default glibc gives each of them back at
once, and the kernel clears the same pages again and again: writing out a message of 3 MB took 1.4
ns of processor time for a byte, and 0.06 with these limits.

Only workers do this: they are Spark's own processes. A program that uses the client belongs to the
user.
"""

from __future__ import annotations

import ctypes
from functools import cache

# mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MMAP_BYTES = 32 * 1024 * 1024  # glibc's maximum
TRIM_BYTES = 64 * 1024 * 1024  # free memory that a worker keeps at most


@cache
def keep_large_buffers() -> None:
    """Set the limits, if the C library is glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
