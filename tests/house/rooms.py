"""Import rules of rooms: allowed imports of each room, and modules closed to the pure ones.

A room is a folder, or a file beside the folders, of a package that has rooms. An arrow that is not
in the table is a decision: change the table and the README of the room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.house.source import OURS, Import, Rule, Snippets, Source, imports

# Names of the public face that the inside of the client may import.
CLIENT = frozenset(
    {
        "oncelog.config",
        "oncelog.errors",
        "oncelog.events",
        "oncelog.lag",
        "oncelog.moves",
        "oncelog.permissions",
        "oncelog.settings",
        "oncelog.types",
        "oncelog.v1",
        "oncelog.wire",
    }
)
# Room -> our modules that it may import, beside itself. A name includes all modules in it.
ARROWS: Mapping[str, frozenset[str]] = {
    "cluster.v1": frozenset(),
    "cluster.errors": frozenset(),
    "cluster.features": frozenset({"cluster.entries", "cluster.errors", "oncelog.version"}),
    "cluster.entries": frozenset({"storage"}),
    "cluster.events": frozenset(),
    "cluster.config": frozenset({"cluster.errors"}),
    "cluster.metrics": frozenset(
        {
            "cluster.config",
            "cluster.events",
            "cluster.security",
            "oncelog.v1",
            "oncelog.version",
            "storage",
        }
    ),
    "cluster.security": frozenset({"cluster.errors"}),
    "cluster.cleaning": frozenset(
        {"cluster.entries", "oncelog.errors", "oncelog.types", "oncelog.wire"}
    ),
    "cluster.cleaning_worker": frozenset({"cluster.cleaning"}),
    "cluster.dedup": frozenset(),
    "cluster.transactions": frozenset(
        {"cluster.dedup", "cluster.entries", "storage.pieces", "cluster.v1", "oncelog.wire.varint"}
    ),
    "cluster.groups": frozenset({"cluster.v1"}),
    "cluster.metadata": frozenset(
        {
            "cluster.entries",
            "cluster.features",
            "cluster.security.permissions",
            "cluster.security.quotas",
            "cluster.transactions",
            "cluster.v1",
            "oncelog.v1",
            "oncelog.wire.varint",
            "storage",
        }
    ),
    "cluster.consensus": frozenset({"storage"}),
    "cluster.transport": frozenset(
        {
            "cluster.access.budget",
            "cluster.config",
            "cluster.consensus.message",
            "cluster.features",
            "cluster.security",
            "cluster.v1",
        }
    ),
    "cluster.partition": frozenset(
        {
            "cluster.consensus",
            "cluster.dedup",
            "cluster.entries",
            "cluster.features",
            "cluster.groups",
            "cluster.transactions",
            "cluster.v1",
            "oncelog.wire",
            "storage",
        }
    ),
    "cluster.access": frozenset({"cluster.events", "cluster.security", "oncelog.errors"}),
    "cluster.rpc": frozenset(
        {
            "cluster.access",
            "cluster.config",
            "cluster.events",
            "cluster.metrics",
            "cluster.security",
            "cluster.services",
            "oncelog",
        }
    ),
    "cluster.kafka": frozenset(
        {
            "cluster.access",
            "cluster.config.addresses",
            "cluster.dedup",
            "cluster.entries",
            "cluster.errors",
            "cluster.events",
            "cluster.features",
            "cluster.groups",
            "cluster.metadata",
            "cluster.metrics",
            "cluster.partition",
            "cluster.security",
            "cluster.services",
            "cluster.transactions",
            "cluster.v1",
            "oncelog",
        }
    ),
    "cluster.services": frozenset(
        {
            "cluster.access",
            "cluster.config",
            "cluster.consensus.proposals",
            "cluster.dedup",
            "cluster.entries",
            "cluster.errors",
            "cluster.events",
            "cluster.features",
            "cluster.groups",
            "cluster.metadata",
            "cluster.metrics",
            "cluster.partition",
            "cluster.security",
            "cluster.transactions",
            "cluster.v1",
            "oncelog",
            "storage.errors",
        }
    ),
    "cluster.node": frozenset({"cluster", "oncelog.lag", "oncelog.v1", "storage"}),
    "cluster.service_manager": frozenset(),
    "cluster.startup": frozenset(),
    "cluster.health_check": frozenset(),
    "cluster.machine": frozenset(
        {
            "cluster.config",
            "cluster.errors",
            "cluster.metrics.http",
            "cluster.node.health.probes",
            "cluster.node.logs",
            "cluster.service_manager",
            "cluster.startup",
        }
    ),
    "cluster.__main__": frozenset(
        {
            "cluster.config",
            "cluster.errors",
            "cluster.machine",
            "cluster.node.process",
            "cluster.startup",
        }
    ),
    "oncelog._engine.net": CLIENT,
    "oncelog._engine.arguments": CLIENT,
    # Offsets of groups are part of transactions.
    "oncelog._engine.produce": CLIENT | {"oncelog._engine.consume.groups", "oncelog._engine.net"},
    "oncelog._engine.consume": CLIENT | {"oncelog._engine.net"},
    "oncelog._engine.admin": CLIENT
    | {
        "oncelog._engine.net",
        "oncelog._engine.consume",
        "oncelog._engine.events",
        "oncelog._engine.sinks",
    },
    "oncelog.spark.java": frozenset({"oncelog.errors"}),
    "oncelog.spark.auditing": frozenset({"oncelog.config", "oncelog.errors"}),
    "oncelog.spark.allocator": frozenset(),
    "oncelog.spark.source": CLIENT
    | {
        "oncelog._engine.net",
        "oncelog.admin",
        "oncelog.consumer",
        "oncelog.spark.allocator",
        "oncelog.table",
    },
    "oncelog.spark.joined": CLIENT | {"oncelog.admin", "oncelog.spark.source", "oncelog.table"},
    "oncelog._engine.events": CLIENT | {"oncelog._engine.net"},
    "oncelog._engine.sinks": CLIENT | {"oncelog._engine.net"},
    "oncelog.spark.sink": CLIENT
    | {
        "oncelog._engine.net",
        "oncelog._engine.produce",
        "oncelog._engine.sinks",
        "oncelog.spark.allocator",
        "oncelog.spark.source",
    },
    "oncelog.spark.mirroring": CLIENT
    | {
        "oncelog.admin",
        "oncelog.consumer",
        "oncelog.mirror",
        "oncelog.producer",
        "oncelog.spark.allocator",
        "oncelog.spark.source",
    },
}
PACKAGES_WITH_ROOMS = ("cluster", "oncelog._engine", "oncelog.spark")
_IO = frozenset({"asyncio", "grpc", "os", "socket", "threading", "time"})
# Clock, randomness, network and disk are passed in.
NOT_IN: Mapping[str, frozenset[str]] = {
    "cluster.dedup": _IO | {"random"},
    "cluster.groups": _IO | {"random"},
    "cluster.metadata": _IO | {"random"},
    "cluster.transactions": _IO | {"random"},
    "cluster.entries": _IO | {"random"},
    # `random.Random` is the type of an argument.
    "cluster.consensus": _IO,
}
# Clients' calls arrive by gRPC here; every other room of a node answers any protocol.
_GRPC_OURS = ("cluster.rpc", "oncelog.wire.status")
GRPC_ROOMS = ("cluster.rpc", "cluster.node")


def room_of(dotted: str) -> str:
    """The room that a module is in; nothing if its package has none."""
    for package in PACKAGES_WITH_ROOMS:
        if dotted.startswith(package + "."):
            return ".".join(dotted.split(".")[: package.count(".") + 2])
    return ""


def _module_of(source: Source) -> str:
    return ".".join(source.path.with_suffix("").parts)


def _is_in(dotted: str, names: frozenset[str]) -> bool:
    parts = dotted.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def _may_import(found: Import, allowed: frozenset[str]) -> bool:
    """`from a import b` is fine where a is, or each b as a module of its own."""
    if _is_in(found.module, allowed):
        return True
    return bool(found.names) and all(_is_in(f"{found.module}.{n}", allowed) for n in found.names)


def room_arrows(source: Source) -> Iterator[str]:
    """Reports imports of a room that the table does not allow."""
    room = room_of(_module_of(source))
    if not room or room.endswith(".__init__"):
        return
    if room not in ARROWS:
        yield f"line 1: {room} is not in the table of rooms"
        return
    allowed = ARROWS[room] | {room}
    for found in imports(source):
        if found.top in OURS and not _may_import(found, allowed):
            yield f"line {found.line}: {room} may not import {found.module} {found.names or ''}"


def pure_rooms(source: Source) -> Iterator[str]:
    """No clock, randomness, network or disk of its own."""
    room = room_of(_module_of(source))
    for found in imports(source):
        if found.top in NOT_IN.get(room, ()):
            yield f"line {found.line}: {room} may not import {found.module}"


def without_grpc(source: Source) -> Iterator[str]:
    """Only the rooms of the gRPC server know gRPC, its stubs and its statuses."""
    room = room_of(_module_of(source))
    if not room.startswith("cluster.") or room in GRPC_ROOMS:
        return
    for found in imports(source):
        for name in (found.module, *(f"{found.module}.{name}" for name in found.names)):
            if found.top.startswith("grpc") or name.endswith("_grpc") or name in _GRPC_OURS:
                yield f"line {found.line}: {room} may not import {name}"
                break


def arrows_between_rooms() -> dict[str, set[str]]:
    """Room -> rooms that it may import, for a look at circles."""
    return {
        room: {
            other
            for other in ARROWS
            if other != room
            and any(name == other or name.startswith(other + ".") for name in allowed)
        }
        for room, allowed in ARROWS.items()
    }


RULES: list[Rule] = [room_arrows, pure_rooms, without_grpc]

BAD: Snippets = [
    (room_arrows, "cluster/dedup/a.py", "import storage"),
    (room_arrows, "cluster/dedup/a.py", "from cluster.partition.types import Answer"),
    (room_arrows, "cluster/metadata/a.py", "from ..consensus import group"),
    (room_arrows, "cluster/consensus/a.py", "import cluster.entries"),
    (room_arrows, "cluster/consensus/a.py", "from cluster import entries"),
    (room_arrows, "cluster/transport/a.py", "from cluster.consensus.group import Group"),
    (room_arrows, "cluster/transport/a.py", "from cluster.consensus import message, group"),
    (room_arrows, "cluster/services/a.py", "def f():\n    from cluster.node import node"),
    (room_arrows, "cluster/partition/a.py", "from cluster.services.context import Context"),
    (room_arrows, "cluster/attic/a.py", "import os"),
    (room_arrows, "oncelog/_engine/net/a.py", "from oncelog._engine.produce import futures"),
    (room_arrows, "oncelog/_engine/consume/a.py", "import oncelog._engine.produce.sender"),
    (room_arrows, "oncelog/_engine/net/a.py", "from oncelog.producer import Producer"),
    (room_arrows, "oncelog/spark/source/a.py", "from oncelog.spark.mirroring import run"),
    (room_arrows, "oncelog/spark/auditing/a.py", "from oncelog.spark import source"),
    (pure_rooms, "cluster/dedup/a.py", "import time"),
    (pure_rooms, "cluster/metadata/a.py", "from asyncio import Task"),
    (pure_rooms, "cluster/metadata/a.py", "import random"),
    (pure_rooms, "cluster/consensus/a.py", "def f():\n    import os.path"),
    (without_grpc, "cluster/services/log/a.py", "import grpc"),
    (without_grpc, "cluster/access/a.py", "import grpc.aio"),
    (without_grpc, "cluster/services/a.py", "from oncelog.v1 import log_pb2_grpc as rpc"),
    (without_grpc, "cluster/services/a.py", "from oncelog.wire.status import to_status"),
    (without_grpc, "cluster/partition/a.py", "from grpc_health.v1 import health"),
]

GOOD: Snippets = [
    (room_arrows, "cluster/dedup/a.py", "from cluster.dedup.verdict import Kind"),
    (room_arrows, "cluster/metadata/a.py", "from cluster.metadata import topics"),
    (room_arrows, "cluster/consensus/a.py", "from storage.kv import WriteBatch\nimport heapq"),
    (room_arrows, "cluster/transport/a.py", "from cluster.consensus import message"),
    (room_arrows, "cluster/transport/a.py", "from ..consensus.message import Append"),
    (room_arrows, "cluster/services/a.py", "from cluster import errors, metrics"),
    (room_arrows, "cluster/node/a.py", "from cluster.services import log_service"),
    (room_arrows, "cluster/__init__.py", ""),
    (room_arrows, "oncelog/_engine/produce/a.py", "from oncelog import errors"),
    (room_arrows, "oncelog/producer.py", "from oncelog._engine.produce.sender import Sender"),
    (room_arrows, "oncelog/spark/__init__.py", "from oncelog.spark.source import progress"),
    (pure_rooms, "cluster/consensus/a.py", "import random"),
    (pure_rooms, "cluster/node/a.py", "import time"),
    (pure_rooms, "storage/a.py", "import os"),
    (without_grpc, "cluster/rpc/a.py", "import grpc"),
    (without_grpc, "cluster/services/a.py", "from oncelog.v1 import log_pb2\nimport asyncio"),
    (without_grpc, "oncelog/wire/a.py", "import grpc"),
]
