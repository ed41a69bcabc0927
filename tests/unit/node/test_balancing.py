"""A balance as it is decided, carried out, looked at and taken back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.metadata import upgrade
from cluster.metadata.node_loads import NodeLoads
from cluster.metadata.placement import NO_PLACES
from cluster.metadata.replicas import change, reported, retargeted
from cluster.metadata.snapshot import load_tables, packed_tables
from cluster.metadata.tables import METADATA_GROUP, Tables
from cluster.metadata.topics import PartitionState, Rejected, TopicSettings, TopicState
from cluster.node.replicas.balance import Balancing
from cluster.node.replicas.node_changes import MAX_MOVES
from cluster.node.replicas.sizes import ReplicaSizes, largest
from cluster.transport.calls import PeerCallError
from cluster.v1 import metadata_pb2 as pb
from cluster.v1 import peer_pb2 as peer
from oncelog import errors
from oncelog.v1 import cluster_pb2 as cpb
from tests.unit.small_node import Client, Node, create, refused, registered, serving

GROUP = 16
PLAN, START, CANCEL, DESCRIBE = (
    cpb.BALANCE_ACTION_PLAN,
    cpb.BALANCE_ACTION_START,
    cpb.BALANCE_ACTION_CANCEL,
    cpb.BALANCE_ACTION_DESCRIBE,
)


def tables(*records: PartitionState, balancing: bool = True) -> Tables:
    made = Tables(next_group_id=17, next_topic_id=2, balancing=balancing)
    made.nodes.update({node: f"n{node}:1" for node in (1, 2, 3, 4)})
    made.put_topic(TopicState("t", 1, records, TopicSettings(), 0))
    return made


def target(*replicas: int, for_balance: bool = True) -> pb.SetReplicas:
    return pb.SetReplicas(group_id=GROUP, replicas=replicas, for_balance=for_balance)


# --- replicated commands ------------------------------------------------------------------


def test_what_held_a_partition_is_known_until_the_move_is_done() -> None:
    nodes = (1, 2, 3, 4)
    record = retargeted(PartitionState(GROUP, (1, 2, 3)), target(4, 2, 3), nodes)
    assert record.before_balance == (1, 2, 3)
    assert not retargeted(record, target(1, 2, 4, for_balance=False), nodes).before_balance
    report = pb.ReportReplicas(group_id=GROUP, version=1, voters=[4, 2, 3], instances=[1, 0, 0])
    done = reported(record, report)
    assert (done.replicas, done.target, done.before_balance) == ((4, 2, 3), (), ())


def test_a_balance_moves_nothing_that_moves() -> None:
    """A plan is drawn, then an operator moves the partition: its version is still the same."""
    record, nodes = PartitionState(GROUP, (1, 2, 3)), (1, 2, 3, 4)
    for first in (target(1, 2, 4, for_balance=False), target(1, 2, 4)):
        moving = retargeted(record, first, nodes)
        assert moving.version == record.version
        with pytest.raises(Rejected, match=r"^for_balance: the partition is moving"):
            retargeted(moving, target(4, 2, 3), nodes)


def test_both_survive_a_snapshot() -> None:
    before = tables(PartitionState(GROUP, (1, 2), target=(1, 4), before_balance=(1, 2)))
    after = load_tables(b"".join(packed_tables(before)))
    assert after.balancing and after.topics == before.topics


def test_what_comes_after_the_end_is_refused() -> None:
    state = tables(PartitionState(GROUP, (1, 2)))
    off = pb.MetadataCommand(change_balance=pb.ChangeBalance(balancing=False))
    assert change(state, off, 0) and not change(state, off, 0)
    with pytest.raises(Rejected, match=r"^for_balance: "):
        change(state, pb.MetadataCommand(set_replicas=target(1, 4)), 0)
    assert change(state, pb.MetadataCommand(set_replicas=target(1, 4, for_balance=False)), 0)


def test_it_ends_only_on_the_layout_that_its_plan_was_drawn_on() -> None:
    node = registered()
    node.apply(
        pb.MetadataCommand(
            finalize_upgrade=pb.FinalizeUpgrade(version=2, features=["replica_changes"])
        )
    )
    placements = [pb.Placement(replicas=[1, 2])]
    node.apply(pb.MetadataCommand(create_topic=pb.CreateTopic(name="t", placements=placements)))
    node.apply(pb.MetadataCommand(change_balance=pb.ChangeBalance(balancing=True)))
    drawn = node.metadata.membership.layout_version
    end = pb.MetadataCommand(change_balance=pb.ChangeBalance(expected_layout=drawn))
    by_hand = target(1, 3, for_balance=False)
    assert not node.apply(pb.MetadataCommand(set_replicas=by_hand)).error
    assert node.apply(end).message.startswith("expected_layout: ")
    assert node.metadata.membership.balancing
    end.change_balance.expected_layout = node.metadata.membership.layout_version
    assert not node.apply(end).error and not node.metadata.membership.balancing


def test_before_the_upgrade_the_layout_is_not_counted() -> None:
    """A release that does not know the number loads the state."""
    node = registered()
    assert node.metadata.membership.layout_version == 0


# --- the metadata's leader ----------------------------------------------------------------


class Leader:
    """The metadata's leader, with its proposals."""

    def __init__(self, *records: PartitionState, down: frozenset[int] = frozenset()) -> None:
        self.group = SimpleNamespace(is_ready=True)
        self.tables, self.proposed = tables(*records), list[pb.MetadataCommand]()
        self.answers: list[Callable[[], None]] = []
        view: Any = SimpleNamespace(
            groups={0: self.group},
            topics=self.tables.topics_by_name,
            membership=SimpleNamespace(
                balancing=True,
                holders=lambda: [1, 2, 3, 4],
                layout_version=7,
                spread=NO_PLACES,
                loads=NodeLoads(),
            ),
        )
        self.view = view.membership
        self.balancing = Balancing(view, view, lambda node: node not in down, self._propose)

    def _propose(self, command: pb.MetadataCommand, done: Callable[[], None]) -> None:
        self.proposed.append(command)
        self.answers.append(done)

    def look(self) -> list[pb.MetadataCommand]:
        self.proposed.clear()
        if self.balancing.is_due:
            self.balancing.begin(self.balancing.draw({})())
        return self.proposed


