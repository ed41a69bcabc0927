"""librdkafka's transactions against three nodes, of which some are killed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

import oncelog
from cluster.kafka.messages import (
    ADD_OFFSETS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    AddOffsetsToTxnRequest,
    ApiVersionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from harness.local_cluster import QUICK, LocalCluster
from tests.integration.kafka.kafka_rig import admin, create, idempotent, read, servers
from tests.integration.waiting import TIMEOUT, eventually
from tests.unit.kafka.login_rig import Client


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = tmp_path_factory.mktemp("kafka")
    with LocalCluster(root, settings=QUICK, kafka=True) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> AdminClient:
    return admin(cluster)


def begun(cluster: LocalCluster, name: str, **settings: Any) -> Producer:
    """A producer with that transactional id; its predecessor is fenced."""
    producer = Producer(
        {"bootstrap.servers": servers(cluster), "transactional.id": name, "linger.ms": 0,
         "transaction.timeout.ms": 20_000, "log_level": 0}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )  # fmt: skip
    producer.init_transactions(TIMEOUT)
    return producer


def put(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> list[int | None]:
    """Produces, and waits for the acknowledgements; returns the offsets. Raises KafkaException."""
    found: list[int | None] = []
    faults: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            faults.append(error)
        found.append(message.offset())

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    assert producer.flush(TIMEOUT) == 0
    if faults:
        raise KafkaException(faults[0])
    return found


def transaction(producer: Producer, topic: str, *values: bytes, commit: bool = True) -> None:
    producer.begin_transaction()
    put(producer, topic, *values)
    if commit:
        producer.commit_transaction(TIMEOUT)
    else:
        producer.abort_transaction(TIMEOUT)


def values(cluster: LocalCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """All records of a partition; their offsets have no holes."""
    count = cluster.latest(topic, partition)
    found = read(cluster, topic, partition, count)
    assert [one.offset() for one in found] == list(range(count))
    return [one.value() for one in found]


def error_of(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        call()
    found = raised.value.args[0]
    assert isinstance(found, KafkaError)
    return found


def open_of(cluster: LocalCluster, name: str) -> Any:
    """The open transaction of a producer, as an operator sees it; None: none is."""
    with oncelog.Admin(bootstrap_servers=cluster.bootstrap) as ours:
        found = ours.list_transactions(producer_name=name)
    return next((one for one in found if one.state == "OPEN"), None)


def test_commits_show_and_aborts_do_not(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    """Also a commit behind aborts: the client does not send the aborted sequences again."""
    create(client, topic, partitions=2)
    producer = begun(cluster, topic)
    transaction(producer, topic, b"a", b"b")
    assert values(cluster, topic) == [b"a", b"b"]
    transaction(producer, topic, b"x", b"y", b"z", commit=False)
    transaction(producer, topic, b"x", commit=False)
    transaction(producer, topic, b"c")
    transaction(producer, topic, b"d", b"e")
    assert values(cluster, topic) == [b"a", b"b", b"c", b"d", b"e"]
    producer.begin_transaction()
    put(producer, topic, b"f")
    put(producer, topic, b"g", partition=1)
    assert len(values(cluster, topic)) == 5 and not values(cluster, topic, 1)
    producer.commit_transaction(TIMEOUT)
    assert values(cluster, topic)[5:] == [b"f"] and values(cluster, topic, 1) == [b"g"]


def test_an_abort_before_the_first_record_of_a_partition(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer = begun(cluster, topic)
    for number in range(3):
        transaction(producer, topic, b"x%d" % number, b"y", commit=False)
    transaction(producer, topic, b"a")
    transaction(producer, topic, b"b")
    assert values(cluster, topic) == [b"a", b"b"]


def test_staged_records_have_no_offset_yet(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer = begun(cluster, topic)
    producer.begin_transaction()
    assert put(producer, topic, b"a", b"b") == [None, None]
    producer.commit_transaction(TIMEOUT)


def test_a_second_instance_fences_the_first(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    zombie = begun(cluster, topic)
    transaction(zombie, topic, b"a")
    zombie.begin_transaction()
    put(zombie, topic, b"lost")
    successor = begun(cluster, topic)
    assert open_of(cluster, topic) is None
    transaction(successor, topic, b"b")
    zombie.produce(topic, b"lost")
    error = error_of(lambda: zombie.commit_transaction(TIMEOUT))
    assert error.fatal() or error.txn_requires_abort()
    assert error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
                            KafkaError.PRODUCER_FENCED), error  # fmt: skip
    transaction(successor, topic, b"c")
    assert values(cluster, topic) == [b"a", b"b", b"c"]


def test_the_time_of_a_transaction_is_over(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    """Nothing of it shows, whatever its owner still sends; its next instance goes on."""
    create(client, topic)
    producer = begun(cluster, topic, transaction_timeout_ms=4000)
    producer.begin_transaction()
    put(producer, topic, b"lost")
    eventually(lambda: open_of(cluster, topic) is None, "its time is over")
    producer.produce(topic, b"lost, too")
    error = error_of(lambda: producer.commit_transaction(TIMEOUT))
    assert not error.retriable()
    following = begun(cluster, topic)
    transaction(following, topic, b"a")
    assert values(cluster, topic) == [b"a"]


def test_a_timeout_above_the_limit_is_refused(cluster: LocalCluster, client: AdminClient) -> None:
    """The limit is Kafka's. A transaction that stays open keeps all later ones in memory."""
    most = 900_000
    begun(cluster, "longest", transaction_timeout_ms=most)
    error = error_of(lambda: begun(cluster, "longer", transaction_timeout_ms=most + 1))
    assert error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_offsets_are_committed_with_the_records(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    """Consume, transform, produce: an abort leaves both as they were."""
    source, sink = f"{topic}-in", f"{topic}-out"
    create(client, source)
    create(client, sink)
    plain = idempotent({"bootstrap.servers": servers(cluster)})
    put(plain, source, *(b"%d" % number for number in range(10)))
    settings = {
        "bootstrap.servers": servers(cluster),
        "group.id": topic,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    producer = begun(cluster, topic)
    part = TopicPartition(source, 0)

    def committed() -> int:
        (found,) = consumer.committed([part], TIMEOUT)
        return int(found.offset)

    for first, commit in ((0, False), (0, True), (5, False), (5, True)):
        consumer.assign([TopicPartition(source, 0, first)])
        producer.begin_transaction()
        read_now = consumer.consume(5, TIMEOUT)
        put(producer, sink, *(b"out " + (one.value() or b"") for one in read_now))
        position = TopicPartition(source, 0, first + 5)
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([position], group, TIMEOUT)
        if commit:
            producer.commit_transaction(TIMEOUT)
            assert committed() == first + 5
        else:
            producer.abort_transaction(TIMEOUT)
            assert committed() == (first or -1001)
    assert values(cluster, sink) == [b"out %d" % number for number in range(10)]
    consumer.close()


def test_a_member_that_reads_stable_offsets_leaves_its_own_transaction_open(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    """Kafka's answer, 88: its client asks again. A member of the next generation does not wait."""
    source = f"{topic}-in"
    create(client, source)
    create(client, topic)
    put(idempotent({"bootstrap.servers": servers(cluster)}), source, b"0", b"1")
    settings = {
        "bootstrap.servers": servers(cluster), "group.id": topic, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
    }  # fmt: skip
    old, new = Consumer(settings), Consumer(settings)
    producer = begun(cluster, topic)
    old.subscribe([source])
    assert len(old.consume(2, TIMEOUT)) == 2
    for offset in (1, 2):
        position = [TopicPartition(source, 0, offset)]
        producer.begin_transaction()
        put(producer, topic, b"%d" % offset)
        producer.send_offsets_to_transaction(position, old.consumer_group_metadata(), TIMEOUT)
        if offset == 1:
            error = error_of(lambda: old.committed([TopicPartition(source, 0)], 1.0))
            assert error.code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
            producer.commit_transaction(TIMEOUT)
            assert old.committed([TopicPartition(source, 0)], TIMEOUT)[0].offset == 1
    old.close()
    new.subscribe([source])
    assert [one.value() for one in new.consume(1, TIMEOUT)] == [b"1"], "it did not wait"
    error = error_of(lambda: producer.commit_transaction(TIMEOUT))
    assert error.txn_requires_abort(), error
    producer.abort_transaction(TIMEOUT)
    new.close()
    assert values(cluster, topic) == [b"1"]


def test_a_member_that_lost_its_partitions_commits_no_offsets(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    """Its transaction is aborted, and it goes on; the new member does the work once."""
    source, sink = f"{topic}-in", f"{topic}-out"
    create(client, source)
    create(client, sink)
    plain = idempotent({"bootstrap.servers": servers(cluster)})
    put(plain, source, b"0", b"1")
    settings = {
        "bootstrap.servers": servers(cluster), "group.id": topic, "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }  # fmt: skip
    old, new = Consumer(settings), Consumer(settings)
    producer = begun(cluster, topic)
    old.subscribe([source])
    assert [one.value() for one in old.consume(2, TIMEOUT)] == [b"0", b"1"]
    producer.begin_transaction()
    put(producer, sink, b"lost")
    before = old.consumer_group_metadata()
    old.close()
    new.subscribe([source])
    read_now = new.consume(2, TIMEOUT)
    assert [one.value() for one in read_now] == [b"0", b"1"]
    position = [TopicPartition(source, 0, 2)]
    error = error_of(lambda: producer.send_offsets_to_transaction(position, before, TIMEOUT))
    assert error.txn_requires_abort(), error
    producer.abort_transaction(TIMEOUT)
    producer.begin_transaction()
    put(producer, sink, *(b"out " + (one.value() or b"") for one in read_now))
    producer.send_offsets_to_transaction(position, new.consumer_group_metadata(), TIMEOUT)
    producer.commit_transaction(TIMEOUT)
    assert new.committed(position, TIMEOUT)[0].offset == 2
    assert values(cluster, sink) == [b"out 0", b"out 1"]
    new.close()


def test_a_delayed_end_does_not_reach_a_later_transaction(cluster: LocalCluster) -> None:
    """A client gives a call up with its connection. If the call comes after all, that one ends."""

    async def told() -> None:
        address = next(iter(cluster.kafka_addresses.values()))
        old, new = [await connected(address) for _ in range(2)]
        asked = InitProducerIdRequest("delayed", 20_000)
        leased = await old.call(INIT_PRODUCER_ID, 4, asked)
        assert not leased.error_code
        who = ("delayed", leased.producer_id, leased.producer_epoch)
        group = AddOffsetsToTxnRequest(*who, group_id="delayed")
        late = EndTxnRequest(*who, committed=True)
        for is_delayed in (False, True):
            for client in (new,) if is_delayed else (old, new):
                assert not (await client.call(ADD_OFFSETS_TO_TXN, 3, group)).error_code
            if is_delayed:
                old.ask(END_TXN, 3, late)
                assert await old.is_ended()
            assert not (await new.call(END_TXN, 3, late)).error_code
        new.writer.transport.abort()

    asyncio.run(told())


async def connected(address: str) -> Client:
    """A connection to a node, which has answered."""
    host, port = address.rsplit(":", 1)
    client = Client(*await asyncio.open_connection(host, int(port)))
    assert not (await client.call(API_VERSIONS, 3, ApiVersionsRequest("test", "1"))).error_code
    return client


def test_a_leader_is_killed_in_the_middle_of_a_transaction(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer = begun(cluster, topic)
    wanted: list[bytes] = []
    for turn in range(3):
        producer.begin_transaction()
        put(producer, topic, b"%d first" % turn)
        killed = cluster.leader(topic, 0)
        cluster.kill([killed])
        put(producer, topic, b"%d second" % turn)
        if turn != 1:
            producer.commit_transaction(TIMEOUT)
            wanted += [b"%d first" % turn, b"%d second" % turn]
        else:
            producer.abort_transaction(TIMEOUT)
        cluster.start_nodes([killed])
    assert values(cluster, topic) == wanted


def test_the_coordinator_is_killed_while_a_transaction_ends(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    """The client's repeat gets the outcome, and the next transaction begins."""
    create(client, topic, partitions=3)
    producer = begun(cluster, topic)
    for turn in range(4):
        producer.begin_transaction()
        for partition in range(3):
            put(producer, topic, b"%d" % turn, partition=partition)
        coordinator = client.list_topics(timeout=TIMEOUT).controller_id
        ending = threading.Thread(target=partial(producer.commit_transaction, TIMEOUT))
        ending.start()
        cluster.kill([coordinator])
        ending.join(TIMEOUT)
        assert not ending.is_alive()
        cluster.start_nodes([coordinator])
    for partition in range(3):
        assert values(cluster, topic, partition) == [b"0", b"1", b"2", b"3"]


def test_a_client_sees_its_transactions(
    cluster: LocalCluster, client: AdminClient, topic: str
) -> None:
    create(client, topic)
    producer = begun(cluster, topic)
    producer.begin_transaction()
    put(producer, topic, b"a")
    assert open_of(cluster, topic).producer_name == topic
    producer.abort_transaction(TIMEOUT)
    assert open_of(cluster, topic) is None
