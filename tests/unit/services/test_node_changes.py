"""A node that leaves: the targets of its partitions, and the conditions it waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.features import REPLICA_CHANGES, THIS_RELEASE, Finalized
from cluster.metadata import nodes as rules
from cluster.metadata.nodes import MAX_GROWN, MAX_VOTING
from cluster.metadata.places import NodePlace
from cluster.metadata.tables import METADATA_GROUP
from cluster.metadata.topics import (
    OFFSETS_TOPIC,
    PartitionState,
    Rejected,
    TopicSettings,
    TopicState,
)
from cluster.node.replicas.node_changes import MAX_MOVES, internal_growth, moves
from cluster.services.admin import node_changes
from cluster.services.admin.node_changes import statuses
from cluster.v1 import metadata_pb2 as meta
from harness.node_process import ROOT
from oncelog.v1.cluster_pb2 import NODE_ACTION_ADD, NODE_ACTION_REPLACE, ChangeNodeRequest
from tests.unit.small_node import Node

ADD = meta.NODE_ACTION_ADD


def topic(*replicas: tuple[int, ...]) -> TopicState:
    partitions = tuple(PartitionState(16 + number, held) for number, held in enumerate(replicas))
    return TopicState("t", 1, partitions, TopicSettings(), 0)


def targets(found: list[tuple[PartitionState, list[int]]]) -> list[list[int]]:
    return [target for _, target in found]


def test_each_replica_goes_to_a_living_node_that_holds_the_fewest() -> None:
    held = topic((3, 1), (1, 3), (4, 1), (1, 2))
    assert targets(moves([held], (1, 2, 4), {3}, {1, 2, 4})) == [[2, 1], [1, 4]]
    # A replica that moves to a dead node waits for it, and so does the node that leaves.
    assert targets(moves([held], (1, 2, 4), {3}, {1, 4})) == [[4, 1], [1, 4]]
    assert targets(moves([held], (1, 2, 4), {3}, {1})) == [[2, 1], [1, 4]], "none other is there"


def test_nothing_moves_that_has_nowhere_to_go_and_not_too_much_at_once() -> None:
    assert not moves([topic((3, 1))], (1,), {3}, {1})
    many = topic(*[(3, 1)] * (MAX_MOVES + 20))
    assert len(moves([many], (1, 2), {3}, {1, 2})) == MAX_MOVES


def test_internal_topics_have_no_more_replicas_than_there_are_nodes() -> None:
    held = topic((1, 2, 3))
    internal = replace(held, name=OFFSETS_TOPIC)
    assert targets(moves([internal], (1, 2), {3}, {1, 2})) == [[1, 2]]
    assert targets(moves([internal], (1, 2, 4), {3}, {1, 2, 4})) == [[1, 2, 4]]
    assert not moves([held], (1, 2), {3}, {1, 2})


def test_internal_topics_get_the_replicas_that_they_could_not_have_before() -> None:
    offsets = replace(topic((1,), (1, 2), (1, 2, 3)), name=OFFSETS_TOPIC)
    others = topic((1,), (2, 4))
    found = internal_growth([offsets, others], {1, 2, 3, 4}, 3)
    assert targets(found) == [[1, 3, 4], [1, 2, 3]], (
        "the least loaded; no others; those with 3 stay"
    )
    assert targets(internal_growth([offsets], {1, 2}, 2)) == [[1, 2]]
    assert not internal_growth([offsets], {1}, 1)
    moving = replace(offsets.partitions[0], target=(2,))
    assert not internal_growth([replace(offsets, partitions=(moving,))], {1, 2, 3}, 3)


def own(version: int, *voters: int, learners: tuple[int, ...] = ()) -> meta.MetadataCommand:
    """The report of the metadata's leader: these nodes hold the metadata."""
    report = meta.ReportReplicas(
        group_id=0, version=version, index=version, index_term=1,
        voters=voters, learners=learners, instances=[0] * (len(voters) + len(learners)),
    )  # fmt: skip
    return meta.MetadataCommand(report_replicas=report)


