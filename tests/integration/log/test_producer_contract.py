"""The producer contract through the raw API: names, fencing, opens, resolve, retention, racers."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from harness.api import CALL_TIMEOUT, Batch, batch, reason, verdict
from harness.local_cluster import LocalCluster
from harness.replicas import compare
from oncelog.v1 import batch_pb2, cluster_pb2, log_pb2, producer_pb2

MakeCluster = Callable[..., LocalCluster]
ANY = -1  # epoch
COMMITTED, NEVER, NOT_YET = (
    log_pb2.RESOLUTION_COMMITTED,
    log_pb2.RESOLUTION_NEVER,
    log_pb2.RESOLUTION_NOT_YET,
)


def nonce() -> int:
    return int.from_bytes(os.urandom(8)) | 1


def lease(cluster: LocalCluster, name: str = "", node: int = 1, **fields: int) -> tuple[int, int]:
    """(producer id, epoch)"""
    request = producer_pb2.LeaseProducerRequest(producer_name=name, **fields)  # type: ignore[arg-type]
    answer = cluster.api(node).producers.LeaseProducer(request, timeout=CALL_TIMEOUT)
    return answer.producer_id, answer.epoch


def open_at(
    cluster: LocalCluster, node: int, topic: str, partitions: list[int], pid: int, epoch: int
) -> list[producer_pb2.OpenedPartition]:
    request = producer_pb2.OpenProducerRequest(
        producer_id=pid,
        epoch=epoch,
        partitions=[batch_pb2.TopicPartition(topic=topic, partition=p) for p in partitions],
    )
    answer = cluster.api(node).producers.OpenProducer(request, timeout=CALL_TIMEOUT)
    return list(answer.partitions)


def opened(
    cluster: LocalCluster, topic: str, partition: int, pid: int, epoch: int
) -> producer_pb2.OpenedPartition:
    """Opens at the partition's leader."""
    node = cluster.leader(topic, partition)
    (line,) = open_at(cluster, node, topic, [partition], pid, epoch)
    return line


def resolve(
    cluster: LocalCluster, topic: str, pid: int, epoch: int, sequence: int, node: int = 0
) -> log_pb2.ResolveSequenceResponse:
    request = log_pb2.ResolveSequenceRequest(
        topic=topic, partition=0, producer_id=pid, epoch=epoch, sequence=sequence
    )
    api = cluster.api(node or cluster.leader(topic, 0))
    answer: log_pb2.ResolveSequenceResponse = api.log.ResolveSequence(request, timeout=CALL_TIMEOUT)
    return answer


def store(cluster: LocalCluster, *batches: Batch) -> int:
    """Appends each; the offset of the last one."""
    offset = -1
    for one in batches:
        result = cluster.produce(one)
        assert verdict(result) == "APPENDED", result
        offset = result.base_offset
    return offset


# -- names --------------------------------------------------------------------------------------


def test_each_start_raises_the_epoch_once_however_often_it_asks(
    cluster: LocalCluster, topic: str
) -> None:
    first = nonce()
    pid, epoch = lease(cluster, topic, nonce=first)
    assert epoch == 0
    for node in (1, 2, 3, 1):
        assert lease(cluster, topic, node=node, nonce=first) == (pid, 0)
    assert lease(cluster, topic, nonce=nonce()) == (pid, 1)
    assert lease(cluster, topic) == (pid, 2), "no nonce, no repeat"


def test_a_lease_is_renewed_only_by_the_one_who_holds_it(cluster: LocalCluster, topic: str) -> None:
    pid, epoch = lease(cluster, topic)
    assert lease(cluster, topic, held_producer_id=pid, held_epoch=epoch) == (pid, 1)
    assert lease(cluster, topic) == (pid, 2), "another instance starts"
    for held in (0, 1, 7):
        with pytest.raises(grpc.RpcError) as caught:
            lease(cluster, topic, node=2, held_producer_id=pid, held_epoch=held)
        assert reason(caught.value) == "FENCED"
    assert lease(cluster, topic, held_producer_id=pid, held_epoch=2) == (pid, 3)


