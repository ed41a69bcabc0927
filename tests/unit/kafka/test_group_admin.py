"""DescribeGroups, OffsetDelete: limits of an answer, and of an entry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.access.gate import Gate
from cluster.errors import NotLeaderError
from cluster.kafka import group_admin
from cluster.kafka.errors import Error
from cluster.kafka.group_admin import GroupAdmin
from cluster.kafka.messages import DESCRIBE_GROUPS, DescribeGroupsRequest
from cluster.kafka.needs import Rights
from cluster.kafka.sent import Sent
from cluster.kafka.versions import Head
from cluster.partition.group_offsets import OffsetsTable
from cluster.security.caller import Caller
from cluster.services.groups import service
from cluster.services.groups.running_groups import AnyGroup, _Term
from cluster.services.groups.service import GroupService
from cluster.v1 import offsets_pb2 as internal
from tests.unit.groups.test_running_classic_groups import led, request
from tests.unit.kafka.test_topics import finalize
from tests.unit.small_node import Node

HEAD = Head(DESCRIBE_GROUPS, 5, 1, "", True)
ANYBODY = Rights(Gate(None, None, None), Caller(), Sent(1))


class Looks:
    """GroupService's look at a partition's groups."""

    def __init__(self, term: _Term) -> None:
        self._term = term
        self.node = Node()

    async def look(self, group: str) -> tuple[None, AnyGroup | None]:
        return None, self._term.groups.get(group)


async def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    term = _Term(led().parts[1], 1)
    for name in ("a", "b", "c"):
        large = request(f"{name}-1")._replace(protocols=(("range", bytes(600)),))
        await term.begin_classic(name, 0.0).join(large)
    looks: Any = Looks(term)

    async def describe(*names: str) -> list[tuple[str, int, int]]:
        asked = DescribeGroupsRequest(list(names))
        answer = await GroupAdmin(looks).describe(ANYBODY, HEAD, asked)
        return [(one.group_id, one.error_code, len(one.members)) for one in answer.groups]

    whole = [(name, 0, 1) for name in ("a", "b", "c")]
    assert await describe("a", "b", "c") == whole
    monkeypatch.setattr(group_admin, "MAX_DESCRIBED_BYTES", 1000)
    # A group without members takes no room; one group alone is always described.
    assert await describe("a", "b", "c", "none") == [
        *whole[:2],
        ("c", Error.POLICY_VIOLATION, 0),
        ("none", 0, 0),
    ]
    assert await describe("c") == whole[2:]
    for group in term.groups.values():
        group.close(NotLeaderError("the test ends", 0))


async def test_deleted_offsets_fill_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    node, nothing, entries = Node(), SimpleNamespace(classic=None, begun_classic=None), []
    finalize(node)
    anything: Any = nothing
    groups = GroupService(node, anything, anything, now_ms=lambda: 1)
    table = OffsetsTable()

    async def replica_of(group: str) -> object:
        return None

    async def apply(replica: object, command: internal.OffsetsCommand) -> object:
        entries.append(len(command.delete_offsets.offsets))
        return table.apply(len(entries), command.SerializeToString())

    monkeypatch.setattr(groups, "_replica_of", replica_of)
    monkeypatch.setattr(groups, "_apply", apply)
    monkeypatch.setattr(service, "MAX_COMMITS", 10)
    results = await groups.delete_offsets("g", [("t", one) for one in range(25)])
    assert entries == [10, 10, 5]
    assert [one.error for one in results] == [""] * 25
