"""Schedules of a run's end: the checks there must see what they claim to see."""

from __future__ import annotations

from cluster.metadata.tables import METADATA_GROUP
from tests.sim.membership import nodes as random_nodes
from tests.sim.membership.node_schedules import Nodes
from tests.sim.membership.seeds import check_topics
from tests.sim.schedules import schedule

PAIR = [1, 2]


@schedule
def equal_replicas_are_not_at_rest_without_a_leader() -> None:
    """Both replicas of a topic restart with equal logs; neither knows what is committed."""
    nodes = Nodes()
    pair = nodes.made("pair", PAIR)
    model = nodes.cluster.checker.models[pair]
    nodes.until(lambda: model.next_offset > 20, "records are stored")
    nodes.clients.close()
    nodes.until(lambda: random_nodes.is_at_rest(nodes.cluster, pair, PAIR), "all is applied")
    for number in PAIR:
        nodes.node(number).crash("killed")
    for number in PAIR:
        nodes.node(number).start()
    for _ in range(40):  # the others elect, the pair does not
        for node in map(nodes.node, PAIR):
            if pair in node.machines:
                nodes.group(node.id, pair).core.election_deadline = node.clock() + 1e6
        nodes.run(0.25)
        if random_nodes.is_done(nodes.cluster):
            check_topics(nodes.cluster)
    assert nodes.cluster.leader(METADATA_GROUP) is not None
    logs = [nodes.group(number, pair) for number in PAIR]
    assert len({(log.applied_index, log.journal.last_index) for log in logs}) == 1
    assert logs[0].applied_index < logs[0].journal.last_index
    for node in map(nodes.node, PAIR):
        nodes.group(node.id, pair).core.election_deadline = node.clock() + node.id
        node.driver.touch(pair)
    nodes.until(lambda: random_nodes.is_done(nodes.cluster), "all is at rest")
    check_topics(nodes.cluster)
