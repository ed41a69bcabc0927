"""Schedules in which a directory is put back from a copy. The metadata group is real."""

from __future__ import annotations

from functools import partial

from cluster.v1 import metadata_pb2 as mpb
from tests.sim.checker import Violation
from tests.sim.membership.repair_schedules import Damaged
from tests.sim.schedules import schedule
from tests.sim.stage import GID


class PutBack(Damaged):
    """Three nodes; each has started twice."""

    def __init__(self) -> None:
        super().__init__()
        for number in (1, 2, 3):
            self.restart(number)

    def let(self, one: int, other: int) -> None:
        """Lets two nodes hear each other."""
        links = self.cluster.network.links
        links[one, other].blocked = links[other, one].blocked = False

    def has_metadata(self, number: int) -> bool:
        return number in self.view.own.replicas

    def is_later(self, known: int) -> bool:
        """Tells whether 3 has another registration than that."""
        last = self.view.registration_of(3)
        return last is not None and last.id != known

    def acknowledge(self) -> None:
        before = self.cluster.checker.acknowledged
        self.until(lambda: self.cluster.checker.acknowledged > before + 20, "clients go on")


@schedule
def a_directory_that_was_put_back_elects_nobody() -> None:
    """1 and 3 acknowledge, 2 hears nothing. 1 dies, 3 starts from an older copy of its directory.

    2 knows of the start that came after the copy, so 2 and 3 are no majority.
    """
    nodes = PutBack()
    taken = nodes.node(3).registering.copied()
    nodes.restart(3)
    nodes.lead(1)
    nodes.cut(2, blocked=True)
    nodes.acknowledge()
    nodes.node(1).crash("dies")
    nodes.node(3).crash("stopped")
    nodes.node(3).registering.put_back(taken)
    nodes.cut(2, blocked=False)
    nodes.node(3).start()
    nodes.run(15.0)
    if nodes.node(3).registering.takes_part:
        raise Violation("3 takes part with an older copy")
    nodes.node(1).restart()
    nodes.acknowledge()
    nodes.lose_disk(3)  # the remedy: the restored directory is given up
    assert not nodes.change(3, mpb.NODE_ACTION_REPLACE)
    nodes.settle()


@schedule
def a_peer_that_has_not_heard_of_a_start_is_no_way_in() -> None:
    """Of five nodes 2 has not heard that 3 has started since; 4 and 5 have, without the partition.

    2 hears 3 only, and lets it in from an older copy. The metadata group does not: 3 takes part in
    nothing.
    """
    nodes = PutBack()
    for number in (4, 5):
        assert not nodes.change(number, mpb.NODE_ACTION_ADD)
        nodes.until(partial(nodes.has_metadata, number), "it is in")
    nodes.settle()
    taken = nodes.node(3).registering.copied()
    nodes.cut(2, blocked=True)
    nodes.restart(3, settled=False)
    nodes.lead(1)
    nodes.acknowledge()
    nodes.node(1).crash("dies")
    nodes.node(3).crash("stopped")
    nodes.node(3).registering.put_back(taken)
    nodes.let(2, 3)
    nodes.node(3).start()
    nodes.run(15.0)
    if nodes.node(3).registering.takes_part:
        raise Violation("3 takes part with an older copy")
    if nodes.cluster.leader(GID) is not None:
        raise Violation("2 and 3 have a leader")
    nodes.cut(2, blocked=False)
    nodes.node(1).restart()
    nodes.acknowledge()


@schedule
def a_start_that_died_before_it_was_confirmed_is_known() -> None:
    """The registration may have been stored: the next start names that one first."""
    nodes = PutBack()
    for _ in range(5):
        nodes.node(3).crash("stopped")
        nodes.node(3).start()
        known = nodes.node(3).registering.stored.known
        nodes.until(partial(nodes.is_later, known), "registered")
    nodes.restart(3)
