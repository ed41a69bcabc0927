"""What all tests share: markers by folder, Hypothesis profiles, free ports.

A test's marker is the folder it lies in (`tests/integration/...` is
`integration`), so that `scripts/test --fast` and `-m` select by folder without
a decorator that somebody forgets. Tests directly in `tests/` are `unit`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
KINDS = frozenset({"unit", "sim", "integration", "chaos", "durability", "fuzz", "spark", "clients"})

# A slow machine is no failure: deadlines are wall time. CI prints what reproduces
# a failure; a developer's run also searches further on each run.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test with the kind its folder names."""
    for item in items:
        try:
            parts = item.path.relative_to(TESTS).parts
        except ValueError:
            continue
        kind = parts[0] if len(parts) > 1 else "unit"
        if kind in KINDS:
            item.add_marker(getattr(pytest.mark, kind))


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the source tree."""
    return ROOT


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """Gives a function that returns `n` distinct TCP ports that are free on 127.0.0.1 now.

    All are held open until all are known, so one call never returns a port
    twice. They are taken below the kernel's range for outgoing connections where
    that can be: a client's own connection must not take a node's port while
    that node is being restarted.
    """

    def take(n: int) -> list[int]:
        held: list[socket.socket] = []
        try:
            for port in _candidates():
                if len(held) == n:
                    break
                sock = socket.socket()
                try:
                    sock.bind(("127.0.0.1", port))
                except OSError:
                    sock.close()
                    continue
                held.append(sock)
            assert len(held) == n, f"found {len(held)} free ports of {n}"
            return [sock.getsockname()[1] for sock in held]
        finally:
            for sock in held:
                sock.close()

    return take


_next_port = 0


def _candidates() -> list[int]:
    """All ports of our range, starting where the last call stopped looking."""
    global _next_port
    low, high = 20000, _ephemeral_start()
    span = high - low
    if span < 1000:
        return [0] * 200
    # Runs side by side start at different places.
    start = (os.getpid() * 97 + _next_port) % span
    _next_port += 50
    return [low + (start + i) % span for i in range(min(span, 5000))]


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return 32768
    return int(text.split()[0])
