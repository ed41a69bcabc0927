"""Which threads are the engine's: what waits must not run there.

Place in the flow: `runtime` notes its thread here; what blocks a user's thread asks first, so
that a callback of the user, which the engine's thread runs, does not wait for itself.
"""

from __future__ import annotations

import threading

engine_threads: set[int] = set()


def refuse_on_engine_thread(what: str) -> None:
    if threading.get_ident() in engine_threads:
        raise RuntimeError(f"a callback of the client must not {what}: it would wait for itself")


__all__ = ["engine_threads", "refuse_on_engine_thread"]