async def test_a_node_that_was_removed_waits_for_those_that_have_not_heard_of_it() -> None:
    """Otherwise a dead node keeps it for ever, and nobody says why."""
    node = Node()
    node.register(1, 2, 3, 4)
    node.releases[4] = THIS_RELEASE
    upgrade = meta.FinalizeUpgrade(version=2, features=sorted(THIS_RELEASE.features))
    node.apply(meta.MetadataCommand(finalize_upgrade=upgrade))
    remove = meta.ChangeNode(node_id=4, action=meta.NODE_ACTION_REMOVE)
    for command in (own(1, 1, 2, 3, 4), meta.MetadataCommand(change_node=remove), own(2, 1, 2, 3)):
        assert not node.apply(command).message
    assert (await waits(node))[4] == ["the others hear that it is removed"]
    node.dead = {3}
    assert (await waits(node))[4] == [
        "nodes [3] have not heard that it is removed: bring them back, or remove them, too"
    ]
    assert (await waits(node))[1] == []


@pytest.mark.parametrize("removed_first", [True, False])
async def test_a_removal_goes_on_when_the_disk_is_lost(removed_first: bool) -> None:
    """No answer and no list asks for a new directory of a node that is being removed."""
    node = grown((1, 2, 3), (1, 2, 4))
    assert not node.apply(own(1, 1, 2, 3, 4, 5)).message
    node.dead = {3}
    request = ChangeNodeRequest(node_id=3, action=NODE_ACTION_REPLACE)
    actions = [meta.NODE_ACTION_REMOVE, meta.NODE_ACTION_REPLACE]
    said = []
    for action in actions if removed_first else reversed(actions):
        if action == meta.NODE_ACTION_REPLACE:
            said = node_changes.effects(node, await node_changes.command(node, request))
        assert not node.apply(named(action, 3)).message
    before = "If it shall stay, cancel the removal before you replace it"
    assert (before in said[-1]) == removed_first
    assert ("may join" in said[-1]) != removed_first
    assert not node.apply(own(2, 1, 2, 4, 5)).message
    view = node.metadata.membership
    assert {*view.expected} == {*view.leaving} == {3} and not view.awaits(3)
    assert not any("started" in text or "heard" in text for text in (await waits(node))[3])
    added = node.apply(named(ADD, 3)).message
    assert "3 is being removed, and no new directory of it joins" in added
    assert "`oncelog node add 3` lets one join" in added
    page = (ROOT / "docs" / "operations.md").read_text()
    assert "node 4 is being removed, and no new directory of it joins" in page
    move = meta.MetadataCommand(set_replicas=meta.SetReplicas(group_id=16, replicas=(1, 2, 5)))
    for command in (move, at(16, 1, 2, 5)):
        assert not node.apply(command).message
    assert (await waits(node))[3] == ["the others hear that it is removed"]
    assert not node.apply(named(meta.NODE_ACTION_FORGET, 3)).message
    assert not node.apply(named(ADD, 3)).message and view.awaits(3)
    assert (await waits(node))[3] == ["it has to be started with an empty data directory"]


async def test_a_removed_first_node_is_added_again() -> None:
    """The settings still name it, and its removal counts."""
    node = grown((1, 2, 4))
    for command in (
        own(1, 1, 2, 3, 4, 5),
        named(meta.NODE_ACTION_REMOVE, 3),
        own(2, 1, 2, 4, 5),
        named(meta.NODE_ACTION_FORGET, 3),
    ):
        assert not node.apply(command).message
    assert 3 in node.config.nodes
    node.dead = {3}
    replaces = ChangeNodeRequest(node_id=3, action=NODE_ACTION_REPLACE)
    with pytest.raises(Rejected, match="3 is not a node of the cluster"):
        node_changes.effects(node, await node_changes.command(node, replaces))
    assert 3 not in node.metadata.nodes, "it was not registered in passing"
    adds = ChangeNodeRequest(node_id=3, action=NODE_ACTION_ADD)
    change = await node_changes.command(node, adds)
    assert "node 3 may join" in node_changes.effects(node, change)[0]
    assert not node.apply(meta.MetadataCommand(change_node=change)).message
    assert 3 in node.metadata.membership.expected


