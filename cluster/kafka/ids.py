"""Producer ids of Kafka clients without a name: a space of their own, each id with its own proof.

    InitProducerId --made--> client --each batch--> proves

A Kafka client carries no token, and raises its epoch by itself. So the proof is in the id, and does
not bind the epoch:

    bit 62     a client of Kafka's protocol; gRPC takes no such id
    42 bits    a producer id of the cluster's own sequence, so never issued twice
    20 bits    HMAC-SHA256 under the cluster's secret of that number and the principal

A guess at another client's id needs about 2**20 tries, and Kafka asks for no proof at all. The
secret is that of lease tokens (`cluster.metadata.lease_tokens`); the text before the number keeps
the two apart.
"""

from __future__ import annotations

import hmac
import struct
from functools import lru_cache
from typing import Final

from cluster.dedup.verdict import KAFKA_IDS
from cluster.dedup.verdict import KAFKA_PROOF_BITS as PROOF_BITS

COUNTER_BITS: Final = 42
_CLAIM = struct.Struct("<q")


def made(secret: bytes, issued: int, principal: str = "") -> int:
    """Returns the id for the number `issued`; `principal`: empty without authentication."""
    assert secret, "a cluster without a secret leases nothing"
    if not 0 < issued < 1 << COUNTER_BITS:
        raise OverflowError(f"producer id: {issued} is not in 1..2**{COUNTER_BITS} - 1")
    return KAFKA_IDS | issued << PROOF_BITS | _proof(secret, issued, principal)


@lru_cache(1024)  # a producer proves its id with each batch
def proves(secret: bytes, producer_id: int, principal: str = "") -> bool:
    """Whether the id was made for this principal."""
    return (
        bool(secret)
        and producer_id >> COUNTER_BITS + PROOF_BITS == 1
        and producer_id & (1 << PROOF_BITS) - 1
        == _proof(secret, (producer_id & KAFKA_IDS - 1) >> PROOF_BITS, principal)
    )


def _proof(secret: bytes, issued: int, principal: str) -> int:
    claim = b"kafka" + _CLAIM.pack(issued) + principal.encode()
    digest = hmac.digest(secret, claim, "sha256")
    return int.from_bytes(digest[:4], "little") & (1 << PROOF_BITS) - 1
