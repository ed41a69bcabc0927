"""Two releases: their readable entries, the directories they open, the end of one too old.

The newer one knows one more kind of entry, PROBE, that belongs to a feature; a replica of the older
one stops at it. `upgrading` has the operator that rolls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cluster.consensus.group import Group
from cluster.entries import UPGRADE
from cluster.features import COMPACTION, KAFKA, OlderReleaseError, Release, Versions
from cluster.partition.machine import PartitionMachine
from cluster.v1 import metadata_pb2 as mpb
from storage.errors import CorruptionError
from tests.sim.checker import Violation

if TYPE_CHECKING:
    from tests.sim.node import Node

T = TypeVar("T")

PROBE, FEATURE = 0x7E, "probe"
OLD = Release("old")
NEW = Release("new", Versions(1, 2), frozenset({FEATURE, KAFKA, COMPACTION}))


# -- a release's behaviour ---------------------------------------------------------------------


def teach(machine: PartitionMachine, release: Release) -> None:
    """Makes a replica of the newer release apply a PROBE, which changes nothing."""
    if FEATURE in release.features:
        machine._handlers[PROBE] = lambda index, data, batch: None


def opened(node: Node, make: Callable[[], T]) -> T:
    """Runs a start's `make`; a release too old for the directory gives way to the newer one."""
    if node.cluster_version not in node.release.versions:
        _give_newer(node)
    try:
        process = make()
    except OlderReleaseError:
        _give_newer(node)
        process = make()
    if node.release is NEW:
        node.cluster.upgraded.add(node.id)
    return process


def _give_newer(node: Node) -> None:
    assert node.release is OLD
    node.cluster.trace("node %d does not start with the older release", node.id)
    node.release = NEW


def ends(node: Node, group: Group) -> bool:
    """Tells whether the replica stopped since its release is too old for the cluster."""
    error, model = group.failed, node.cluster.checker.metadata
    unknown = isinstance(error, CorruptionError) and "unknown type 0x7e" in str(error)
    if isinstance(error, OlderReleaseError) or (unknown and node.release.lacks(model.finalized)):
        node.cluster.scheduler.after(0.0, replace_program, node, node.incarnation, NEW)
        return True
    return False


def replace_program(node: Node, incarnation: int, release: Release) -> None:
    """Replaces the program of a running node; it was killed for that."""
    if node.incarnation == incarnation and node.alive:
        node.crash(f"replaced by the {release.name} release")
        node.release = release
        delay = 2.0 * node.cluster.rng.random()
        node.cluster.scheduler.after(delay, node.restart)


def check_upgrade(node: Node, data: bytes, answer: bytes) -> None:
    """Checks an applied upgrade: by then every registered node had run the newer release."""
    if data[0] != UPGRADE or mpb.MetadataResult.FromString(answer).error:
        return
    upgraded = node.cluster.upgraded
    if set(node.running.state.nodes) - upgraded:
        raise Violation(f"upgraded, and only {upgraded} ever ran the newer release")
    if node.release is OLD:
        raise Violation(f"node {node.id} goes on beyond an upgrade that it does not know")
