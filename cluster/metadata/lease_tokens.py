"""Tokens that prove that a producer id was leased, at which epoch and until when. Pure.

    LeaseProducer --sign--> client --first batch of a chain, OpenProducer--> proves

The key is the metadata group's: random, made once, in its log and snapshots. So a token
of any node is proof to every node, and nobody who was not given one can make one. Whether
the lease is *over* is not the token's to say: that follows from the entries, see
`partition/leases.py`.
"""

from __future__ import annotations

import hmac
import struct

SECRET_BYTES = 32
VERSION = 1  # of the layout; a later one may name a principal
_CLAIM = struct.Struct("<BqiQ")  # version, producer id, epoch, end of the lease (ms)
_MAC_BYTES = 16
TOKEN_BYTES = _CLAIM.size + _MAC_BYTES


def sign(secret: bytes, producer_id: int, epoch: int, expire_ms: int) -> bytes:
    """The token of a lease."""
    assert len(secret) == SECRET_BYTES, "a cluster without a secret leases nothing"
    claim = _CLAIM.pack(VERSION, producer_id, epoch, expire_ms)
    return claim + _mac(secret, claim)


def proves(secret: bytes, token: bytes, producer_id: int, epoch: int) -> bool:
    """Whether the token is that of a lease of this id at this epoch."""
    if len(token) != TOKEN_BYTES or len(secret) != SECRET_BYTES:
        return False
    claim = token[: _CLAIM.size]
    version, leased_id, leased_epoch, _ = _CLAIM.unpack(claim)
    if (version, leased_id, leased_epoch) != (VERSION, producer_id, epoch):
        return False
    return hmac.compare_digest(token[_CLAIM.size :], _mac(secret, claim))


def _mac(secret: bytes, claim: bytes) -> bytes:
    return hmac.digest(secret, claim, "sha256")[:_MAC_BYTES]
