"""The first second of a new cluster: topics that clients ask for, and producer ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.errors import ProposalTimeoutError
from cluster.features import CLUSTER_VERSIONS, FEATURES
from cluster.kafka.errors import Error
from cluster.kafka.messages import INIT_PRODUCER_ID, InitProducerIdRequest
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.producers import Producers
from cluster.kafka.topics import Topics
from cluster.kafka.versions import Head
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.v1 import metadata_pb2 as meta
from tests.unit.kafka.test_logs import ANYBODY
from tests.unit.small_node import registered


async def test_a_client_asks_again_while_the_cluster_is_being_founded() -> None:
    """After UNSUPPORTED_VERSION librdkafka gives a topic up, and Java its producer."""
    node = registered()
    service = ProducerService(node, now_ms=lambda: node.now_ms, new_nonce=node.new_nonce)
    nobody: Any = None  # no transaction begins
    producers = Producers(service, OpenTransactions(node, SimpleNamespace(all_runs=nobody), nobody))
    for name in (None, "billing"):
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        answer = await producers.init(ANYBODY, Head(INIT_PRODUCER_ID, 4, 1, "", True), request)
        assert answer.error_code is Error.COORDINATOR_LOAD_IN_PROGRESS
    topics = Topics(ClusterService(node))
    assert await topics.create_default(ANYBODY, "events") is Error.LEADER_NOT_AVAILABLE
    newest = meta.FinalizeUpgrade(version=CLUSTER_VERSIONS.newest, features=sorted(FEATURES))
    assert not node.apply(meta.MetadataCommand(finalize_upgrade=newest)).error
    node.proposal_error = ProposalTimeoutError("no leader of the metadata")
    assert await topics.create_default(ANYBODY, "events") is Error.LEADER_NOT_AVAILABLE
    node.proposal_error = None
    assert await topics.create_default(ANYBODY, "events") is Error.NONE