def test_two_instances_of_a_name_exactly_one_goes_on(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid, old = lease(cluster, topic)
    line = opened(cluster, topic, 0, pid, old)
    assert (line.error, line.last_sequence, line.last_offset) == ("", -1, -1)
    store(cluster, batch(topic, 0, pid, 0, b"a", epoch=old, count=3))
    same, new = lease(cluster, topic, node=2)
    assert (same, new) == (pid, old + 1)
    line = opened(cluster, topic, 0, pid, new)
    assert (line.error, line.last_sequence, line.last_offset) == ("", 2, 2)
    assert line.current_epoch == new
    result = cluster.produce(batch(topic, 0, pid, 3, b"zombie", epoch=old))
    assert (verdict(result), result.current_epoch) == ("FENCED", new)
    line = opened(cluster, topic, 0, pid, old)
    assert (line.error, line.current_epoch) == ("FENCED", new)
    assert "was replaced by" in line.message
    assert store(cluster, batch(topic, 0, pid, 3, b"b", epoch=new)) == 3
    # Opening once more changes nothing and tells where to go on.
    line = opened(cluster, topic, 0, pid, new)
    assert (line.error, line.last_sequence, line.last_offset) == ("", 3, 3)


def test_an_open_fences_ten_idle_partitions_at_once(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 10, 3)
    pid, old = lease(cluster, topic)
    for number in range(5):
        store(cluster, batch(topic, number, pid, 0, b"x", epoch=old, count=number + 1))
    _, new = lease(cluster, topic)
    todo = set(range(10))
    for node in cluster.nodes:
        for line in open_at(cluster, node, topic, list(range(10)), pid, new):
            if line.error == "NOT_LEADER":
                assert line.leader_address == cluster.addresses[line.leader_id]
                assert line.leader_id != node
                continue
            assert line.error == "", line
            written = line.partition < 5
            assert line.last_sequence == (line.partition if written else -1)
            assert line.last_offset == line.last_sequence
            todo.remove(line.partition)
    assert not todo
    for number in range(10):
        zombie = batch(topic, number, pid, 0, b"x", epoch=old, count=number + 1)
        result = cluster.produce(zombie)
        assert (verdict(result), result.current_epoch) == ("FENCED", new)
    info = cluster.describe_topic(topic)
    assert sum(part.high_watermark for part in info.partitions) == 1 + 2 + 3 + 4 + 5
    cluster.wait_level(topic)
    assert compare({n: cluster.api(n) for n in cluster.nodes}, topic, range(10)) == []


def test_open_of_what_cannot_be_opened(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid, _ = lease(cluster)
    node = cluster.leader(topic, 0)
    lines = open_at(cluster, node, topic, [0, 1, -1], pid, 0)
    assert [line.error for line in lines] == ["", *["UNKNOWN_TOPIC_OR_PARTITION"] * 2]
    # Ids that are reserved and not leased, an epoch that nobody leased, an id never issued.
    for unleased in ((pid + 1, 0), (pid, 1), (1 << 40, 0)):
        (line,) = open_at(cluster, node, topic, [0], *unleased)
        assert line.error == "UNKNOWN_PRODUCER"
        assert line.message.startswith("lease_token")
    for bad in ((0, 0), (-1, 0), (pid, -1)):
        with pytest.raises(grpc.RpcError) as caught:
            open_at(cluster, node, topic, [0], *bad)
        assert reason(caught.value) == "INVALID_REQUEST"


def test_fence_producer_shuts_out_where_nobody_opens(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid, epoch = lease(cluster, topic)
    store(cluster, batch(topic, 0, pid, 0, b"a", epoch=epoch))
    # The call goes to the partition's leader, so that it has heard of it.
    api = cluster.api(cluster.leader(topic, 0))
    fenced = api.producers.FenceProducer(
        producer_pb2.FenceProducerRequest(producer_name=topic), timeout=CALL_TIMEOUT
    )
    assert (fenced.producer_id, fenced.epoch) == (pid, epoch + 1)
    result = cluster.produce(batch(topic, 0, pid, 1, b"b", epoch=epoch))
    assert (verdict(result), result.current_epoch) == ("FENCED", epoch + 1)
    assert opened(cluster, topic, 0, pid, epoch).error == "FENCED"
    # Stored records stay duplicates until somebody opens.
    assert verdict(cluster.produce(batch(topic, 0, pid, 0, b"a", epoch=epoch))) == "DUPLICATE"
    answer = resolve(cluster, topic, pid, epoch, 1)
    assert answer.resolution == NEVER, "resolving made sure that it cannot come any more"
    assert resolve(cluster, topic, pid, epoch, 0).resolution == COMMITTED
    assert verdict(cluster.produce(batch(topic, 0, pid, 0, b"a", epoch=epoch))) == "FENCED"


def test_a_delayed_retry_of_the_old_epoch_after_the_new_one_began(
    cluster: LocalCluster, topic: str
) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid, old = lease(cluster, topic)
    opened(cluster, topic, 0, pid, old)
    first = batch(topic, 0, pid, 0, b"old", epoch=old)
    store(cluster, first)
    lost = batch(topic, 0, pid, 1, b"never arrived", epoch=old)
    _, new = lease(cluster, topic)
    assert opened(cluster, topic, 0, pid, new).last_sequence == 0
    # The same sequence in two epochs.
    assert store(cluster, batch(topic, 0, pid, 1, b"new", epoch=new)) == 1
    for late in (first, lost):
        result = cluster.produce(late)
        assert (verdict(result), result.current_epoch) == ("FENCED", new)
    assert resolve(cluster, topic, pid, old, 0).offset == 0
    assert resolve(cluster, topic, pid, old, 1).resolution == NEVER
    assert [b.payload for b in cluster.api(1).stored(topic, 0)] == [b"old", b"new"]


def test_an_open_outlives_its_leader(make_cluster: MakeCluster) -> None:
    settings = {"election_timeout_ms": 500, "heartbeat_ms": 50, "preferred_leader_delay_ms": 60000}
    cluster = make_cluster(settings=settings)
    cluster.api(1).create_topic("t", 1, 3)
    pid, epoch = lease(cluster, "n")
    # The bytes are the same in each epoch: only the fence tells them apart.
    for number in range(4):
        assert store(cluster, batch("t", 0, pid, number, b"x", epoch=epoch)) == number
        pid, epoch = lease(cluster, "n", node=cluster.running[0])
        leader = cluster.leader("t", 0)
        (line,) = open_at(cluster, leader, "t", [0], pid, epoch)
        assert (line.error, line.last_sequence, line.last_offset) == ("", number, number)
        cluster.kill([leader])
        result = cluster.produce(batch("t", 0, pid, number + 1, b"x", epoch=epoch - 1))
        assert (verdict(result), result.current_epoch) == ("FENCED", epoch)
        assert opened(cluster, "t", 0, pid, epoch).last_sequence == number
        cluster.start()
    cluster.wait_level("t")
    assert compare({n: cluster.api(n) for n in cluster.nodes}, "t", [0]) == []


def test_a_bump_without_a_quorum_raises_the_epoch_by_one_at_most(
    make_cluster: MakeCluster,
) -> None:
    settings = {"election_timeout_ms": 500, "heartbeat_ms": 50, "request_timeout_ms": 1000}
    cluster = make_cluster(settings=settings)
    pid, epoch = lease(cluster, "n")
    controller = cluster.api(1).describe().controller_id
    cluster.kill(node for node in cluster.nodes if node != controller)
    one = nonce()
    request = producer_pb2.LeaseProducerRequest(producer_name="n", nonce=one)
    stub = cluster.api(controller).producers
    attempts = [stub.LeaseProducer.future(request, timeout=CALL_TIMEOUT) for _ in range(300)]
    reasons = set()
    for attempt in attempts:
        error = attempt.exception()
        assert error is not None
        reasons.add(reason(error))
    assert reasons <= {"NOT_READY", "TIMEOUT", "REQUEST_TIMEOUT", "NOT_LEADER"}, reasons
    cluster.start()
    assert lease(cluster, "n", nonce=one) == (pid, epoch + 1)
    assert lease(cluster, "n") == (pid, epoch + 2)


# -- resolve and old duplicates -----------------------------------------------------------------


def test_resolve_finds_what_the_map_has_forgotten(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid, old = lease(cluster, topic)
    # Two records for each batch, a gap in the sequences at 4..9, others in between.
    first = [batch(topic, 0, pid, n, b"%d" % n, epoch=old, count=2) for n in (0, 2)]
    gap = batch(topic, 0, pid, 10, b"10", epoch=old, count=2, prev=3)
    later = [batch(topic, 0, pid, n, b"%d" % n, epoch=old, count=2) for n in range(12, 30, 2)]
    sent = [*first, gap, *later]
    for one in sent:
        store(cluster, one, batch(topic, 0, 0, 0, b"noise"))
    for number, one in enumerate(sent):
        sequence = one.header.base_sequence
        for at in (0, 1):
            answer = resolve(cluster, topic, pid, old, sequence + at)
            assert (answer.resolution, answer.offset) == (COMMITTED, 3 * number + at), answer
            assert (answer.last_sequence, answer.current_epoch) == (29, old)
        result = cluster.produce(one)
        assert (verdict(result), result.base_offset) == ("DUPLICATE", 3 * number)
    for sequence in (4, 9):
        assert resolve(cluster, topic, pid, old, sequence).resolution == NEVER, "in the gap"
    assert resolve(cluster, topic, pid, old, 30).resolution == NOT_YET
    assert resolve(cluster, topic, pid, old + 1, 0).resolution == NOT_YET
    # Older than the window: other content, another cut, a declared gap.
    other = batch(topic, 0, pid, 2, b"other", epoch=old, count=2)
    assert verdict(cluster.produce(other)) == "SEQUENCE_CONFLICT"
    cut = batch(topic, 0, pid, 1, b"cut", epoch=old, count=3)
    assert verdict(cluster.produce(cut)) == "OUT_OF_ORDER"
    absent = batch(topic, 0, pid, 5, b"absent", epoch=old)
    assert verdict(cluster.produce(absent)) == "OUT_OF_ORDER"
    # A new chain in a new epoch erases the old one from the map, not from the log.
    _, new = lease(cluster, topic)
    store(cluster, batch(topic, 0, pid, 0, b"new", epoch=new))
    answer = resolve(cluster, topic, pid, old, 11)
    assert (answer.resolution, answer.offset) == (COMMITTED, 7)
    assert resolve(cluster, topic, pid, old, 30).resolution == NEVER
    assert resolve(cluster, topic, pid, old, 5).resolution == NEVER
    answer = resolve(cluster, topic, pid, new, 0)
    assert (answer.resolution, answer.offset) == (COMMITTED, 3 * len(sent))
    # Without an epoch the newest that stored it answers: from the map, and from the log.
    for sequence, epoch, offset in ((0, new, 3 * len(sent)), (1, old, 1), (11, old, 7)):
        answer = resolve(cluster, topic, pid, ANY, sequence)
        assert (answer.resolution, answer.epoch, answer.offset) == (COMMITTED, epoch, offset)
    for sequence in (5, 30):
        answer = resolve(cluster, topic, pid, ANY, sequence)
        assert (answer.resolution, answer.epoch) == (NOT_YET, new), "the new epoch may store it"


def test_resolve_without_an_epoch_knows_what_the_former_stored(
    cluster: LocalCluster, topic: str
) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid, old = lease(cluster, topic)
    store(cluster, batch(topic, 0, pid, 0, b"old", epoch=old, count=3))
    _, new = lease(cluster, topic)
    opened(cluster, topic, 0, pid, new)
    for sequence, expected in ((2, (COMMITTED, old, 2)), (3, (NOT_YET, new, -1))):
        answer = resolve(cluster, topic, pid, ANY, sequence)
        assert (answer.resolution, answer.epoch, answer.offset) == expected
        assert answer.current_epoch == new
    store(cluster, batch(topic, 0, pid, 3, b"new", epoch=new, prev=2))
    for sequence, expected in ((2, (COMMITTED, old, 2)), (3, (COMMITTED, new, 3))):
        answer = resolve(cluster, topic, pid, ANY, sequence)
        assert (answer.resolution, answer.epoch, answer.offset) == expected
    leased, _ = lease(cluster)
    assert resolve(cluster, topic, leased, ANY, 0).resolution == NOT_YET, "it wrote nothing here"


def test_resolve_of_what_cannot_be_asked(cluster: LocalCluster, topic: str) -> None:
    cluster.api(1).create_topic(topic, 1, 3)
    pid, _ = lease(cluster)
    leader = cluster.leader(topic, 0)
    assert resolve(cluster, topic, pid, 0, 0).resolution == NOT_YET
    cases = [
        (topic, pid, 0, leader % 3 + 1, "NOT_LEADER"),
        ("no-such-topic", pid, 0, leader, "UNKNOWN_TOPIC_OR_PARTITION"),
        (topic, 1 << 40, 0, leader, "UNKNOWN_PRODUCER"),
        (topic, 0, 0, leader, "INVALID_REQUEST"),
        (topic, pid, -1, leader, "INVALID_REQUEST"),
    ]
    for name, producer, sequence, node, expected in cases:
        with pytest.raises(grpc.RpcError) as caught:
            resolve(cluster, name, producer, 0, sequence, node)
        assert reason(caught.value) == expected, (name, producer, sequence)


# -- retention, restarts ------------------------------------------------------------------------


def wait_deleted(cluster: LocalCluster, offset: int) -> None:
    """Waits until every replica has dropped all below `offset`, which is its high watermark."""
    for node in cluster.nodes:
        api = cluster.api(node)
        while api.topic("t").partitions[0].log_start_offset < offset:
            api.fetch("t", 0, offset, any_replica=True, min_bytes=1, max_wait_ms=50)
        assert not list(api.stored("t", 0))


def test_a_retry_after_retention_and_a_restart_of_all_nodes_is_a_duplicate(
    make_cluster: MakeCluster,
) -> None:
    settings = {
        "election_timeout_ms": 500,
        "heartbeat_ms": 50,
        "retention_check_ms": 100,
        "checkpoint_entries": 20,
    }
    cluster = make_cluster(settings=settings)
    cluster.api(1).create_topic("t", 1, 3, retention_bytes=1)
    pid, epoch = lease(cluster)
    name_pid, name_epoch = lease(cluster, "n")
    sent = [batch("t", 0, pid, n, b"%d" % n) for n in range(30)]
    store(cluster, *sent)
    named = batch("t", 0, name_pid, 0, b"named", epoch=name_epoch)
    store(cluster, named)
    cluster.wait_level("t")
    wait_deleted(cluster, 31)
    cluster.kill(cluster.nodes)
    cluster.start()
    for number in range(25, 30):
        result = cluster.produce(sent[number])
        assert (verdict(result), result.base_offset) == ("DUPLICATE", number)
    result = cluster.produce(sent[3])
    assert (verdict(result), result.base_offset) == ("DUPLICATE", -1), "its place is not known"
    assert verdict(cluster.produce(named)) == "DUPLICATE"
    answer = resolve(cluster, "t", pid, epoch, 3)
    assert (answer.resolution, answer.offset) == (COMMITTED, -1)
    assert store(cluster, batch("t", 0, pid, 30, b"next")) == 31
    wait_deleted(cluster, 32)
    assert compare({n: cluster.api(n) for n in cluster.nodes}, "t", [0]) == []


def test_a_full_map_throttles_new_producers_only(make_cluster: MakeCluster) -> None:
    settings = {"election_timeout_ms": 500, "heartbeat_ms": 50, "last_seen_capacity": 100}
    cluster = make_cluster(settings=settings, metrics=True)
    cluster.api(1).create_topic("t", 1, 3)
    pids = [lease(cluster)[0] for _ in range(101)]
    api = cluster.api(cluster.leader("t", 0))
    results = api.produce(*(batch("t", 0, pid, 0, b"x") for pid in pids[:100]))
    assert {verdict(result) for result in results} == {"APPENDED"}
    result = cluster.produce(batch("t", 0, pids[100], 0, b"x"))
    assert verdict(result) == "THROTTLED"
    assert "remembers 100 producers" in result.message
    assert opened(cluster, "t", 0, pids[100], 0).error == "THROTTLED"
    assert verdict(cluster.produce(batch("t", 0, pids[0], 1, b"x"))) == "APPENDED"
    assert verdict(cluster.produce(batch("t", 0, 0, 0, b"x"))) == "APPENDED"
    # Leaders count, so a new leader comes to the same result.
    leader = cluster.leader("t", 0)
    cluster.kill([leader])
    assert verdict(cluster.produce(batch("t", 0, pids[100], 0, b"x"))) == "THROTTLED"
    assert verdict(cluster.produce(batch("t", 0, pids[5], 0, b"x"))) == "DUPLICATE"
    metric = 'oncelog_producers_throttled_total{topic="t",partition="0"} 1'
    address = cluster.metrics_addresses[cluster.leader("t", 0)]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=CALL_TIMEOUT) as page:
        assert metric in page.read().decode()


# -- conditional publish ------------------------------------------------------------------------

RACERS, OFFSETS = 50, 8


def test_one_of_fifty_racers_wins_each_offset_across_leader_changes(
    make_cluster: MakeCluster,
) -> None:
    settings = {"election_timeout_ms": 500, "heartbeat_ms": 50, "preferred_leader_delay_ms": 60000}
    cluster = make_cluster(settings=settings)
    cluster.api(1).create_topic("t", 1, 3, expected_offsets=cluster_pb2.EXPECTED_OFFSETS_REQUIRED)
    pids = [lease(cluster)[0] for _ in range(RACERS)]
    sequences = dict.fromkeys(pids, 0)

    def race(pid: int, offset: int) -> str:
        one = batch("t", 0, pid, sequences[pid], b"%d/%d" % (pid, offset), expected_offset=offset)
        while True:
            # A batch with an unknown outcome is retried unchanged.
            try:
                result = cluster.produce(one)
            except grpc.RpcError:
                continue
            if verdict(result) != "TIMEOUT":
                break
        if verdict(result) in ("APPENDED", "DUPLICATE"):
            assert result.base_offset == offset
            sequences[pid] += 1
        else:
            assert result.next_offset == offset + 1, result
        return verdict(result)

    cluster.leader("t", 0)
    with ThreadPoolExecutor(RACERS + 1) as pool:
        for offset in range(OFFSETS):
            racing = [pool.submit(race, pid, offset) for pid in pids]
            if offset in (2, 5):
                cluster.kill([cluster.leader("t", 0)])
            verdicts = [one.result() for one in racing]
            won = [v for v in verdicts if v in ("APPENDED", "DUPLICATE")]
            assert len(won) == 1, (offset, verdicts)
            assert verdicts.count("OFFSET_MISMATCH") == RACERS - 1
            cluster.start()
    stored = list(cluster.api(1).stored("t", 0))
    assert [one.base_offset for one in stored] == list(range(OFFSETS))
    missing = cluster.produce(batch("t", 0, pids[0], sequences[pids[0]], b"x"))
    assert verdict(missing) == "INVALID_BATCH"
