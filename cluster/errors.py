"""Operating faults of a node: failures without a bug in the code.

Each layer raises these; the services translate them to gRPC statuses
(`services/errors.py`), the entry point to exit codes. A broken invariant is an
`AssertionError` instead and stops its component.
"""

from __future__ import annotations

BAD_SETTINGS, REMOVED = 2, 3  # exit codes of a node


class ClusterError(Exception):
    """Any operating fault of a node."""


class ConfigError(ClusterError):
    """A setting is unknown, has a bad value or contradicts another one. Exit code 2."""


class RemovedError(ClusterError):
    """The cluster removed this node. Its data directory is of no more use. Exit code 3."""


class NotReadyError(ClusterError):
    """The node, or a leader, has not caught up far enough to answer. Worth a retry."""


class ProposalTimeoutError(ClusterError):
    """The outcome of a proposal is not known in time; it may still be applied."""


class FeatureOffError(ClusterError):
    """The request needs an upgrade of the cluster to be finalized first."""


class NotLeaderError(ClusterError):
    """This node does not lead the group. `leader_id` is 0 if no leader is known."""

    def __init__(self, message: str, leader_id: int = 0) -> None:
        super().__init__(message)
        self.leader_id = leader_id
