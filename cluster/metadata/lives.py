"""Each start of a node is known: a data directory that was put back from a copy is noticed. Pure.

    node --RegisterNode: life, the one before--> Tables.lives --> who refuses whose Hello

A *life* is a random number that a start of a node draws, writes to its directory as begun, and
registers. It is taken only from a directory that knows the life registered last, or has begun it.
So a copy from before that life is refused, however often it is started. Lives are numbered, so
that a peer whose copy of the metadata is behind takes a newer life for what it is.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.metadata.topics import FENCED, Rejected
from cluster.v1 import metadata_pb2 as pb


class Life(NamedTuple):
    """Registered last for a node. incarnation: of its process, which outlives a life."""

    life: int
    number: int
    incarnation: int


class Claim(NamedTuple):
    """What a start of a node says of itself. known, number: the newest that was confirmed to it."""

    life: int
    known: int
    number: int
    incarnation: int


def registered(node: int, last: Life | None, command: pb.RegisterNode) -> Life | None:
    """What is registered afterwards. Raises Rejected."""
    if last is None:
        return Life(command.life, 1, command.incarnation) if command.life else None
    if last.life not in (command.life, command.known_life) or not command.life:
        raise Rejected(FENCED, put_back(node))
    number = last.number + (command.life != last.life)
    return Life(command.life, number, command.incarnation)


def is_put_back(last: Life | None, claim: Claim) -> bool:
    """Whether the claim is from a directory that does not know the life registered last.

    Who asks may be behind: what it does not know of is newer than all it knows.
    """
    if last is None or claim.number >= last.number or claim.incarnation == last.incarnation:
        return False
    return last.life not in (claim.life, claim.known)


def put_back(node: int) -> str:
    return (
        f"the data directory of node {node} is an older copy: it has forgotten what it promised "
        f"since. Put the newest one back; if it is lost, say so: `oncelog node replace {node}`"
    )
