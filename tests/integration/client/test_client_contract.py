"""Conditions, sequences and names through the client, against three real nodes without faults."""

from __future__ import annotations

import pytest

from harness.local_cluster import LocalCluster
from oncelog import (
    Admin,
    ExpectedOffsets,
    FencedError,
    InvalidBatchError,
    InvalidRequestError,
    OffsetMismatchError,
    Producer,
    ProducerEpoch,
    ProducerIdentity,
    SequenceConflictError,
    TopicConfig,
    TopicPartition,
)
from tests.integration.records import TIMEOUT, read_all
from tests.integration.waiting import eventually

# --- conditional publish, application-controlled sequences -----------------------------------


def test_conditional_publish(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    first = producer.send(topic, b"0", partition=0, expected_offset=0)
    # In flight before the first is acknowledged: the expected end counts records in flight.
    second = producer.send(topic, b"1", partition=0, expected_offset=1)
    assert (first.result(TIMEOUT).offset, second.result(TIMEOUT).offset) == (0, 1)
    with pytest.raises(OffsetMismatchError) as caught:
        producer.send(topic, b"stale", partition=0, expected_offset=1).result(TIMEOUT)
    assert (caught.value.next_offset, caught.value.outcome) == (2, "not_stored")
    late = producer.send_batch(topic, 0, [b"2", b"3"], expected_offset=2).result(TIMEOUT)
    assert late.base_offset == 2
    refused = producer.send_batch(topic, 0, [b"x", b"y"], expected_offset=3)
    assert isinstance(refused.exception(TIMEOUT), OffsetMismatchError)
    # The refused ones consumed no sequence.
    assert producer.send(topic, b"4", partition=0).result(TIMEOUT).sequence == 4
    assert [r.value for r in read_all(cluster, topic)] == [b"%d" % n for n in range(5)]


def test_a_refused_batch_in_the_middle_of_five_in_flight(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    # A leader that is not ready answers NOT_READY: then the client cannot know the fate of the
    # other batches in flight, and rightly gives up those behind the refused one.
    producer.send(topic, b"ready", partition=0).result(TIMEOUT)
    futures = [
        producer.send_batch(topic, 0, [b"%d" % n], expected_offset=99 if n == 2 else None)
        for n in range(5)
    ]
    assert isinstance(futures[2].exception(TIMEOUT), OffsetMismatchError)
    good = [futures[n].result(TIMEOUT) for n in (0, 1, 3, 4)]
    assert [m.base_offset for m in good] == [1, 2, 3, 4]
    assert [r.value for r in read_all(cluster, topic)] == [b"ready", b"0", b"1", b"3", b"4"]


def test_expected_offsets_required_and_ignored(
    cluster: LocalCluster, admin: Admin, producer: Producer, topic: str
) -> None:
    required = TopicConfig(expected_offsets=ExpectedOffsets.REQUIRED)
    admin.create_topic(topic, 1, 3, required)
    error = producer.send(topic, b"without").exception(TIMEOUT)
    assert isinstance(error, InvalidBatchError), error
    assert "expected_offset" in str(error)
    assert producer.send(topic, b"with", expected_offset=0).result(TIMEOUT).offset == 0
    admin.alter_topic(topic, TopicConfig(expected_offsets=ExpectedOffsets.IGNORED))
    # The leader hears of it a moment later than the node that got the request.
    eventually(
        lambda: producer.send(topic, b"any", expected_offset=77).exception(TIMEOUT) is None,
        "expected offsets are ignored",
    )
    assert [r.value for r in read_all(cluster, topic)] == [b"with", b"any"]


def test_conditional_publish_without_idempotence(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    with Producer(
        bootstrap_servers=cluster.bootstrap, enable_idempotence=False, linger_ms=0
    ) as producer:
        assert producer.send(topic, b"0", expected_offset=0).result(TIMEOUT).offset == 0
        error = producer.send(topic, b"0", expected_offset=0).exception(TIMEOUT)
        assert isinstance(error, OffsetMismatchError)
        assert error.next_offset == 1


def test_application_controlled_sequences(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2, 3)
    lease = admin.lease_producer()
    tp = TopicPartition(topic, 0)

    def identity(start: int) -> ProducerIdentity:
        return ProducerIdentity(lease.producer_id, lease.epoch, {tp: start}, lease.lease_token)

    numbers = [10, 20, 21, 40]
    with Producer(
        bootstrap_servers=cluster.bootstrap, resume_from=identity(0), linger_ms=0
    ) as producer:
        assert producer.position(topic, 0) == -1
        for number in numbers:
            stored = producer.send(
                topic, b"%d" % number, partition=0, sequence=number, timestamp_ms=number
            )
            assert stored.result(TIMEOUT).sequence == number
        assert producer.position(topic, 0) == 40
        with pytest.raises(InvalidRequestError, match="not above the last one"):
            producer.send(topic, b"back", partition=0, sequence=40)
        with pytest.raises(InvalidRequestError, match="sequence is missing"):
            producer.send(topic, b"none", partition=0)
        assert producer.send(topic, b"own", partition=1).result(TIMEOUT).sequence == 0
    # A second run sends the last record again, with the same bytes and timestamp: it is recognised,
    # and the answer has the original's offset.
    with Producer(bootstrap_servers=cluster.bootstrap, resume_from=identity(22)) as producer:
        again = producer.send(topic, b"40", partition=0, sequence=40, timestamp_ms=40).result(
            TIMEOUT
        )
        assert (again.duplicate, again.offset) == (True, 3)
        ahead = producer.send_batch(topic, 0, [b"41", b"60"], sequences=[41, 60]).result(TIMEOUT)
        assert (ahead.base_sequence, ahead.last_sequence, ahead.base_offset) == (41, 60, 4)
    with Producer(
        bootstrap_servers=cluster.bootstrap, resume_from=identity(41), linger_ms=0
    ) as producer:
        error = producer.send_batch(topic, 0, [b"4!", b"60"], sequences=[41, 60])
        assert isinstance(error.exception(TIMEOUT), SequenceConflictError)
        with pytest.raises(SequenceConflictError):  # it says so again: the producer is done
            producer.send(topic, b"after", partition=0, sequence=61)
    values = [r.value for r in read_all(cluster, topic) if r.partition == 0]
    assert values == [b"10", b"20", b"21", b"40", b"41", b"60"]


# --- names -------------------------------------------------------------------------------


def test_a_name_goes_on_where_it_stopped(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2, 3)
    identities = []
    for run in range(3):
        with Producer(
            bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0
        ) as producer:
            assert producer.position(topic, 0) == run * 10 - 1
            assert producer.position(topic, 1) == -1
            stored = [producer.send(topic, b"%d" % n, partition=0) for n in range(10)]
            assert [f.result(TIMEOUT).sequence for f in stored] == list(
                range(run * 10, run * 10 + 10)
            )
            identities.append((producer.producer_id, producer.epoch))
    assert len({pid for pid, _ in identities}) == 1
    epochs = [epoch for _, epoch in identities]
    assert epochs == [epochs[0], (epochs[0] or 0) + 1, (epochs[0] or 0) + 2]
    assert len(read_all(cluster, topic)) == 30


def test_of_two_instances_with_one_name_the_later_one_goes_on(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1, 3)
    earlier = Producer(bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0)
    first = earlier.send(topic, b"earlier").result(TIMEOUT)
    with Producer(bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0) as later:
        # The later producer has written nothing yet, and the earlier one is fenced all the same.
        assert later.position(topic, 0) == first.sequence
        error = earlier.send(topic, b"zombie").exception(TIMEOUT)
        assert isinstance(error, FencedError), error
        assert error.current_epoch == later.epoch == first.epoch + 1
        assert "another producer has taken over" in str(error)
        with pytest.raises(FencedError):
            earlier.send(topic, b"zombie")
        assert later.send(topic, b"later").result(TIMEOUT).sequence == first.sequence + 1
    earlier.close()
    assert [r.value for r in read_all(cluster, topic)] == [b"earlier", b"later"]


def test_a_name_that_is_fenced_by_hand(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1, 3)
    producer = Producer(bootstrap_servers=cluster.bootstrap, producer_name=topic, linger_ms=0)
    stored = producer.send(topic, b"before").result(TIMEOUT)
    assert admin.fence_producer(topic) == ProducerEpoch(stored.producer_id, stored.epoch + 1)

    def fenced() -> bool:
        try:
            return isinstance(producer.send(topic, b"x").exception(TIMEOUT), FencedError)
        except FencedError:
            return True

    eventually(fenced, "the partition's leader has heard of it")
    producer.close()
