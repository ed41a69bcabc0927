"""Changes of several nodes by one command."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog import NodeStatus
from oncelog.cli.nodes import _change
from oncelog.errors import InvalidRequestError


def test_what_was_changed_before_a_refusal_is_told_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def drain(node_id: int, dry_run: bool) -> tuple[str, ...]:
        if node_id == 101:
            raise InvalidRequestError("node 101 is no node of this cluster")
        return (f"node {node_id} leads nothing",)

    admin: Any = SimpleNamespace()
    with pytest.raises(InvalidRequestError):
        _change(admin, (1, 101), "drain", drain, True, False, False)
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["node_id"], told["effects"]) == (1, ["node 1 leads nothing"])
    with pytest.raises(InvalidRequestError):
        _change(admin, (101,), "drain", drain, True, False, False)
    assert capsys.readouterr().out == ""


def test_a_wait_ends_when_the_node_is_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    """A removal goes on while the node is replaced, and ends the replacement."""
    leaving = NodeStatus(3, "h3:1", False, True, False, True, False, 1, 0, 0, 1, ("it moves",))
    other = replace(leaving, node_id=1, leaving=False)
    lists = [[other, leaving], [other]]
    admin: Any = SimpleNamespace(list_nodes=lambda: lists.pop(0))

    def replaced(node_id: int, dry_run: bool) -> tuple[str, ...]:
        return ("its directory never counts again",)

    _change(admin, (3,), "replace", replaced, False, False, True)
    assert not lists
    assert capsys.readouterr().err == "waits: it moves\n"