def named(action: meta.NodeAction, number: int) -> meta.MetadataCommand:
    return meta.MetadataCommand(change_node=meta.ChangeNode(node_id=number, action=action))


def at(group: int, *nodes: int) -> meta.MetadataCommand:
    """The report of the group's leader: these nodes hold it."""
    report = meta.ReportReplicas(
        group_id=group, version=1, index=1, index_term=1, voters=nodes, instances=[0] * len(nodes)
    )
    return meta.MetadataCommand(report_replicas=report)


async def test_of_two_nodes_the_other_one_decides_alone_only_if_that_is_said() -> None:
    node = Node()
    node.config = replace(node.config, nodes={1: node.config.nodes[1], 2: node.config.nodes[2]})
    node.register(1, 2)
    directory = 0x5D0C84A1CE0F2B77
    register = meta.RegisterNode(node_id=2, address="public2:1", directory_id=directory)
    node.apply(meta.MetadataCommand(register_node=register))
    node.controller_id, node.dead = 0, {2}
    request = ChangeNodeRequest(node_id=2, action=NODE_ACTION_REPLACE)
    with pytest.raises(Rejected, match="one of two nodes: without it node 1 decides") as refused:
        await node_changes.command(node, request)
    page = (ROOT / "docs" / "operations.md").read_text()
    assert f"oncelog: {refused.value} $ oncelog node replace 2" in " ".join(page.split())
    request.accept_loss, request.directory_id = True, 5
    with pytest.raises(Rejected, match=f"{directory:016x}, not {5:016x}"):
        await node_changes.command(node, request)
    request.directory_id, request.dry_run = directory, True
    said = node_changes.effects(node, await node_changes.command(node, request))
    assert "node 1 decides alone. If node 2 still runs" in said[0]
    assert f"the data directory of node 2, {directory:016x}, never counts again" in said[1]
    assert node.lost == [], "nothing is done yet"
    request.dry_run = False
    await node_changes.command(node, request)
    assert node.lost == [2]
    node.controller_id, node.why_not_alone = 0, "others may decide without this replica"
    with pytest.raises(Rejected, match=r"cannot decide alone: others may .* Start node 2"):
        await node_changes.command(node, request)
    # A majority can decide it: no node decides alone.
    three = Node()
    three.register(1, 2, 3)
    three.controller_id, three.dead = 0, {2}
    await node_changes.command(three, request)
    assert three.lost == []


def grown(*replicas: tuple[int, ...]) -> Node:
    """Five nodes, and a partition of topic t on each of these."""
    node = Node()
    node.register(1, 2, 3, 4, 5)
    node.releases |= {4: THIS_RELEASE, 5: THIS_RELEASE}
    upgrade = meta.FinalizeUpgrade(version=2, features=sorted(THIS_RELEASE.features))
    placements = [meta.Placement(replicas=held) for held in replicas]
    create = meta.CreateTopic(name="t", placements=placements)
    for command in (
        meta.MetadataCommand(finalize_upgrade=upgrade),
        meta.MetadataCommand(create_topic=create),
    ):
        assert not node.apply(command).message
    return node


