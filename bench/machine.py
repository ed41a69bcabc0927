"""Machine of the figures, and the disk that the clusters lie on."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def describe(scratch: Path) -> dict[str, Any]:
    """Facts behind the figures, without the machine's name."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "file_system": file_system(scratch),
    }


def file_system(path: Path) -> str:
    """Type of the file system that holds the path."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if path.is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def scratch_directory(given: Path | None) -> Path:
    """Directory for clusters, on a real disk: elsewhere a sync costs nothing."""
    parent = given or Path(tempfile.gettempdir())
    if given is None and file_system(parent.resolve()) == "tmpfs":
        parent = Path("/var/tmp")
    return Path(tempfile.mkdtemp(prefix="oncelog-bench-", dir=parent)).resolve()
