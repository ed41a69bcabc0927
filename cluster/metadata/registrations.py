"""Registrations of node starts: they reveal a data directory restored from a copy. Pure.

    node --RegisterNode: its id, the one before--> Tables.registrations --> Hello refused or not

Each start of a node draws a random id, its *registration*, writes it to its directory as begun, and
registers it. The cluster takes it only from a directory that knows, or has begun, the last
registered one. So it refuses an older copy, however often that is started. Registrations are
numbered, so that a peer with an outdated copy of the metadata recognizes a newer one.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.metadata.topics import FENCED, Rejected
from cluster.v1 import metadata_pb2 as pb


class Registration(NamedTuple):
    """A node's last registration. incarnation: of its process, which outlives a registration."""

    id: int
    number: int
    incarnation: int


class RegistrationClaim(NamedTuple):
    """Claim of a starting node. begun: written, and perhaps registered. known, number: of the
    newest registration that was confirmed to it.
    """

    begun: int
    known: int
    number: int
    incarnation: int


def registered(
    node: int, last: Registration | None, command: pb.RegisterNode
) -> Registration | None:
    """Returns the registration after the command. Raises Rejected."""
    begun = command.registration
    if last is None:
        return Registration(begun, 1, command.incarnation) if begun else None
    if not begun or last.id not in (begun, command.known_registration):
        raise Rejected(FENCED, put_back(node))
    return Registration(begun, last.number + (begun != last.id), command.incarnation)


def is_put_back(last: Registration | None, claim: RegistrationClaim) -> bool:
    """Whether the claim is from a directory that does not know the last registration.

    The checking node may be behind: a registration unknown to it is newer than all it knows.
    """
    if last is None or claim.number >= last.number or claim.incarnation == last.incarnation:
        return False
    return last.id not in (claim.begun, claim.known)


def put_back(node: int) -> str:
    return (
        f"the data directory of node {node} is an older copy: it has forgotten later "
        f"promises. Put the newest one back; if it is lost, run `oncelog node replace {node}`"
    )
