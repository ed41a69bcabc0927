"""Metrics of this process under the names that Prometheus' own libraries use."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from cluster.metrics.text import GAUGE, MetricFamily, counter, gauge, labels
from oncelog.version import __version__

_SELF = Path("/proc/self")
_STATM = "/proc/self/statm"
_CPU, _THREADS, _STARTED, _VIRTUAL = 11, 17, 19, 20  # fields of stat behind the name


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not show it this way.

    The memory watch asks twenty times a second, also in a node at rest.
    """
    try:
        file = os.open(_STATM, os.O_RDONLY)
        try:
            pages = int(os.read(file, 128).split()[1])
        finally:
            os.close(file)
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def process_families() -> Iterator[MetricFamily]:
    """Yield the figures, as far as the system shows them."""
    yield MetricFamily(
        "oncelog_build_info",
        GAUGE,
        "1, with the release of this node",
        [(labels(version=__version__, python=platform.python_version()), 1)],
    )
    yield gauge("process_resident_memory_bytes", "Resident memory of the node", resident_bytes())
    times = os.times()
    yield counter(
        "process_cpu_seconds_total", "Processor time of the node", times.user + times.system
    )
    try:
        stat = (_SELF / "stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/stat").read_text().partition("btime ")[2].split()[0]
        started = int(boot) + int(stat[_STARTED]) / os.sysconf("SC_CLK_TCK")
        threads, virtual = int(stat[_THREADS]), int(stat[_VIRTUAL])
    except (OSError, IndexError, ValueError):
        return
    yield gauge("process_start_time_seconds", "Start of the node, Unix time", started)
    yield gauge("process_virtual_memory_bytes", "Virtual memory of the node", virtual)
    yield gauge("process_threads", "Threads of the node", threads)
