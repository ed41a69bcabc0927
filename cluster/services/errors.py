"""Translation of the node's faults and rejections into public errors.

A service raises an error of `oncelog.errors`, a `ClusterError` or a `Rejected`; `to_public` makes
one of `oncelog.errors` of each. A protocol gives that to its client in a form of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster import errors as faults
from cluster.metadata.topics import INVALID_REQUEST, Rejected
from cluster.v1.metadata_pb2 import MetadataResult
from oncelog import errors
from oncelog.wire.reasons import BY_REASON

# All that a service raises on purpose; anything else is a bug.
ON_PURPOSE = (errors.OncelogError, faults.ClusterError, Rejected)


def to_public(
    error: errors.OncelogError | faults.ClusterError | Rejected, nodes: Mapping[int, str]
) -> errors.OncelogError:
    """Return the public form of any error that a service raises on purpose.

    `nodes` maps node ids to the addresses that clients use.
    """
    match error:
        case errors.OncelogError():
            return error
        case Rejected():
            return rejection(error.reason, str(error), limit=error.limit)
        case faults.NotLeaderError():
            address = nodes.get(error.leader_id, "")
            return errors.NotLeaderError(
                str(error), leader_id=error.leader_id, leader_address=address
            )
        case faults.NotReadyError():
            return errors.NotReadyError(str(error))
        case faults.FeatureOffError():
            return errors.NotSupportedError(str(error))
        case faults.ProposalTimeoutError():
            return errors.RequestTimeoutError(str(error))
    return errors.InternalError(str(error))


def rejection(reason: str, message: str, **details: str | int) -> errors.OncelogError:
    """Return the public form of a rejected command."""
    kind = BY_REASON.get(reason, errors.InternalError)
    if reason == INVALID_REQUEST:
        details["field"] = message.partition(": ")[0]
    known = {name for name, _ in kind.detail_types}
    return kind(message, **{name: value for name, value in details.items() if name in known})


def accepted(result: MetadataResult, **details: str | int) -> MetadataResult:
    """Return `result` unless the command was rejected. Raises the public error."""
    if result.error:
        raise rejection(result.error, result.message, **details)
    return result
