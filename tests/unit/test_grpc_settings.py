"""What a node sets for gRPC is set before gRPC is loaded, and gRPC still knows it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SHOW = "import cluster, os, sys; print('grpc' in sys.modules, os.environ['GRPC_EXPERIMENTS'])"


def shown(**more: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    words = [sys.executable, "-c", SHOW]
    return subprocess.run(words, env=env | more, capture_output=True, text=True, check=True).stdout


def test_the_server_polls_for_itself_unless_somebody_asks_for_something_else() -> None:
    assert shown() == "False -event_engine_listener\n"
    assert shown(GRPC_EXPERIMENTS="-event_engine_dns") == "False -event_engine_dns\n"


def test_gRPC_still_has_what_is_turned_off() -> None:  # noqa: N802
    """If not: measure what a message costs, and take the setting out."""
    found = find_spec("grpc._cython.cygrpc")
    assert found is not None and found.origin is not None
    assert b"\0event_engine_listener\0" in Path(found.origin).read_bytes()
