"""A refusal between two nodes: which side ends."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.errors import RemovedError
from cluster.node.links.peers import REFUSAL_TIMEOUT, Peers
from cluster.transport.hellos import NO_NODE


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.failures: list[BaseException] = []
        self.peers = Peers(lambda: self.now, lambda peer, up: None, self.failures.append)
        link: Any = None  # the code under test only asks which nodes exist
        self.peers.links.update({2: link, 3: link})

    def refused(self, peer: int, *, mutual: bool, reason: str = "why not") -> None:
        """Refuses twice, with more than the life of a node's last process between."""
        self.peers._refused(peer, reason, mutual)
        self.now += REFUSAL_TIMEOUT + 1.0
        self.peers._refused(peer, reason, mutual)


@pytest.mark.parametrize("mutual", [True, False])
def test_a_refusal_that_lasts_ends_the_node(mutual: bool) -> None:
    rig = Rig()
    rig.refused(2, mutual=mutual)
    assert "node 2 refuses this node: why not" in str(rig.failures[0])
    assert not isinstance(rig.failures[0], RemovedError), "it may be started again"


def test_a_node_that_is_forgotten_is_removed_for_good() -> None:
    rig = Rig()
    rig.refused(2, mutual=False, reason=NO_NODE)
    assert isinstance(rig.failures[0], RemovedError)


def test_who_is_linked_with_a_majority_goes_on_where_both_refuse() -> None:
    rig = Rig()
    rig.peers._link_changed(3, True)
    rig.refused(2, mutual=True)
    assert rig.failures == []
    rig.peers._link_changed(3, False)
    rig.refused(2, mutual=True)
    assert len(rig.failures) == 1


def test_another_ones_refusal_alone_ends_it_all_the_same() -> None:
    rig = Rig()
    rig.peers._link_changed(3, True)
    rig.refused(2, mutual=False)
    assert len(rig.failures) == 1
