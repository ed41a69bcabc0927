"""Topics that a client's Metadata request makes."""

from __future__ import annotations

from cluster.errors import ProposalTimeoutError
from cluster.features import CLUSTER_VERSIONS, FEATURES
from cluster.kafka.errors import Error
from cluster.kafka.topics import Topics
from cluster.services.admin.cluster_service import ClusterService
from cluster.v1 import metadata_pb2 as meta
from tests.unit.kafka.test_logs import ANYBODY
from tests.unit.small_node import registered


async def test_a_client_asks_again_while_the_cluster_is_being_founded() -> None:
    """librdkafka gives a topic up after UNSUPPORTED_VERSION."""
    node = registered()
    topics = Topics(ClusterService(node))
    assert await topics.create_default(ANYBODY, "events") is Error.LEADER_NOT_AVAILABLE
    newest = meta.FinalizeUpgrade(version=CLUSTER_VERSIONS.newest, features=sorted(FEATURES))
    assert not node.apply(meta.MetadataCommand(finalize_upgrade=newest)).error
    node.proposal_error = ProposalTimeoutError("no leader of the metadata")
    assert await topics.create_default(ANYBODY, "events") is Error.LEADER_NOT_AVAILABLE
    node.proposal_error = None
    assert await topics.create_default(ANYBODY, "events") is Error.NONE
