"""Stamps of a metadata leader: the commands that get one, and those that do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.consensus.proposals import Abandoned, Applied, Outcome
from cluster.errors import NotReadyError, ProposalTimeoutError
from cluster.features import COMMANDS
from cluster.metadata.settings import SETTINGS
from cluster.metadata.state import MetadataState
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.metadata.proposer import OF_CALLERS, REPEATABLE, MetadataProposer
from cluster.security.caller import RULES_VERSION
from cluster.transport.calls import NotSentError, PeerCallError
from cluster.v1 import metadata_pb2 as mpb
from oncelog.v1.cluster_pb2 import TopicConfig

DAY_MS = 24 * 3600 * 1000


class Leader:
    """A node alone that leads the metadata group, with a wall clock that a test sets."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        self.stamps: list[int] = []
        self.versions: list[int] = []
        self.outcomes: list[Outcome | None] = []  # of the next proposals; None: none comes
        self.metadata = MetadataState()
        clocks = ClockAgreement((), 10_000, lambda: 0.0, lambda: self.wall_ms, lambda *sent: None)
        self.links: dict[int, Any] = {}
        self.fed: list[int] = []  # learners; 0: all
        group: Any = SimpleNamespace(
            is_ready=True,
            leader_id=1,
            propose=self._propose,
            applied_index=1,
            feed=self.fed.append,
        )
        self.group = group
        founding: Any = SimpleNamespace(commands=list, settings=dict.fromkeys(SETTINGS, 1000))
        self.proposer = MetadataProposer(
            self.group,
            self.links,
            lambda: None,
            clocks,
            founding,
            self.metadata,
        )

    def _propose(self, data: bytes, done: Any, *, outlives_term: bool) -> None:
        command = mpb.MetadataCommand.FromString(data[1:])
        once = command.WhichOneof("command") not in REPEATABLE
        assert outlives_term == once, "the log decides, not the term, on what must not run twice"
        self.stamps.append(command.stamp_ms)
        self.versions.append(command.rules_version)
        if (outcome := self.outcomes.pop(0) if self.outcomes else Applied(1, b"")) is not None:
            done(outcome)


async def test_a_callers_command_says_by_which_rules_it_was_let_in():
    leader = Leader()
    RULES_VERSION.set(7)
    asked = mpb.MetadataCommand(create_topic=mpb.CreateTopic(name="t"))
    of_the_node = mpb.MetadataCommand(register_node=mpb.RegisterNode(node_id=1))
    for command in (asked, of_the_node):
        assert not (await leader.proposer.propose(command, 1.0)).error
    assert leader.versions == [7, 0], "what a node does by itself waits for nobody's rights"


# Proposed by nodes. Calls ask for some of them: each checks its caller by itself.
OF_NODES = {
    "register_node", "allocate_producer_ids", "create_lease_secret", "transaction",
    "found_cluster_settings", "report_replicas", "repair_replica", "join_node",
}  # fmt: skip


def test_each_command_is_of_callers_or_of_nodes():
    assert not OF_CALLERS & OF_NODES
    assert set(COMMANDS) == OF_CALLERS | OF_NODES, "a caller's needs the version of its rules"


async def test_a_field_of_a_newer_client_is_no_entry():
    """In the log it would stop each replica of the metadata group."""
    leader = Leader()
    config = TopicConfig.FromString(TopicConfig(retention_ms=5).SerializeToString() + b"\xf8\x3f\1")
    for command in (
        mpb.MetadataCommand(create_topic=mpb.CreateTopic(name="t", config=config)),
        mpb.MetadataCommand(alter_topic=mpb.AlterTopic(name="t", config=config)),
    ):
        result = await leader.proposer.propose(command, 1.0)
        assert (result.error, leader.stamps) == ("INVALID_REQUEST", [])
        assert "does not know" in result.message


async def test_a_command_has_the_agreed_time_or_is_not_taken():
    leader = Leader()
    command = mpb.MetadataCommand().SerializeToString()
    assert not (await leader.proposer.propose_here(command)).not_leader
    leader.wall_ms += 8 * DAY_MS
    assert (await leader.proposer.propose_here(command)).not_leader
    leader.wall_ms -= 8 * DAY_MS - 5000
    assert not (await leader.proposer.propose_here(command)).not_leader
    assert leader.stamps == [1_000_000, 1_005_000]


