"""A node's own duties: each over real groups, at the time that the test chooses."""

from __future__ import annotations

import pytest

from cluster.consensus.message import Snapshot
from cluster.consensus.proposals import Abandoned, Applied, Outcome
from cluster.metadata.tables import METADATA_GROUP
from cluster.node.maintenance.duties import Maintenance, MaintenanceSettings, TransferDone
from cluster.v1 import metadata_pb2 as mpb
from storage.errors import CorruptionError
from tests.sim.cluster import Cluster
from tests.sim.node import METADATA_ENTRIES, Settings
from tests.sim.stage import GID, Stage

DELAY = 5.0


READ = 0.02  # seconds until a state was read from the disk


class Transfers:
    """Snapshots that are on their way until the test ends them."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, Snapshot, TransferDone]] = []

    def send(self, peer: int, snapshot: Snapshot, done: TransferDone) -> None:
        self.begun.append((peer, snapshot, done))


def maintenance(stage: Stage, node_id: int, linked: dict[int, float] | None = None) -> Maintenance:
    return watched(stage, node_id, Transfers(), linked)


def watched(
    stage: Stage, node_id: int, transfers: Transfers, linked: dict[int, float] | None = None
) -> Maintenance:
    process = stage.node(node_id).running
    return Maintenance(
        MaintenanceSettings(node_id, preferred_leader_delay=DELAY, metadata_entries=5),
        process.driver,
        process.replicas,
        process.state,
        process.clock,
        linked if linked is not None else process.linked_since,
        process.clocks,
        transfers.send,
        lambda: None,
    )


# -- snapshots ----------------------------------------------------------------------------


def behind() -> Stage:
    """Node 1 leads and has dropped entries that node 3 needs."""
    stage = Stage(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.crash(3)
    stage.produce(1, 12)
    for _ in range(2):
        stage.node(1).compact()
        stage.run(1.0)
    assert stage.group(1).journal.base_index > 8
    stage.group(1).snapshots_due.clear()
    return stage


def test_one_transfer_at_a_time_to_each_peer() -> None:
    stage, transfers = behind(), Transfers()
    duties = watched(stage, 1, transfers)
    group = stage.group(1)
    group.snapshots_due += [3, 2, 3]
    duties.look()
    stage.run(READ)
    assert sorted(peer for peer, _, _ in transfers.begun) == [2, 3]
    assert group.snapshots_due == []
    assert transfers.begun[0][1].index == group.journal.base_index
    group.snapshots_due.append(3)
    duties.look()
    stage.run(READ)
    assert len(transfers.begun) == 2, "that to node 3 is still under way"
    for _, _, done in transfers.begun:
        done(False, "the peer is gone")
    group.snapshots_due.append(3)
    duties.look()
    stage.run(READ)
    assert [peer for peer, _, _ in transfers.begun[2:]] == [3]


@pytest.mark.parametrize("installed", [True, False])
def test_the_group_learns_the_outcome(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, transfers = behind(), Transfers()
    group = stage.group(1)
    outcomes: list[tuple[int, int, bool]] = []
    monkeypatch.setattr(group, "snapshot_sent", lambda *outcome: outcomes.append(outcome))
    group.snapshots_due.append(3)
    watched(stage, 1, transfers).look()
    stage.run(READ)
    index = group.journal.base_index
    assert outcomes == []
    transfers.begun[0][2](installed, "")
    assert outcomes == [(3, index, installed)]


@pytest.mark.parametrize("error", [CorruptionError("a damaged checkpoint"), ValueError("a bug")])
def test_a_snapshot_that_cannot_be_read_is_an_outcome_too(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged snapshot also stops the replica: a sound one must lead."""
    stage, transfers = behind(), Transfers()
    group = stage.group(1)
    outcomes: list[tuple[int, int, bool]] = []

    def unreadable() -> Snapshot:
        raise error

    monkeypatch.setattr(group, "base_reading", lambda peer: unreadable)
    monkeypatch.setattr(group, "snapshot_sent", lambda *outcome: outcomes.append(outcome))
    monkeypatch.setattr(stage.node(1), "_look", lambda process: None)  # where no disk is damaged
    duties = watched(stage, 1, transfers)
    group.snapshots_due.append(3)
    duties.look()
    stage.run(READ)
    assert transfers.begun == []
    assert outcomes == [(3, group.journal.base_index, False)]
    assert group.failed is (error if isinstance(error, CorruptionError) else None)


# -- preferred leaders ----------------------------------------------------------------------