async def test_of_two_replacements_at_once_the_second_is_refused() -> None:
    """Each was allowed by a copy of the metadata that did not have its rival yet."""
    node = grown((1, 2, 3), (1, 4, 5))
    node.dead = {2, 3}
    changes = [
        await node_changes.command(node, ChangeNodeRequest(node_id=n, action=NODE_ACTION_REPLACE))
        for n in (2, 3)
    ]
    assert not node.apply(meta.MetadataCommand(change_node=changes[0])).message
    assert "these partitions end, with all that is in them: t-0." in (
        node.apply(meta.MetadataCommand(change_node=changes[1])).message
    )
    request = ChangeNodeRequest(node_id=3, action=NODE_ACTION_REPLACE, accept_loss=True)
    accepted = await node_changes.command(node, request)
    assert "the records of t-0 are lost" in node_changes.effects(node, accepted)[0]
    assert not node.apply(meta.MetadataCommand(change_node=accepted)).message


async def test_a_first_node_that_never_came_can_be_replaced() -> None:
    """The founder admits one directory. That one may be lost before it is registered."""
    node = Node()
    node.register(1, 2)
    upgrade = meta.FinalizeUpgrade(version=2, features=sorted(THIS_RELEASE.features))
    node.apply(meta.MetadataCommand(finalize_upgrade=upgrade))
    node.dead = {3}
    request = ChangeNodeRequest(node_id=3, action=NODE_ACTION_REPLACE, dry_run=True)
    dry = node_changes.effects(node, await node_changes.command(node, request))
    assert 3 not in node.metadata.nodes and "then node 3 may join" in dry[-1]
    request.dry_run = False
    change = await node_changes.command(node, request)
    assert node_changes.effects(node, change) == dry
    assert not node.apply(meta.MetadataCommand(change_node=change)).message
    assert node.metadata.membership.lost == [(3, 0)], "the metadata group removes its replica"


def reported(target: tuple[int, ...], *voters: int) -> Node:
    """A partition that was on 1, 2, 3 is on its way to `target`; `voters` were reported."""
    node = grown((1, 2, 3))
    move = meta.SetReplicas(group_id=16, replicas=target)
    report = meta.ReportReplicas(
        group_id=16, version=1, index=1, index_term=1, voters=voters, instances=[0] * len(voters)
    )
    for command in (
        meta.MetadataCommand(set_replicas=move),
        meta.MetadataCommand(report_replicas=report),
    ):
        assert not node.apply(command).message
    return node


@pytest.mark.parametrize(
    ("target", "voters", "refused"),
    [
        ((1,), (1, 3), True),  # 3 may have gone since: then 1 has all, alone
        ((1,), (1, 2, 3), False),  # of 1 and 2, or 1 and 3, the other one has all
        ((4, 5, 1), (1, 2, 3), False),
        ((1, 4), (1, 2), False),  # 4 comes before 2 goes (found by a random run)
        ((1, 3), (1, 3), False),
    ],
)
def test_a_group_may_be_a_step_ahead_of_what_is_reported(
    target: tuple[int, ...], voters: tuple[int, ...], refused: bool
) -> None:
    change = meta.ChangeNode(node_id=1, action=meta.NODE_ACTION_REPLACE)
    answer = reported(target, *voters).apply(meta.MetadataCommand(change_node=change))
    assert ("these partitions end" in answer.message) == refused


async def waits(node: Node) -> dict[int, list[str]]:
    return {one.node_id: list(one.waits_for) for one in await statuses(node, {})}


async def test_health_names_partitions_with_a_majority_in_one_rack() -> None:
    node = Node()
    node.register(1, 2, 3, 4)
    tables = node.metadata.tables
    crowded = topic((1, 2, 3), (1, 3, 4), (1,))
    tables.put_topic(replace(crowded, partitions=(*crowded.partitions, PartitionState(19, (1, 2)))))
    assert await node_changes.crowded(node) == [], "no node has a label"
    tables.places |= {
        node: NodePlace(rack) for node, rack in zip((1, 2, 3, 4), "aabc", strict=True)
    }
    assert await node_changes.crowded(node) == [
        "t-0: 2 of its 3 replicas are in rack a: run `oncelog cluster balance`",
        "t-3: 2 of its 2 replicas are in rack a: run `oncelog cluster balance`",
    ]
    found = {one.node_id: one.rack for one in await statuses(node, {})}
    assert found == {1: "a", 2: "a", 3: "b", 4: "c"}
    tables.places[4] = NodePlace("b", "m")
    assert (await node_changes.crowded(node))[1] == (
        "2 partitions have a majority in one rack: for another spread, add nodes in other racks"
    )
    page = (ROOT / "docs" / "operations.md").read_text()
    assert "partitions have a majority in one rack: for another spread, add nodes in oth" in page


