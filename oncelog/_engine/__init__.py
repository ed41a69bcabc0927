"""Engine under the sync and the asyncio clients: a pure core and a small IO part.

IO, on one event loop: `runtime` and `cluster` in net/, `sender`, `stream` and `identities` in
produce/, `fetcher`, `catch_up`, `positions` and `groups` in consume/. The rest is driven by calls;
the clock is passed in.
"""

import importlib
import os

_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"


def _import_grpc() -> None:
    """Import gRPC without its fork handlers, unless the user asks for them.

    The handlers conflict with asyncio: every other child crashed, also on its way to exec
    (preexec_fn). gRPC reads the variable once, and child programs must not inherit it.
    """
    if _FORK_SUPPORT in os.environ:
        return
    os.environ[_FORK_SUPPORT] = "0"
    try:
        importlib.import_module("grpc")
    finally:
        del os.environ[_FORK_SUPPORT]


_import_grpc()
