"""When a node's replica changes run, and how their reports go to the metadata group."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.consensus.driver import Driver
from cluster.errors import ClusterError
from cluster.metadata.state import MetadataState
from cluster.node.maintenance_loop import LOOK_PERIOD, Tasks, every
from cluster.node.metadata_proposer import MetadataProposer
from cluster.node.replica_changes import ReplicaChanges
from cluster.v1 import metadata_pb2 as mpb

log = logging.getLogger(__name__)

REPORT_TIMEOUT = 5.0  # seconds; the next look sends it again


def start_replica_changes(
    driver: Driver, metadata: MetadataState, proposer: MetadataProposer, tasks: Tasks
) -> None:
    """Begins to bring partitions to where the metadata wishes them."""

    async def report(command: mpb.MetadataCommand, done: Callable[[], None]) -> None:
        try:
            await proposer.propose(command, REPORT_TIMEOUT)
        except ClusterError as error:
            log.info("replicas were not reported this time: %s", error)
        finally:
            done()

    changes = ReplicaChanges(
        driver,
        metadata,
        metadata.directory_of,
        lambda command, done: tasks.spawn(report(command, done)),
    )
    tasks.spawn(every(LOOK_PERIOD, changes.look))