async def test_a_node_that_was_given_up_does_not_join_by_telling_its_addresses():
    leader = Leader()

    async def said(directory: int, *, addresses_only: bool) -> str:
        told = mpb.JoinNode(node_id=2, directory_id=directory, addresses_only=addresses_only)
        command = mpb.MetadataCommand(join_node=told).SerializeToString()
        answer = await leader.proposer.propose_here(command)
        return mpb.MetadataResult.FromString(answer.result).message

    why_not = await said(5, addresses_only=True)
    assert why_not.startswith("node_id 2 is registered with another data directory")
    assert not leader.stamps, "it was not proposed"
    register = mpb.RegisterNode(node_id=2, address="h:1", directory_id=5)
    leader.metadata.apply(1, mpb.MetadataCommand(register_node=register).SerializeToString())
    assert not await said(5, addresses_only=True)
    assert not await said(6, addresses_only=False), "a new one asks to join"
    assert len(leader.stamps) == 2


async def test_all_learners_hear_at_once_of_topics_and_replicas():
    """Others hear of another node's command with the next heartbeat."""
    leader = Leader()
    commands = (
        mpb.MetadataCommand(create_topic=mpb.CreateTopic(name="t")),
        mpb.MetadataCommand(add_partitions=mpb.AddPartitions(name="t")),
        mpb.MetadataCommand(set_replicas=mpb.SetReplicas(group_id=3)),
        mpb.MetadataCommand(set_topic_replicas=mpb.SetTopicReplicas(name="t")),
        mpb.MetadataCommand(lease_name=mpb.LeaseName(name="n")),
        mpb.MetadataCommand(),
    )
    for command in commands:
        await leader.proposer.propose_here(command.SerializeToString())
        await leader.proposer.propose_here(command.SerializeToString(), asker=4)
    assert leader.fed == [0] * 8 + [4, 4]


CREATE = mpb.MetadataCommand(create_topic=mpb.CreateTopic(name="t"))


async def test_a_command_that_a_moving_leadership_lost_is_proposed_again():
    """Before, a topic's creation was told as unknown whenever leadership moved meanwhile."""
    leader = Leader()
    leader.outcomes = [Abandoned(0, "no longer the leader", lost=True)]
    assert not (await leader.proposer.propose(CREATE, 10.0)).error
    assert len(leader.stamps) == 2


async def test_a_command_that_may_be_committed_is_not_proposed_again():
    leader = Leader()
    leader.outcomes = [Abandoned(0, "restarted from a snapshot")]
    with pytest.raises(ProposalTimeoutError):
        await leader.proposer.propose(CREATE, 10.0)
    assert len(leader.stamps) == 1


LEASE = mpb.MetadataCommand(lease_name=mpb.LeaseName(name="n"))


async def test_a_command_that_may_run_twice_is_proposed_again_when_the_term_ends():
    """Before, it waited until the log decided on it."""
    leader = Leader()
    leader.outcomes = [Abandoned(0, "no longer the leader")]
    assert not (await leader.proposer.propose(LEASE, 10.0)).error
    assert len(leader.stamps) == 2


async def test_a_command_that_was_not_sent_is_sent_again():
    """Before, "1024 requests wait" was told as an unknown outcome."""
    leader = Leader()
    leader.group.is_ready, leader.group.leader_id = False, 2
    errors: list[Exception] = [NotSentError("3 requests wait"), PeerCallError("broke")]
    asked = []

    async def ask(request: Any) -> Any:
        asked.append(request)
        raise errors.pop(0)

    leader.links[2] = SimpleNamespace(up=True, peer=2, ask=ask)
    with pytest.raises(ProposalTimeoutError, match="node 2: broke"):
        await leader.proposer.propose(CREATE, 10.0)
    assert len(asked) == 2


async def test_a_command_that_is_not_committed_in_time_may_be_committed_yet():
    """Before, the caller was told that nobody took it."""
    leader = Leader()
    leader.outcomes = [None, None]
    with pytest.raises(ProposalTimeoutError, match="may do so yet"):
        await leader.proposer.propose(CREATE, 0.05)
    with pytest.raises(NotReadyError):
        await leader.proposer.propose(LEASE, 0.05)
    assert len(leader.stamps) == 2
