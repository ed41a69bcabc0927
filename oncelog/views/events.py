"""Events as lines and rows."""

from __future__ import annotations

from oncelog.events import NodeEvent
from oncelog.views.words import when

KINDS = ("verdict", "leader", "producer", "group", "move", "slow", "audit", "node")


def subject_of(event: NodeEvent) -> str:
    where = event.name if event.partition < 0 else f"{event.name}-{event.partition}"
    return f"{event.resource} {where}" if event.resource in ("group", "producer") else where


def sequences_of(event: NodeEvent) -> str:
    """Return the span of an event's sequences; empty if it has none."""
    if event.first_sequence < 0:
        return ""
    return f"{event.first_sequence}..{event.last_sequence}"


def line_of(event: NodeEvent) -> str:
    """Return an event as one line."""
    words = [when(event.last_ms), f"node {event.node_id}", event.kind, subject_of(event)]
    words.append(event.verdict)
    if event.producer_id:
        words.append(f"producer {event.producer_id} epoch {event.epoch}")
    if event.first_sequence >= 0:
        words.append(f"sequences {sequences_of(event)}")
    if event.offset >= 0:
        words.append(f"at {event.offset}")
    if event.count > 1:
        words.append(f"{event.count} times since {when(event.first_ms)}")
    caller = event.principal or event.address
    if caller:
        words.append(f"by {caller}")
    text = " ".join(event.text.split())
    return " ".join(filter(None, words)) + (f": {text}" if text else "")
