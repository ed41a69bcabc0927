"""Directed schedules for findings of the random search, one for each bug."""

from __future__ import annotations

from dataclasses import replace

import pytest

import cluster.consensus.driver
import storage.checkpoints
from cluster.consensus.message import Append, Snapshot, checksum_of
from cluster.dedup.verdict import Kind
from storage.errors import StorageError
from tests.sim.checker import Violation
from tests.sim.schedules import limited, schedule
from tests.sim.stage import GID, Stage


@schedule
def a_snapshot_before_its_checkpoint_is_written() -> None:
    """Found by seed 100: the base had moved, its checkpoint was still in the open batch."""
    stage = Stage(retention_bytes=0)
    stage.elect(1)
    stage.produce(1, 4)
    stage.crash(3)
    stage.node(1).compact()
    stage.run(1.0)
    node = stage.node(1)
    node.compact()
    stage.group(1).snapshots_due.append(3)
    node.running.maintenance.look()
    with pytest.raises(StorageError, match="not written yet"):
        stage.group(1).base_reading(3)()
    stage.start(3)
    stage.finish()


@schedule
def a_full_disk_does_not_stop_a_replica() -> None:
    """Found by seed 100: a checkpoint too large for one batch met a full disk."""
    small = ("INLINE_BYTES", 16), ("CHUNK_BYTES", 8)
    with limited(storage.checkpoints, *small[0]), limited(storage.checkpoints, *small[1]):
        stage = Stage()
        stage.elect(1)
        stage.produce(1, 3)
        stage.node(1).disk.full = True
        stage.node(1).checkpoint()
        stage.run(1.0)
        assert stage.group(1).failed is None
        stage.finish()


@schedule
def a_transfer_that_waits_costs_nothing() -> None:
    """Found by the event count of seed 75: proposals behind a transfer kept the driver busy."""
    stage = Stage()
    stage.elect(1)
    stage.produce(1)
    stage.hold(lambda sender, receiver, message: receiver == 2)
    stage.send(1, stage.batch())
    stage.run(0.1)
    stage.group(1).transfer(2)
    stage.node(1).driver.touch(GID)
    stage.send(1, stage.batch(), head=False)
    before = stage.cluster.scheduler.events
    stage.run(1.9)
    if stage.cluster.scheduler.events - before > 300:
        raise Violation(f"{stage.cluster.scheduler.events - before} events in two idle seconds")
    stage.finish()


@schedule
def fenced_by_a_batch_that_expired() -> None:
    """Found by seed 817: FENCED by an epoch in flight that apply then refused."""
    stage = Stage(lease_ms=2000)
    stage.cluster.lease()
    stage.cluster.grants[-1] = (*stage.cluster.grants[-1][:3], False)  # no name holds it
    stage.elect(1)
    stage.produce(1)
    stage.run(2.5)  # idle for longer than its lease
    stage.cluster._issued.clear()  # this leader has not heard it from the metadata group yet
    stage.hold(lambda sender, receiver, message: True)
    stage.send(1, stage.batch(epoch=1))
    old = stage.send(1, stage.batch(epoch=0))
    stage.run(0.1)
    stage.release()
    stage.run(1.0)
    assert old.kind is Kind.PRODUCER_EXPIRED, old.answer
    stage.finish()


@schedule
def a_first_batch_on_a_full_disk_is_not_trimmed() -> None:
    """Found by seed 5391: its index row waited to be written, so the partition looked empty."""
    stage = Stage(checkpoint_entries=4)
    stage.elect(1)
    stage.hold(
        lambda sender, receiver, message: (
            isinstance(message, Append) and receiver == 3 and not message.data
        )
    )
    stage.produce(1)
    stage.node(3).disk.full = True
    stage.release()
    stage.run(1.0)
    assert stage.node(3).driver.storage_full
    assert stage.node(3).partitions[GID].high_watermark == 1
    stage.node(3).compact()
    stage.node(3).disk.full = False
    stage.finish()


@schedule
def a_leader_at_rest_is_replaced_by_a_snapshot() -> None:
    """Found by seed 4554: it stood still, and was still thought to rest after it began anew."""
    stage = Stage(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1)
    stage.run(2.0)
    assert stage.group(1).is_quiescent
    stage.node(1).paused_until = stage.cluster.scheduler.now + 10.0
    stage.hold(lambda sender, receiver, message: 1 in (sender, receiver))
    stage.run(4.0)
    stage.elect(2)
    stage.produce(2, 12)
    for _ in range(2):
        stage.node(2).compact()
        stage.run(1.0)
    answers: list[bool] = []
    stage.node(1).install(2, stage.group(2).base_reading(1)(), answers.append)
    stage.run(4.0)
    assert answers == [True]
    stage.finish()


