"""Handlers of all calls, and the sessions that use them. `node` makes them once.

node --services--> open_sessions --> Session of each connection
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.kafka.brokers import Brokers
from cluster.kafka.configs import Configs
from cluster.kafka.fetch import Fetching
from cluster.kafka.group_admin import GroupAdmin
from cluster.kafka.groups import ClassicMembers
from cluster.kafka.logs import Logs
from cluster.kafka.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)
from cluster.kafka.metadata import Metadata
from cluster.kafka.needs import Rights
from cluster.kafka.offsets import Offsets
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.produce import Producing
from cluster.kafka.producers import Producers
from cluster.kafka.session import Handler, Session
from cluster.kafka.topics import Topics
from cluster.kafka.transactions import TransactionCalls
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.admin.producer_service import ProducerService
from cluster.services.context import NodeContext
from cluster.services.groups.service import GroupService
from cluster.services.log.lease_checks import Leases


def open_sessions(
    node: NodeContext,
    cluster: ClusterService,
    producers: ProducerService,
    groups: GroupService,
    open_ones: OpenTransactions,
) -> Callable[[Rights], Session]:
    """Return the maker of each connection's session."""
    brokers, leases, logs = Brokers(node), Leases(node), Logs(node)
    transactions = TransactionCalls(node, open_ones, groups, brokers)
    topics, configs, fetching = Topics(cluster), Configs(cluster), Fetching(node, brokers)
    metadata, offsets = Metadata(node, brokers, topics), Offsets(groups, brokers)
    members, group_admin = ClassicMembers(groups.classic), GroupAdmin(groups)
    handlers: Mapping[int, Handler] = {
        FETCH.key: fetching.fetch,
        LIST_OFFSETS.key: fetching.list_offsets,
        METADATA.key: metadata.metadata,
        OFFSET_COMMIT.key: offsets.commit,
        OFFSET_FETCH.key: offsets.fetch,
        FIND_COORDINATOR.key: offsets.find,
        JOIN_GROUP.key: members.join,
        SYNC_GROUP.key: members.sync,
        HEARTBEAT.key: members.heartbeat,
        LEAVE_GROUP.key: members.leave,
        DESCRIBE_GROUPS.key: group_admin.describe,
        LIST_GROUPS.key: group_admin.list,
        DELETE_GROUPS.key: group_admin.delete,
        OFFSET_DELETE.key: group_admin.delete_offsets,
        CREATE_TOPICS.key: topics.create,
        DELETE_TOPICS.key: topics.delete,
        DELETE_RECORDS.key: logs.delete,
        INIT_PRODUCER_ID.key: Producers(producers, open_ones).init,
        OFFSET_FOR_LEADER_EPOCH.key: fetching.end_of_epoch,
        DESCRIBE_CONFIGS.key: configs.describe,
        ALTER_CONFIGS.key: configs.alter,
        CREATE_PARTITIONS.key: topics.create_partitions,
        INCREMENTAL_ALTER_CONFIGS.key: configs.alter_some,
        DESCRIBE_LOG_DIRS.key: logs.describe,
        DESCRIBE_CLUSTER.key: metadata.cluster,
        ADD_PARTITIONS_TO_TXN.key: transactions.add_partitions,
        ADD_OFFSETS_TO_TXN.key: transactions.add_offsets,
        END_TXN.key: transactions.end,
        TXN_OFFSET_COMMIT.key: transactions.commit_offsets,
        DESCRIBE_PRODUCERS.key: transactions.describe_producers,
        DESCRIBE_TRANSACTIONS.key: transactions.describe,
        LIST_TRANSACTIONS.key: transactions.list,
    }
    requests = node.metrics.requests
    return lambda rights: Session(rights, handlers, Producing(node, rights, leases), requests)
