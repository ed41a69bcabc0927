"""Changes of several nodes by one command."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

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
