"""The C library's allocator, set up for large, short-lived buffers.

A batch of 1 MiB passes through several buffers of its size: gRPC's, the entry's, the
write batch's. By default glibc maps each of them anew and gives it back at once, and the
kernel clears the same 256 pages every time. With these limits they come from the heap,
which keeps up to TRIM_BYTES that are free.
"""

from __future__ import annotations

import ctypes
import logging

log = logging.getLogger(__name__)

# mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MMAP_BYTES = 32 * 1024 * 1024  # the most that glibc takes
TRIM_BYTES = 256 * 1024 * 1024


def keep_large_buffers() -> None:
    """Set the limits if the C library is glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    if not (mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES) and mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)):
        log.info("the allocator keeps its own limits for large buffers")
