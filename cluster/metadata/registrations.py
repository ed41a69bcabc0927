"""Each start of a node is known: a data directory that was put back from a copy is noticed. Pure.

    node --RegisterNode: its id, the one before--> Tables.registrations --> who refuses whose Hello

A *registration* has a random id that a start of a node draws, writes to its directory as begun,
and registers. It is taken only from a directory that knows the one registered last, or has begun
it. So a copy from before is refused, however often it is started. Registrations are numbered, so
that a peer whose copy of the metadata is behind takes a newer one for what it is.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.metadata.topics import FENCED, Rejected
from cluster.v1 import metadata_pb2 as pb


class Registration(NamedTuple):
    """Registered last for a node. incarnation: of its process, which outlives a registration."""

    id: int
    number: int
    incarnation: int


class Claim(NamedTuple):
    """What a start of a node says of itself. begun: written, and perhaps registered. known, number:
    the newest that was confirmed to it.
    """

    begun: int
    known: int
    number: int
    incarnation: int


def registered(
    node: int, last: Registration | None, command: pb.RegisterNode
) -> Registration | None:
    """What is registered afterwards. Raises Rejected."""
    begun = command.registration
    if last is None:
        return Registration(begun, 1, command.incarnation) if begun else None
    if not begun or last.id not in (begun, command.known_registration):
        raise Rejected(FENCED, put_back(node))
    return Registration(begun, last.number + (begun != last.id), command.incarnation)


def is_put_back(last: Registration | None, claim: Claim) -> bool:
    """Whether the claim is from a directory that does not know the one registered last.

    Who asks may be behind: what it does not know of is newer than all it knows.
    """
    if last is None or claim.number >= last.number or claim.incarnation == last.incarnation:
        return False
    return last.id not in (claim.begun, claim.known)


def put_back(node: int) -> str:
    return (
        f"the data directory of node {node} is an older copy: it has forgotten what it promised "
        f"since. Put the newest one back; if it is lost, say so: `oncelog node replace {node}`"
    )
