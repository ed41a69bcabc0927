"""Tokens that prove that a producer id was leased, at which epoch and until when. Pure.

    LeaseProducer --sign--> client --first batch of a chain, OpenProducer--> proves

The key belongs to the metadata group: random, made once, in its log and snapshots. A token of any
node is therefore proof to every node, and nobody without the key can make one. The token does not
say whether the lease is *over*: that follows from the entries, see `partition/leases.py`.

Where nodes authenticate callers, a token belongs to its principal: the principal is signed, but not
in the token. Another principal's token is as invalid as a forged one.
"""

from __future__ import annotations

import hmac
import struct

SECRET_BYTES = 32
VERSION, BOUND = 1, 2  # of the layout: for anybody, and for one principal
_CLAIM = struct.Struct("<BqiQ")  # version, producer id, epoch, end of the lease (ms)
_MAC_BYTES = 16
TOKEN_BYTES = _CLAIM.size + _MAC_BYTES


def sign(secret: bytes, producer_id: int, epoch: int, expire_ms: int, principal: str = "") -> bytes:
    """Signs the token of a lease; `principal`: empty without authentication."""
    assert len(secret) == SECRET_BYTES, "a cluster without a secret leases nothing"
    version = BOUND if principal else VERSION
    claim = _CLAIM.pack(version, producer_id, epoch, expire_ms)
    return claim + _mac(secret, claim, principal)


def proves(secret: bytes, token: bytes, producer_id: int, epoch: int, principal: str = "") -> bool:
    """Whether the token is for this principal's lease of this id at this epoch."""
    if len(token) != TOKEN_BYTES or len(secret) != SECRET_BYTES:
        return False
    claim = token[: _CLAIM.size]
    version, leased_id, leased_epoch, _ = _CLAIM.unpack(claim)
    wanted = BOUND if principal else VERSION
    if (version, leased_id, leased_epoch) != (wanted, producer_id, epoch):
        return False
    return hmac.compare_digest(token[_CLAIM.size :], _mac(secret, claim, principal))


def _mac(secret: bytes, claim: bytes, principal: str) -> bytes:
    return hmac.digest(secret, claim + principal.encode(), "sha256")[:_MAC_BYTES]
