"""An exception of a signal handler as a fault: a blocking call is ended at one of its steps.

    scenario --Interrupted.cut(call)--> traced, opcode by opcode --raises at the n-th step-->
   the scenario goes on: all reports are true, and the next call works

A handler runs where CPython looks for signals: when a function begins, when a loop goes round, and
behind a call of a function that is not Python. A raise at any line would find impossible cases.
"""

from __future__ import annotations

import dis
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

import oncelog
from oncelog import Consumer, Producer, RecordMetadata, Transaction, TransactionCommittedError
from tests.integration.client.cancelling import CUT, LONGEST_S, PARTITIONS, Kit, Scene

T = TypeVar("T")
OURS = os.path.dirname(oncelog.__file__) + os.sep
# It goes round once for each lock of each client that this process has made.
UNCOUNTED = "_holds_a_lock"
VALUES = ("1", "2", "3", "4")


class Interrupt(KeyboardInterrupt):
    """The exception that the handler raises."""


class Interrupted(Scene):
    """One scenario; each of its calls that is cut ends at its `step`-th step, if it has so many."""

    def __init__(self, kit: Kit, step: int) -> None:
        super().__init__(kit)
        self._step = step
        self.was_reached = False
        self._place = "nowhere"

    def cut(self, call: Callable[[], T]) -> T | Any:
        """The result of the call, or CUT."""
        steps = 0
        before: dict[FrameType, int] = {}  # frame -> the instruction before this one

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal steps
            if event == "call":
                if frame.f_back is not None:
                    before.pop(frame.f_back, None)  # its call is one of Python
                code = frame.f_code
                if not code.co_filename.startswith(OURS) or code.co_qualname.startswith(UNCOUNTED):
                    return None
                frame.f_trace_opcodes = True
            elif event == "opcode":
                code, at = frame.f_code, before.get(frame, -1)
                before[frame] = frame.f_lasti
                if at >= 0 and _looks_for_signals(code.co_code[at]):
                    steps += 1
                    if steps == self._step:
                        self.was_reached = True
                        self._place = f"{os.path.relpath(code.co_filename)}:{frame.f_lineno}"
                        raise Interrupt
            return trace

        try:
            sys.settrace(trace)
            return call()
        except Interrupt:
            return CUT
        finally:
            sys.settrace(None)
            before.clear()  # drops the last references to the call's objects

    def producer(self, **settings: Any) -> Producer:
        return Producer(**self.of_producer(**settings))

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        return Consumer(*topics, **self.of_consumer(**{"membership": "manual", **settings}))

    def play(self, scenario: Callable[[Interrupted], None]) -> bool:
        """Plays the scenario; returns whether a call came as far. A scenario that hangs fails."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                scenario(self)
            except BaseException as error:  # noqa: BLE001  # raised where it is waited for
                failed.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(LONGEST_S)
        where = f"interrupted at step {self._step}, {self._place}"
        if thread.is_alive():
            stack = traceback.format_stack(sys._current_frames()[thread.ident or 0])
            raise AssertionError(f"{where}, it hangs:\n{''.join(stack)}")
        for error in failed:
            error.add_note(where)
            raise error
        return self.was_reached


def _looks_for_signals(opcode: int) -> bool:
    name = dis.opname[opcode]
    return name.startswith("CALL") or name in ("RESUME", "JUMP_BACKWARD")


SCENARIOS: dict[str, Callable[[Interrupted], None]] = {}


def scenario(play: Callable[[Interrupted], None]) -> Callable[[Interrupted], None]:
    SCENARIOS[play.__name__.removeprefix("a_")] = play
    return play


def transact(producer: Producer, topic: str, value: bytes) -> None:
    with producer.transaction() as txn:
        for partition in range(PARTITIONS):
            txn.send(topic, value, partition=partition)


def with_two_records(run: Interrupted, producer: Producer) -> Transaction:
    txn = producer.transaction().begin()
    for partition in range(PARTITIONS):
        txn.send(run.topic, b"a", partition=partition)
    return txn


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        for records in consumer.getmany(timeout_ms=5000).values():
            found += [record.value for record in records]
    return found


def all_values() -> list[bytes]:
    return [value.encode() for value in VALUES]


@scenario
def begin(run: Interrupted) -> None:
    with run.producer() as producer:
        txn = producer.transaction()
        if run.cut(txn.begin) is CUT and txn.state == "new":
            sent: RecordMetadata = producer.send(run.topic, b"plain", partition=0).result(LONGEST_S)
            assert sent.offset == 0
            txn.begin()
        txn.send(run.topic, b"in", partition=0)
        txn.commit()
    assert run.log() in ([b"in"], [b"plain", b"in"])
    assert run.open_transactions() == []


@scenario
def a_block(run: Interrupted) -> None:
    with run.producer() as producer:
        run.cut(lambda: transact(producer, run.topic, b"a"))
        transact(producer, run.topic, b"b")
    found = [run.log(partition) for partition in range(PARTITIONS)]
    assert found in ([[b"a", b"b"]] * PARTITIONS, [[b"b"]] * PARTITIONS)
    assert run.open_transactions() == []


@scenario
def commit(run: Interrupted) -> None:
    with run.producer() as producer:
        txn = with_two_records(run, producer)
        run.cut(txn.commit)
        assert {place.base_offset for place in txn.commit().runs.values()} == {0}
        transact(producer, run.topic, b"b")
    assert run.log(0) == run.log(1) == [b"a", b"b"]


@scenario
def abort(run: Interrupted) -> None:
    with run.producer() as producer:
        txn = with_two_records(run, producer)
        run.cut(txn.abort)
        txn.abort()
        transact(producer, run.topic, b"b")
    assert run.log(0) == run.log(1) == [b"b"]


@scenario
def too_late_to_abort(run: Interrupted) -> None:
    with run.producer() as producer:
        txn = with_two_records(run, producer)
        run.cut(txn.commit)
        with suppress(TransactionCommittedError):
            txn.abort()
    assert run.log(0) == run.log(1) == ([b"a"] if txn.state == "committed" else [])


@scenario
def offsets_of_a_transaction(run: Interrupted) -> None:
    run.append(*VALUES)
    with run.producer() as producer, run.consumer() as consumer:
        txn = producer.transaction().begin()
        run.cut(lambda: txn.commit_offsets(run.group, {(run.topic, 0): 1}))
        txn.commit_offsets(run.group, {(run.topic, 0): 2})
        txn.commit()
        found = consumer.committed((run.topic, 0))
    assert found is not None and found.offset == 2


@scenario
def send(run: Interrupted) -> None:
    """The first record asks for the topic, those behind it go into an open batch."""
    with run.producer(linger_ms=60_000) as producer:
        run.cut(lambda: producer.send(run.topic, b"a", b"key-a", partition=0))
        producer.send(run.topic, b"b", b"key-b", partition=0)
        run.cut(lambda: producer.send(run.topic, b"c", b"key-c", partition=0))
        run.cut(lambda: producer.send_batch(run.topic, 0, [(b"key-d", b"d")]))
        last = producer.send(run.topic, b"e", b"key-e", partition=0)
        producer.flush(timeout_ms=1000 * LONGEST_S)
        assert last.result(0).offset == len(run.log()) - 1
    found = run.log()
    assert [one for one in found if one in (b"b", b"e")] == [b"b", b"e"]
    assert found == sorted(set(found))  # type: ignore[type-var]
    with run.consumer() as consumer:
        consumer.assign([(run.topic, 0)])
        records = [one for some in consumer.getmany(timeout_ms=5000).values() for one in some]
    assert all(record.key == b"key-" + (record.value or b"") for record in records)


@scenario
def a_first_record(run: Interrupted) -> None:
    """The batch that was begun for it is not left without a record."""
    with run.producer(linger_ms=60_000) as producer:
        producer.partitions_for(run.topic)
        sent = run.cut(lambda: producer.send(run.topic, b"a", partition=0, timestamp_ms=1))
        producer.flush(timeout_ms=1000 * LONGEST_S)
        assert producer.metrics()["buffer_used_bytes"] == 0
    assert run.log() in ([b"a"], [] if sent is CUT else [b"a"])


@scenario
def flush(run: Interrupted) -> None:
    with run.producer(linger_ms=60_000) as producer:
        records = [producer.send(run.topic, value.encode(), partition=0) for value in VALUES]
        run.cut(producer.flush)
        producer.flush()
        assert all(record.done() for record in records)
    assert run.log() == all_values()


@scenario
def close_a_producer(run: Interrupted) -> None:
    producer = run.producer(linger_ms=60_000)
    records = [producer.send(run.topic, value.encode(), partition=0) for value in VALUES]
    run.cut(producer.close)
    with suppress(oncelog.UndeliveredRecordsError):
        producer.close()
    told = [record.exception(LONGEST_S) for record in records]
    acknowledged = [v for v, error in zip(all_values(), told, strict=True) if error is None]
    assert set(acknowledged) <= set(run.log())


@scenario
def join(run: Interrupted) -> None:
    run.append(*VALUES)
    consumer = run.consumer()
    run.cut(lambda: consumer.subscribe([run.topic]))
    consumer.subscribe([run.topic])
    run.cut(lambda: consumer.position((run.topic, 0)))
    assert read(consumer, len(VALUES)) == all_values()
    run.cut(consumer.commit)
    consumer.commit()
    found = consumer.committed((run.topic, 0))
    assert found is not None and found.offset == len(VALUES)
    run.cut(consumer.close)
    consumer.close()


@scenario
def take_an_assignment(run: Interrupted) -> None:
    told: list[str] = []
    run.append(*VALUES)
    members = run.kit.broker.cluster.members
    epoch = members.newest().assignment.epoch + 1
    run.kit.do(lambda: members.assign(epoch, [(run.topic, 0, epoch)]))
    consumer = run.consumer(membership="assigned", on_assigned=lambda _: told.append("assigned"))
    consumer.subscribe([run.topic])
    records = run.cut(lambda: consumer.getmany(timeout_ms=5000))
    left = [] if records is CUT else [one.value for some in records.values() for one in some]
    place = consumer.position((run.topic, 0)) if consumer.assignment() else 0
    # Records that an interrupted call has taken are given out with it, or not at all.
    assert (
        left + read(consumer, len(VALUES) - max(place, len(left)))
        == all_values()[0 if records is not CUT else place :]
    )
    assert "assigned" in told
    run.cut(consumer.close)
    consumer.close()