def test_it_does_not_end_because_others_move_so_much() -> None:
    """An operator's moves take all the room: nothing was looked at."""
    by_hand = [replace(one, target=(1, 3)) for one in many(MAX_MOVES, 1, 2)]
    leader = Leader(*by_hand, *(replace(one, group_id=one.group_id + 1000) for one in by_hand))
    assert leader.look() == []
    assert leader.balancing.is_due


def many(count: int, *replicas: int) -> list[PartitionState]:
    return [PartitionState(GROUP + number, replicas) for number in range(count)]


def test_so_many_moves_begin_at_a_time() -> None:
    busy = replace(many(1, 1, 2)[0], group_id=10_000, target=(1, 3))
    leader = Leader(busy, *many(400, 1, 2))
    begun = leader.look()
    assert len(begun) == MAX_MOVES - 1
    assert all(command.set_replicas.for_balance for command in begun)
    assert not leader.balancing.is_due and not leader.look(), "the answers come first"
    for done in leader.answers:
        done()
    assert leader.look()


def test_it_ends_when_nothing_moves_and_nothing_is_to_move() -> None:
    level = [PartitionState(GROUP + n, (n + 1,)) for n in range(4)]
    (end,) = Leader(*level).look()
    assert end.WhichOneof("command") == "change_balance" and not end.change_balance.balancing
    moving = replace(level[3], target=(1,), before_balance=(4,))
    other = replace(level[0], group_id=99, replicas=(4,))
    assert not Leader(moving, other, *level[1:3]).look(), "one is under way"
    by_hand = replace(moving, before_balance=())
    assert not Leader(by_hand, other, *level[1:3]).look(), "its end may leave something to move"


def test_nothing_goes_to_a_node_that_is_down() -> None:
    begun = Leader(*many(8, 1), down=frozenset({4})).look()
    assert {node for one in begun for node in one.set_replicas.replicas} == {2, 3}


def test_only_the_leader_does_it_and_only_while_it_is_wanted() -> None:
    leader = Leader(*many(8, 1))
    leader.group.is_ready = False
    assert not leader.look()
    leader.group.is_ready, leader.view.balancing = True, False
    assert not leader.look()


def test_the_fullest_replica_says_how_large_a_partition_is() -> None:
    assert largest([{1: 5, 2: 7}, {1: 9}]) == {1: 9, 2: 7}


# --- the service --------------------------------------------------------------------------


@pytest.fixture
def node() -> Node:
    made = registered()
    made.register(4)
    command = upgrade.command(made.plan().target)
    made.releases[4] = made.releases[3]
    made.apply(pb.MetadataCommand(finalize_upgrade=command))
    return made


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Client]:
    async with serving(node) as client:
        yield client


async def balance(client: Client, action: Any) -> cpb.BalanceClusterResponse:
    request = cpb.BalanceClusterRequest(action=action)
    answer: cpb.BalanceClusterResponse = await client.cluster.BalanceCluster(request)
    return answer


async def moved(node: Node, client: Client) -> PartitionState:
    """A topic of one partition, of which the balance moves a replica to node 4."""
    topic = (await create(client, partitions=1, replicas=2)).topic
    group, replicas = topic.partitions[0].group_id, list(topic.partitions[0].replicas)
    move = pb.SetReplicas(group_id=group, replicas=[replicas[0], 4], for_balance=True)
    await balance(client, START)
    assert not node.apply(pb.MetadataCommand(set_replicas=move)).error
    found = node.metadata.partition(group)
    assert found is not None and found[2].target == (replicas[0], 4)
    return found[2]


