"""Nodes: their state and the reasons that they wait."""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.types import NodeStatus


def state_of(status: NodeStatus) -> str:
    marks = {
        "expected": status.expected,
        "joining": status.joining,
        "leaving": status.leaving,
        "drained": status.drained,
    }
    return ", ".join(name for name, there in marks.items() if there) or "member"


def vote_of(status: NodeStatus) -> str:
    """Return the node's part in the metadata group."""
    if status.expected or status.joining:
        return ""
    return "learns" if status.metadata_learner else "votes"


def waiting(nodes: Iterable[NodeStatus]) -> list[str]:
    return [f"node {one.node_id} waits: {reason}" for one in nodes for reason in one.waits_for]