@schedule
def an_acknowledgement_is_withdrawn_with_its_entry() -> None:
    """Found by seed 70838: entries of two leaders came in one round. The second replaced the first,
    and both were acknowledged after the fsync.
    """
    entries_of_two_leaders_before_one_fsync()


@schedule
def an_acknowledgement_of_an_earlier_slice_is_withdrawn() -> None:
    """Found by seed 202695: the same, the entries of each leader in a slice of its own."""
    with limited(cluster.consensus.driver, "SLICE_OPERATIONS", 1):
        entries_of_two_leaders_before_one_fsync()


def entries_of_two_leaders_before_one_fsync() -> None:
    stage = Stage(nodes=5)
    stage.elect(1)
    stage.produce(1)
    stage.run(1.0)
    stage.isolate(1)
    stage.isolate(3)
    for pid in (11, 12, 13):
        stage.send(1, stage.batch(pid))
    stage.run(0.1)
    stage.elect(2)
    for leader in (1, 2):
        entries = [
            message
            for sender, receiver, message in stage.held
            if (sender, receiver) == (leader, 3) and isinstance(message, Append) and message.data
        ]
        stage.node(3).receive(leader, entries)
    stage.run(0.1)
    assert stage.group(3).term == stage.group(2).term
    stage.finish()


@schedule
def an_unsound_snapshot_changes_nothing() -> None:
    """Noise, half a state, a state of another group: refused, and the replica goes on."""
    stage = Stage(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1, 2)
    stage.crash(3)
    stage.produce(1, 12)
    for _ in range(2):
        stage.node(1).compact()
        stage.run(1.0)
    stage.cluster.network.links[1, 3].blocked = True  # for the leader's own snapshots, too
    stage.start(3)
    sound = stage.group(1).base_reading(3)()
    before = stage.group(3).journal.last_index
    answers: list[bool] = []
    foreign = replace(sound, checksum=checksum_of(0, sound.index, sound.index_term, sound.state))
    for snapshot in (*unsound(sound), foreign, replace(sound, index=sound.index + 1)):
        stage.node(3).install(1, snapshot, answers.append)
        stage.run(0.1)
    group = stage.group(3)
    assert len(answers) == 2 + len([*unsound(sound)])
    if any(answers) or group.journal.last_index != before or stage.cluster.installs:
        raise Violation(f"unsound snapshots were installed: {answers}")
    stage.crash(3)
    stage.start(3)
    stage.finish()


@schedule
def a_lone_replica_waits_for_its_election() -> None:
    """Found by the oracle's steps of seed 31447: after a restart its node was busy until then."""
    stage = Stage(nodes=1)
    stage.elect(1)
    stage.produce(1, 3)
    stage.crash(1)
    stage.start(1)
    before = stage.cluster.scheduler.events
    stage.run(2.0)
    if stage.cluster.scheduler.events - before > 100:
        raise Violation(f"{stage.cluster.scheduler.events - before} events in two idle seconds")
    stage.finish()


@schedule
def who_leads_no_more_sends_no_snapshot() -> None:
    """Found by the oracle with seed 30067: it was sent later, under the next leader's term."""
    stage = Stage(checkpoint_entries=4, retention_bytes=0)
    stage.elect(1)
    stage.produce(1, 2)
    stage.produce(1, 12)
    for _ in range(2):
        stage.node(1).compact()
        stage.run(1.0)
    node = stage.node(1)
    stage.group(1).snapshots_due.append(2)
    stage.group(1).transfer(2)
    node.driver.touch(GID)
    while stage.group(2).term == 1 or stage.group(1).term == 1:
        stage.cluster.scheduler.run_until(stage.cluster.scheduler.now + 0.001)
    node.running.maintenance.look()
    stage.finish()


def unsound(sound: Snapshot) -> list[Snapshot]:
    """Builds unsound states of a partition: with the sound one's checksum, and with their own."""
    states = (b"", b"garbage", bytes(4096), sound.state[:-3], sound.state[: len(sound.state) // 2])
    made = [replace(sound, state=state) for state in states]
    place = (sound.group, sound.index, sound.index_term)
    return [*made, *(replace(one, checksum=checksum_of(*place, one.state)) for one in made)]


@schedule
def rows_that_wait_for_a_full_disk_are_read() -> None:
    """Found by seed 153252: applied again after a restart, the row was in memory only and the entry
    on disk only."""
    stage = Stage()
    stage.elect(2)
    reply = stage.send(2, stage.batch(count=3))
    stage.run(0.2)
    assert reply.kind is Kind.APPENDED
    stage.crash(1)
    stage.node(1).disk.full = True
    stage.start(1)
    stage.run(1.0)
    partition = stage.node(1).partitions[GID]
    assert not stage.group(1).journal.is_in_memory(stage.group(1).applied_index)
    (batch,) = partition.reading(1, 600, 10).run()
    assert batch.base_offset == 0
    stage.finish()
