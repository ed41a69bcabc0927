"""Damaged files of one node of three: found, named, never served, never spread.

The node ends with an error, or the replica concerned stops, or nothing that counts was hit. In each
case the other two go on, and the damaged node serves only right answers. Then the files are put
back as they were, the node catches up, and all replicas must be alike.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.api import batch, verdict
from harness.local_cluster import QUICK, LocalCluster
from harness.node_process import HarnessError
from oncelog.v1 import log_pb2
from tests.durability.damage import (
    ENTRIES,
    Damage,
    all_of,
    cut,
    entries_flip,
    flip,
    gone,
    of,
    of_file,
    record_flip,
    rewritten_checkpoints,
    store_gone,
    with_old_mark,
)
from tests.durability.workload import RECORDS, Workload, payload_of, problems, size_of

TOPIC = "damaged"
VICTIM = 3
# Few snapshots: a restart replays entries that it reads from the log. Leaders stay where they are.
SETTINGS = {
    **QUICK,
    "checkpoint_entries": 200,
    "preferred_leader_delay_ms": 3_600_000,
    "repair_after_ms": 0,
}
START_TIMEOUT = 20.0

OUT_OF_RANGE = log_pb2.PARTITION_ERROR_OFFSET_OUT_OF_RANGE
STORAGE = log_pb2.PARTITION_ERROR_STORAGE
NOT_LEADER = log_pb2.PARTITION_ERROR_NOT_LEADER
ENDS, STOPS, GOES_ON = "the node ends", "a replica stops", "the node goes on"


@dataclass(frozen=True, slots=True)
class Case:
    """A case of damage.

    closed: the node had been stopped in order, so tables hold all of the commit log. words: a
    pattern of the error's text. outcomes: allowed results where not every start must fail.
    """

    name: str
    damage: Damage
    closed: bool
    words: str = ""
    outcomes: tuple[str, ...] = (ENDS,)


# Found when the node opens its store: it ends, and has taken part in nothing.
AT_START = (
    Case("log-flip", record_flip(0.5), False, "synced writes are missing"),
    Case("log-flip-early", record_flip(0.01), False, "synced writes are missing"),
    Case("log-flip-old-mark", with_old_mark(record_flip(0.5)), False, "writes are missing"),
    Case("store-gone", store_gone, True, "db is missing: is a volume not mounted"),
    Case("log-cut", of(ENTRIES, cut), False, "synced writes are missing"),
    Case("log-gone", gone(ENTRIES), False, "synced writes are missing"),
    Case("entries-cut", all_of(ENTRIES, cut), True, "synced writes are missing"),
    Case("entries-gone", gone(ENTRIES), True, "synced writes are missing"),
    Case("sst-flip", all_of("rocksdb/*.sst", flip), True, "orrupt"),
    Case("sst-cut", all_of("rocksdb/*.sst", cut), True, "file size mismatch"),
    Case("sst-gone", gone("rocksdb/*.sst"), True, ".sst"),
    Case("manifest-flip", of("rocksdb/MANIFEST-*", flip), True, "orrupt"),
    Case("current-flip", of("rocksdb/CURRENT", flip), True, "CURRENT"),
    Case("current-cut", of("rocksdb/CURRENT", cut), True, "CURRENT"),
    Case("mark-flip", of_file("db/synced", flip), True, "synced is damaged"),
    Case("mark-cut", of_file("db/synced", cut), True, "synced is damaged"),
    Case("mark-empty", of_file("db/synced", cut, 0.0), True, "synced is damaged"),
    Case("metadata", rewritten_checkpoints(metadata=True), True, "group 0, index "),
    Case("identity-flip", of_file("identity.json", flip, 0.0), True, "identity.json"),
    Case("identity-cut", of_file("identity.json", cut), True, "identity.json"),
    Case("identity-empty", of_file("identity.json", cut, 0.0), True, "identity.json"),
)
# One for each kind of file; the others only by -m slow.
SOME = (
    "log-flip",
    "log-flip-old-mark",
    "store-gone",
    "log-gone",
    "sst-flip",
    "manifest-flip",
    "current-cut",
    "mark-empty",
    "identity-cut",
    "metadata",
)
# Found when the damaged part is read: perhaps never.
LATER = (
    Case("entries-flip", entries_flip, True, "", (STOPS, GOES_ON)),
    Case("entries-flip-killed", entries_flip, False, "", (STOPS, GOES_ON, ENDS)),
    Case("checkpoint", rewritten_checkpoints(metadata=False), True, "checksum", (STOPS,)),
)
HARMLESS = ("log-end", "manifest-cut")  # perhaps
LATER_SLOW = (
    # An older state of the tables, and the commit log from there on.
    Case("manifest-cut", of("rocksdb/MANIFEST-*", cut), True, "missing|MANIFEST", (ENDS, GOES_ON)),
    # The very end may be the index of applied entries, which no sync promised to anybody.
    Case("log-end", of(ENTRIES, cut, 0.999), False, "writes are missing", (ENDS, GOES_ON)),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Workload]]:
    with LocalCluster(tmp_path_factory.mktemp("damage"), settings=SETTINGS) as cluster:
        cluster.api(1).create_topic(TOPIC, 2, 3)
        workload = Workload(cluster, {TOPIC: 2}).start()
        workload.more(300)
        workload.stop()
        cluster.wait_level(TOPIC)
        yield cluster, workload


def stop(cluster: LocalCluster, *, in_order: bool) -> None:
    process = cluster.nodes[VICTIM]
    if not process.running:  # an earlier test failed
        cluster.start_nodes([VICTIM])
    if in_order:
        assert process.terminate() == 0
    else:
        process.kill()


def put_back(sound: Path, directory: Path) -> None:
    """Puts all files back but the newest start: the cluster lets no older copy of it in."""
    newest = directory / "db" / "lives"
    registrations = newest.read_bytes() if newest.exists() else b""
    shutil.rmtree(directory)
    shutil.copytree(sound, directory)
    if registrations:
        newest.write_bytes(registrations)


@pytest.mark.parametrize("some", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
def test_damage_that_ends_the_node(
    shared: tuple[LocalCluster, Workload], tmp_path: Path, closed: bool, some: bool
) -> None:
    cluster, workload = shared
    process, directory = cluster.nodes[VICTIM], cluster.nodes[VICTIM].spec.data_dir
    stop(cluster, in_order=closed)
    shutil.copytree(directory, tmp_path / "sound")
    others_go_on(cluster, workload)
    wrong = []
    for case in AT_START:
        if case.closed is not closed or (some and case.name not in SOME):
            continue
        what = case.damage(directory)
        seen = len(process.log_text())
        process.start()
        try:
            outcome = settled(cluster)
        finally:
            if process.running:
                process.kill()
            put_back(tmp_path / "sound", directory)
        said = process.log_text()[seen:]
        if outcome != ENDS or not re.search(case.words, said) or "Traceback" in said:
            wrong.append(f"{case.name}: {what}: {outcome}, wanted {case.words!r}\n{said}")
    assert wrong == []
    others_go_on(cluster, workload)
    cluster.start_nodes([VICTIM])
    assert problems(cluster, {TOPIC: 2}, workload.acks) == []


@pytest.mark.parametrize(
    "case",
    [*LATER, *(pytest.param(case, marks=pytest.mark.slow) for case in LATER_SLOW)],
    ids=lambda case: case.name,
)
def test_damage_that_is_found_later(
    shared: tuple[LocalCluster, Workload], case: Case, tmp_path: Path
) -> None:
    cluster, workload = shared
    process, directory = cluster.nodes[VICTIM], cluster.nodes[VICTIM].spec.data_dir
    stop(cluster, in_order=case.closed)
    shutil.copytree(directory, tmp_path / "sound")
    what = case.damage(directory)
    seen = len(process.log_text())
    process.start()
    try:
        outcome, served, refused = settled(cluster), 0, 0
        others_go_on(cluster, workload)
        if outcome == GOES_ON:
            served, refused = served_and_refused(cluster)
    finally:
        if process.running:
            process.kill()
        said = process.log_text()[seen:]
        put_back(tmp_path / "sound", directory)
        # The victim took part, and its files are older: only a new leader asks it for its log.
        cluster.kill([1, 2])
        cluster.start_nodes(cluster.nodes)
    if outcome == GOES_ON and ("replica not opened" in said or "replica stopped" in said):
        outcome = STOPS
    print(f"{what}: {outcome}, {served} batches right, {refused} refused\n{said[-1000:]}")
    assert outcome in case.outcomes, said
    assert outcome == GOES_ON or re.search(case.words, said)
    assert outcome != ENDS or "Traceback" not in said
    assert refused or outcome != GOES_ON or case.name in HARMLESS, "nothing was damaged"
    assert problems(cluster, {TOPIC: 2}, workload.acks) == []


def settled(cluster: LocalCluster) -> str:
    """Tells whether the victim ended or serves."""
    try:
        cluster.wait_serving([VICTIM], START_TIMEOUT)
    except HarnessError:
        assert not cluster.nodes[VICTIM].running, "the node neither serves nor ends"
        assert cluster.nodes[VICTIM].exit_code == 1
        return ENDS
    return GOES_ON


def others_go_on(cluster: LocalCluster, workload: Workload) -> None:
    """Writes a batch to each partition, led by one of the two others."""
    for partition in range(2):
        leader = cluster.leader(TOPIC, partition, not_in=[VICTIM])
        producer = cluster.api(leader).lease().producer_id
        payload = payload_of(producer, 0, size_of(0))
        one = batch(TOPIC, partition, producer, 0, payload, count=RECORDS)
        (result,) = cluster.api(leader).produce(one)
        assert verdict(result) == "APPENDED", result
        workload.acks.note((TOPIC, partition, producer, 0), result.base_offset)


def served_and_refused(cluster: LocalCluster) -> tuple[int, int]:
    """Asks the victim for each batch: the right one, or an error that names the damage."""
    served = refused = 0
    for partition in range(2):
        for one in cluster.api(1).stored(TOPIC, partition):
            records = cluster.api(VICTIM).fetch(
                TOPIC, partition, one.base_offset, any_replica=True, max_bytes=1
            )
            if records.error:
                # Behind, without this replica, or damaged.
                assert records.error in (OUT_OF_RANGE, NOT_LEADER, STORAGE), records
                assert records.error != STORAGE or records.message
                refused += records.error == STORAGE
            for theirs in records.batches:
                assert theirs == one
                served += 1
    return served, refused
