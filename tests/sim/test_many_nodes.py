"""Thirty nodes of which five vote on the metadata: messages at rest."""

from __future__ import annotations

from tests.sim.many_nodes import ManyNodes, in_ranges

MOST = 700  # messages a second that a node without a vote may send and receive


def test_a_node_without_a_vote_exchanges_few_messages_at_rest() -> None:
    """At most with its neighbours and the voters; at rest nobody tells of leaders."""
    nodes = 30
    cluster = ManyNodes(nodes, in_ranges(nodes, 60))
    cluster.run(3.0)
    count = cluster.count(2.0)
    learners = [one for one in cluster.cluster.node_ids if one not in cluster.voters]
    most = max(sum(count.of(node).values()) for node in learners)
    assert 0 < most <= MOST
    kinds = {kind for kind, _, _ in count.pairs}
    assert kinds == {"ClockProbe", "ClockReply", "Heartbeat", "HeartbeatReply", "LeadersSince"}
