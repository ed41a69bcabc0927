"""Schedules of operators that would lose acknowledged records. The metadata group is real."""

from __future__ import annotations

from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.membership.contact_schedules import Apart
from tests.sim.schedules import schedule


@schedule
def of_two_replacements_at_once_the_second_is_refused() -> None:
    """2 and 3 of {1,2,3} are down. Two operators give them up, each by an older copy."""
    nodes = Apart()
    nodes.add(4, 5)
    nodes.settle()
    for number in (2, 3):
        nodes.node(number).crash("down")
    nodes.node(2).joining.wipe()
    assert not nodes.change(2, mpb.NODE_ACTION_REPLACE)
    refused = nodes.change(3, mpb.NODE_ACTION_REPLACE)
    if "these partitions end" not in refused:
        raise Violation(f"one of three replicas is left, and nobody accepted that: {refused!r}")
    for number in (2, 3):
        nodes.node(number).start()  # 3 has its directory
    nodes.settle()
