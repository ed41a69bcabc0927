"""Paces of Kafka's calls: the quotas of its principal that each call waits for.

Login --a call's key--> PACES --> Pace (cluster/access/quotas.py)
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.access.quotas import Pace
from cluster.kafka.messages import CALLS, FETCH, INIT_PRODUCER_ID, PRODUCE
from cluster.security.quotas import IN_BYTES, NEW_PRODUCERS, OUT_BYTES, REQUESTS

# A call does not wait for the rate of the direction that it does not use.
_RATES = {
    PRODUCE.key: (REQUESTS, IN_BYTES),
    FETCH.key: (REQUESTS, OUT_BYTES),
    INIT_PRODUCER_ID.key: (REQUESTS, IN_BYTES, OUT_BYTES, NEW_PRODUCERS),
}
_OTHER = (REQUESTS, IN_BYTES, OUT_BYTES)
# A delay would end the membership, or the login, that these keep: they only count.
_UNDELAYED = frozenset(
    {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "SaslHandshake", "SaslAuthenticate"}
)

PACES: Mapping[int, Pace] = {
    key: Pace(() if call.name in _UNDELAYED else _RATES.get(key, _OTHER))
    for key, call in CALLS.items()
}