async def test_votes_on_the_metadata() -> None:
    """The sixth of six nodes learns; the fifth of five shall vote, and so is not settled yet.

    A learner that stays is settled once it is filled.
    """
    node = grown((1, 2, 3))
    node.register(6)
    node.releases[6] = THIS_RELEASE
    assert not node.apply(own(1, 1, 2, 3, 4, learners=(5,))).message
    marks = [(one.metadata_learner, one.coming) for one in await statuses(node, {})]
    assert marks == [(False, 0)] * 4 + [(True, 1), (False, 0)]
    assert not node.apply(own(2, 1, 2, 3, 4, 5, learners=(6,))).message
    marks = [(one.metadata_learner, one.coming) for one in await statuses(node, {})]
    assert marks == [(False, 0)] * 5 + [(True, 0)]
    node.lags[METADATA_GROUP, 6] = 7
    sixth = (await statuses(node, {}))[-1]
    assert (sixth.coming, list(sixth.waits_for)) == (
        1, ["the metadata: its replica is 7 entries behind"]
    )  # fmt: skip
    node.lags.clear()
    assert not node.apply(own(3, 1, 2, 3, 4, 5, 6)).message
    assert not any(one.metadata_learner for one in await statuses(node, {}))


def test_a_voter_that_goes_gives_its_vote_away() -> None:
    node = grown((1, 2, 3))
    node.register(6)

    def said(number: int, action: meta.NodeAction) -> list[str]:
        directory = max(0, node.metadata.directory_of(number))
        change = meta.ChangeNode(node_id=number, action=action, directory_id=directory)
        return node_changes.effects(node, change)

    for action in (meta.NODE_ACTION_REMOVE, meta.NODE_ACTION_REPLACE):
        assert not any("votes" in line for line in said(2, action)), "all vote, and go on"
    assert not node.apply(own(1, 1, 2, 3, 4, 5, learners=(6,))).message
    for action in (meta.NODE_ACTION_REMOVE, meta.NODE_ACTION_REPLACE):
        text = "another node votes on the metadata in place of node 2"
        assert text in said(2, action) and not any("votes" in one for one in said(6, action))
    node.dead = {3}
    assert len(said(2, meta.NODE_ACTION_DRAIN)) == 1, "three of five are left without it"
    node.dead = {3, 4}
    assert said(2, meta.NODE_ACTION_DRAIN)[1] == (
        "do not stop node 2 before nodes [3, 4] are back: without it the metadata has no majority "
        "of its 5 voters, and accepts no change"
    )
    assert len(said(6, meta.NODE_ACTION_DRAIN)) == 1, "it learns"
    node.dead = {6, 3}
    assert len(said(2, meta.NODE_ACTION_DRAIN)) == 1


def test_a_cluster_grows_further_once_nodes_may_learn() -> None:
    node = grown((1, 2, 3))
    for features, most in ((frozenset({REPLICA_CHANGES}), MAX_VOTING), (None, MAX_GROWN)):
        tables = node.metadata.tables.trial()
        if features is not None:
            tables.finalized = Finalized(3, features)
        added = range(6, most + 1)
        for number in added:
            assert rules.change(tables, meta.ChangeNode(node_id=number, action=ADD))
        with pytest.raises(Rejected, match=f"has {most} nodes; it can grow to {most}"):
            rules.change(tables, meta.ChangeNode(node_id=most + 1, action=ADD))