async def test_a_plan_begins_nothing(node, client) -> None:
    await create(client, partitions=4, replicas=3, config=cpb.TopicConfig())
    node.held = {1: dict.fromkeys(range(16, 20), 100)}
    before, proposed = node.metadata.dump(), node.proposed
    node.apply(pb.MetadataCommand(register_node=pb.RegisterNode(node_id=5, address="n5:1")))
    before = node.metadata.dump()
    said = await balance(client, PLAN)
    assert said.count == len(said.moves) > 0 and not said.balancing
    assert said.bytes == 100 * sum(len({*one.target} - {*one.replicas}) for one in said.moves)
    assert node.metadata.dump() == before and node.proposed == proposed


async def test_how_far_it_is_and_why(node, client) -> None:
    record = await moved(node, client)
    node.held = {record.replicas[0]: {record.group_id: 100}, 4: {record.group_id: 30}}
    node.leaders[record.group_id] = record.replicas[0]
    said = await balance(client, DESCRIBE)
    (one,) = said.moves
    assert (said.balancing, said.count, said.bytes, said.copied) == (True, 1, 100, 30)
    assert (one.bytes, one.copied, list(one.target)) == (100, 30, list(record.target))
    assert "is at it" in one.waits_for
    nodes = (await client.cluster.ListNodes(cpb.ListNodesRequest())).nodes
    found = {n.node_id: (n.coming_bytes, n.copied_bytes) for n in nodes}
    assert found[4] == (100, 30) and found[record.replicas[0]] == (0, 0)
    node.dead.add(4)
    said = await balance(client, DESCRIBE)
    assert list(said.waits_for) == ["node 4 does not answer: nothing is moved to it or from it"]
    assert "[4] do not answer" in said.moves[0].waits_for


async def test_cancelled_it_is_taken_back_and_other_moves_are_not(node, client) -> None:
    record = await moved(node, client)
    other = (await create(client, name="other", partitions=1, replicas=2)).topic.partitions[0]
    own = pb.SetReplicas(group_id=other.group_id, replicas=[4, other.replicas[0]])
    if 4 in other.replicas:
        own.replicas[:] = [1, 2] if {*other.replicas} != {1, 2} else [1, 3]
    assert not node.apply(pb.MetadataCommand(set_replicas=own)).error
    said = await balance(client, CANCEL)
    assert not said.balancing
    state = node.metadata.partition(record.group_id)[2]
    assert state.target == record.replicas and not state.before_balance
    assert node.metadata.partition(other.group_id)[2].target == tuple(own.replicas)


async def test_what_is_refused(node, client) -> None:
    error = await refused(balance(client, 77))
    assert isinstance(error, errors.InvalidRequestError) and error.message.startswith("action: ")
    node.metadata = registered().metadata
    error = await refused(balance(client, START))
    assert isinstance(error, errors.NotSupportedError)


# --- replicas on nodes --------------------------------------------------------------------


def partition(size: int, **matches: int) -> Any:
    """matches: n2=5: node 2 has the first 5 entries of 2000 that are committed."""
    progress = {
        int(node[1:]): SimpleNamespace(match=match, is_filled=False)
        for node, match in matches.items()
    }
    return SimpleNamespace(
        machine=SimpleNamespace(stored=SimpleNamespace(stored_bytes=size)),
        group=SimpleNamespace(commit_index=2000, progress=progress),
    )


class Link:
    """A link to a node that holds 7 bytes of group 16, and waits with group 17."""

    def __init__(self, version: int = 4, error: Exception | None = None) -> None:
        self.version, self.error, self.asked = version, error, 0

    async def ask(self, request: peer.Request) -> peer.Response:
        self.asked += 1
        if self.error is not None:
            raise self.error
        lags = [peer.ReplicaLag(group=16, node_id=3, entries=2000)]
        held = peer.DescribeReplicasResponse(
            groups=[16], bytes=[7], waiting={17: "it is far"}, lags=lags
        )
        return peer.Response(describe_replicas=held)


async def test_nodes_are_asked_and_who_does_not_answer_is_left_out() -> None:
    links = {2: Link(), 3: Link(error=PeerCallError("gone")), 4: Link(), 5: Link(version=3)}
    peers: Any = SimpleNamespace(links=links, up=lambda node: node != 4)
    held = {16: partition(9), 17: partition(0, n2=999, n3=1000)}
    metadata = partition(0, n2=5, n3=1000, n4=0).group
    metadata.members = SimpleNamespace(learners=(3, 4))
    metadata.why_no_vote = lambda node: "node 4 does not answer" if node == 4 else ""
    sizes = ReplicaSizes(1, held, peers, lambda: {16: "own"}, metadata)
    assert await sizes.ask() == {1: {16: 9, 17: 0}, 2: {16: 7}}
    assert sizes.reasons == {16: "own", 17: "it is far"}
    lags = {(17, 2): 1001, (16, 3): 2000, (METADATA_GROUP, 4): 2000}
    assert sizes.lags == lags, "1000 entries are not far, but a learner may lack none"
    metadata.progress[4].is_filled = True
    await sizes.ask()
    assert (METADATA_GROUP, 4) not in sizes.lags, "it is filled, and down"
    assert [link.asked for link in links.values()] == [2, 2, 0, 0], "5 would not know the question"
    assert sizes.alive(1) and sizes.alive(2) and not sizes.alive(4)
