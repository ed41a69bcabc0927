"""The programs over transactions that people will copy, killed and stopped again and again.

`examples/bank.py`: every transfer is whole, and no reported one is missing or there twice.
`examples/pipeline.py`: each input record has its output exactly once, against any zombie.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from examples.bank import Auditor, Posting
from examples.pipeline import Pipeline, transform
from harness.local_cluster import LocalCluster
from oncelog import Admin, FencedMemberError, Producer, Record, TransactionAbortedError
from tests.integration.client.test_client_programs import Program, rows
from tests.integration.conftest import MakeCluster
from tests.integration.waiting import eventually


def more_lines(programs: list[Program], count: int) -> None:
    """Waits until each has written so many more; none may end."""
    wanted = [len(program.lines) + count for program in programs]
    for program, target in zip(programs, wanted, strict=True):
        eventually(
            lambda program=program, target=target: (  # type: ignore[misc]
                len(program.lines) >= target or program.process.poll() is not None
            ),
            "it goes on",
            timeout=60,
        )
        assert program.process.poll() is None, program.wait()


def ended(programs: list[Program]) -> None:
    for program in programs:
        if program.process.poll() is None:
            program.kill()


def test_no_money_is_lost_or_made(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster()

    def teller(name: str) -> Program:
        return Program(
            "-m", "examples.bank", "--bootstrap", cluster.bootstrap, "--topic", topic,
            "transfer", "--teller", name, "--times", "1000000",
        )  # fmt: skip

    running = [teller("anna"), teller("bert")]
    killed: list[Program] = []
    auditor = None
    try:
        more_lines(running, 5)
        auditor = Auditor(cluster.bootstrap, topic)
        killed.append(running[0])
        running[0].kill()
        auditor.audit()
        running[0] = teller("anna")
        more_lines(running, 5)
        leader = cluster.leader(topic, 0)
        cluster.kill([leader])
        auditor.look()
        cluster.start_nodes([leader])
        more_lines(running, 5)
        ended(running)
        # The next owners of their names abort the transactions of the killed programs.
        for name in ("anna", "bert"):
            successor = teller(name)
            killed.append(successor)
            more_lines([successor], 1)
            ended([successor])
        killed += running
        said = auditor.audit()
        while "0 on their way" not in said:
            said = auditor.audit()
    finally:
        ended([*running, *killed])
        if auditor is not None:
            auditor.close()
    made = sum(program.lines.count("made") for program in killed)
    assert made <= auditor.transfers <= made + len(killed), "each kill hides one answer at most"
    log = rows(cluster, topic)
    names = Counter(Posting.of(row[0]).transfer for part in log.values() for row in part)
    assert set(names.values()) == {3}


def output_of(cluster: LocalCluster, target: str) -> Counter[tuple[bytes, bytes]]:
    return Counter((row[1], row[0]) for part in rows(cluster, target).values() for row in part)


def test_each_record_has_its_output_once(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster()
    target = f"{topic}-out"
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=3)
        admin.create_topic(target, partitions=2)
    expected: Counter[tuple[bytes, bytes]] = Counter()

    def worker(name: str) -> Program:
        return Program(
            "-m", "examples.pipeline", "--bootstrap", cluster.bootstrap, "--source", topic,
            "--target", target, "--group", topic, "--worker", name, "--session-ms", "3000",
        )  # fmt: skip

    def feed(count: int) -> None:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(count):
                where = number % 3
                words = [b"w%d" % word for word in range(number % 4 + 1)]
                stored = producer.send(topic, b" ".join(words), partition=where)
                place = b"%d/%d" % (where, stored.result().offset)
                expected.update((word, place) for word in words)

    def written(wanted: Callable[[], bool]) -> None:
        eventually(wanted, "it is written", timeout=60)

    running = [worker("a"), worker("b")]
    try:
        feed(60)
        written(lambda: sum(output_of(cluster, target).values()) > 20)
        zombie = running[0]
        zombie.process.send_signal(signal.SIGSTOP)
        feed(60)
        # The other program gets its partitions when its session is over.
        written(lambda: output_of(cluster, target) == expected)
        zombie.process.send_signal(signal.SIGCONT)
        feed(30)
        running[1].kill()
        running[1] = worker("b")
        cluster.kill([cluster.leader(target, 0)])
        cluster.start_nodes([node for node in cluster.nodes if node not in cluster.running])
        feed(30)
        written(lambda: output_of(cluster, target) == expected)
    finally:
        ended(running)
    assert output_of(cluster, target) == expected


def test_a_rebalance_in_the_middle_drops_what_the_old_owner_has_staged(
    cluster: LocalCluster, topic: str
) -> None:
    """Case 25 with members of a group: each record has its output once."""
    target, count = f"{topic}-out", 12
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
        admin.create_topic(target, partitions=1)

    def pipeline(worker: str) -> Pipeline:
        return Pipeline(cluster.bootstrap, topic, target, topic, worker, 6000)

    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"w", partition=number % 2).result()
    with closing(pipeline("old")) as old:
        read: list[Record] = []
        while len(read) < count:
            for records in old._consumer.getmany(timeout_ms=500).values():
                read += records
        txn = old._producer.transaction().begin()
        for record in read:
            for key, value in transform(record):
                txn.send(target, value, key)
        txn.commit_offsets(old._consumer)  # staged, of both partitions
        with closing(pipeline("new")) as new:

            def taken_over() -> bool:
                assert not old._consumer.getmany(timeout_ms=100), "it has read all that it owns"
                return new.step() > 0

            eventually(taken_over, "the new owner has worked on a partition", timeout=60)
            with pytest.raises((TransactionAbortedError, FencedMemberError)):
                txn.commit()
            old._go_back()

            def worked_on() -> bool:
                steps = old.step() + new.step()
                return not steps and sum(output_of(cluster, target).values()) >= count

            eventually(worked_on, "all is worked on", timeout=60)
    found = output_of(cluster, target)
    assert len(found) == count and set(found.values()) == {1}