def led_by_another() -> Stage:
    """Node 2 leads, node 1 is preferred."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.transfer(1, 2)
    stage.run(1.0)
    assert stage.group(2).is_ready
    return stage


def test_a_preferred_leader_leads_again_once_it_is_linked_for_long_enough() -> None:
    stage = led_by_another()
    linked = {1: stage.node(2).clock()}
    duties = maintenance(stage, 2, linked)
    stage.run(DELAY - 0.5)
    duties.look()
    stage.run(1.0)
    assert stage.group(2).is_ready, "it is back for a short time only"
    duties.look()
    stage.run(1.0)
    assert stage.group(1).is_ready
    stage.finish()


@pytest.mark.parametrize("why", ["not linked", "silent", "behind", "sick"])
def test_no_preferred_leader_that_cannot_take_over(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = led_by_another()
    group, linked = stage.group(2), {1: -100.0}
    if why == "not linked":
        linked.clear()
    elif why == "silent":
        stage.isolate(1)
        stage.run(2.0)
        assert not group.is_responsive(1)
    elif why == "sick":
        stage.node(2).running.clocks.sick.add(1)
    else:
        monkeypatch.setattr(group, "follower_lag", lambda: {1: 9, 3: 0})
    maintenance(stage, 2, linked).look()
    assert group._leading is not None and not group._leading.transfer_target


def test_who_is_preferred_itself_hands_nothing_over() -> None:
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    maintenance(stage, 1, {2: -100.0, 3: -100.0}).look()
    leading = stage.group(1)._leading
    assert leading is not None and not leading.transfer_target


# -- retention, producers, logs -------------------------------------------------------------


def test_retention_is_proposed_by_the_leader_and_each_node_compacts_its_own_log() -> None:
    stage = Stage(checkpoint_entries=2, retention_bytes=0)
    stage.elect(1)
    stage.produce(1, 6)
    for node in (2, 3):
        maintenance(stage, node).retain()
    stage.run(1.0)
    assert [stage.node(node).partitions[GID].log_start_offset for node in (1, 2, 3)] == [0, 0, 0]
    maintenance(stage, 1).retain()
    stage.run(1.0)
    assert [stage.node(node).partitions[GID].log_start_offset for node in (1, 2, 3)] == [6, 6, 6]
    maintenance(stage, 2).retain()
    stage.run(1.0)
    assert stage.group(2).journal.base_index > 6
    assert stage.group(3).journal.base_index == 1, "a node's log is its own"
    stage.finish()


def test_deleted_records_are_gone_from_every_replica_and_repeats_stay_known() -> None:
    stage = Stage()
    stage.elect(1)
    stage.produce(1, 6)
    partition, ended = stage.node(1).partitions[GID], list[Outcome]()
    stage.node(2).partitions[GID].delete_below(4, ended.append)
    partition.delete_below(4, ended.append)
    stage.run(1.0)
    other, own = ended
    assert isinstance(other, Abandoned) and isinstance(own, Applied)
    assert [stage.node(node).partitions[GID].log_start_offset for node in (1, 2, 3)] == [4, 4, 4]
    partition.delete_below(4, ended.append)
    stage.run(1.0)
    assert isinstance(ended[-1], Applied) and partition.log_start_offset == 4
    stage.finish()


def test_time_passes_for_producers_where_nobody_writes() -> None:
    stage = Stage(lease_ms=2000)
    pid = stage.cluster.lease()
    stage.elect(1)
    stage.produce(1)
    stage.run(3.0)
    partition = stage.node(1).partitions[GID]
    assert partition.last_seen.expired_below <= pid
    maintenance(stage, 1).retain()
    stage.run(1.0)
    assert partition.last_seen.expired_below > pid
    stage.finish()


def test_a_replica_that_cannot_be_read_does_not_keep_the_others_from_retention(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(groups=2, retention_bytes=0)
    partitions = stage.node(1).partitions
    monkeypatch.setattr(stage.node(1), "_look", lambda process: None)  # where no disk is damaged
    compacted: list[int] = []

    def damaged() -> None:
        raise CorruptionError("a damaged index")

    monkeypatch.setattr(partitions[GID], "compact", damaged)
    monkeypatch.setattr(partitions[GID + 1], "compact", lambda: compacted.append(GID + 1))
    duties = maintenance(stage, 1)
    duties.retain()
    assert compacted == [GID + 1]
    assert isinstance(stage.group(1).failed, CorruptionError)
    monkeypatch.setattr(partitions[GID], "compact", lambda: compacted.append(GID))
    duties.retain()
    assert compacted == [GID + 1, GID + 1], "a replica that has stopped is left alone"


def test_the_metadata_log_is_kept_short() -> None:
    """Up to the newest checkpoint that leaves enough entries for followers a little behind."""
    cluster = Cluster(Settings(nodes=1, metadata=True), seed=1)
    cluster.start()
    cluster.scheduler.run_until(5.0)
    group = cluster.nodes[1].driver.groups[METADATA_GROUP]

    def apply(count: int) -> None:
        applied: list[bytes] = []
        for _ in range(count):
            ids = mpb.AllocateProducerIds(count=1)
            cluster.command(mpb.MetadataCommand(allocate_producer_ids=ids), applied.append)
            cluster.scheduler.run_until(cluster.scheduler.now + 0.2)
        assert len(applied) == count

    def retain() -> None:
        cluster.nodes[1].running.maintenance.retain()
        cluster.scheduler.run_until(cluster.scheduler.now + 0.2)  # a thread loads the state

    apply(3 * METADATA_ENTRIES)
    first = group.applied_index
    retain()
    # Entries followed at the start were saved at once, so there is one early checkpoint.
    early = group.journal.base_index
    assert early < METADATA_ENTRIES
    apply(METADATA_ENTRIES - 1)
    retain()
    assert group.journal.base_index == early, "too little has come since"
    apply(1)
    retain()
    assert group.journal.base_index == first
