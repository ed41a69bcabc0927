"""Handlers of all calls, and the sessions that use them. `node` makes them once.

node --services--> open_sessions --> Session of each connection
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.kafka.brokers import Brokers
from cluster.kafka.configs import Configs
from cluster.kafka.fetch import Fetching
from cluster.kafka.logs import Logs
from cluster.kafka.messages import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
)
from cluster.kafka.metadata import Metadata
from cluster.kafka.needs import Rights
from cluster.kafka.offsets import Offsets
from cluster.kafka.produce import Producing
from cluster.kafka.producers import Producers
from cluster.kafka.session import Handler, Session
from cluster.kafka.topics import Topics
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.context import NodeContext
from cluster.services.groups.service import GroupService


def open_sessions(
    node: NodeContext, cluster: ClusterService, producers: ProducerService, groups: GroupService
) -> Callable[[Rights], Session]:
    """Return the maker of each connection's session."""
    brokers = Brokers(node)
    logs = Logs(node)
    topics, configs, fetching = Topics(cluster), Configs(cluster), Fetching(node, brokers)
    metadata, offsets = Metadata(node, brokers, topics), Offsets(groups, brokers)
    handlers: Mapping[int, Handler] = {
        FETCH.key: fetching.fetch,
        LIST_OFFSETS.key: fetching.list_offsets,
        METADATA.key: metadata.metadata,
        OFFSET_COMMIT.key: offsets.commit,
        OFFSET_FETCH.key: offsets.fetch,
        FIND_COORDINATOR.key: offsets.find,
        CREATE_TOPICS.key: topics.create,
        DELETE_TOPICS.key: topics.delete,
        DELETE_RECORDS.key: logs.delete,
        INIT_PRODUCER_ID.key: Producers(producers).init,
        OFFSET_FOR_LEADER_EPOCH.key: fetching.end_of_epoch,
        DESCRIBE_CONFIGS.key: configs.describe,
        ALTER_CONFIGS.key: configs.alter,
        CREATE_PARTITIONS.key: topics.create_partitions,
        INCREMENTAL_ALTER_CONFIGS.key: configs.alter_some,
        DESCRIBE_LOG_DIRS.key: logs.describe,
        DESCRIBE_CLUSTER.key: metadata.cluster,
    }
    return lambda rights: Session(rights, handlers, Producing(node, rights), node.metrics.requests)
