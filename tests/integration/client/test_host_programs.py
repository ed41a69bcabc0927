"""The Python client inside programs of others: how they end, fork, log, and interrupt it.

Each program is a process of its own against the conformance kit's broker. All of them are started
at once, since most of a program's time is its start.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.broker.lies import Lie
from conformance.broker.server import Broker
from conformance.judge import contents

ROOT = Path(__file__).resolve().parents[3]
LONGEST_S = 45.0  # a program that hangs fails; none needs so long
SIDE_BY_SIDE = 3

# What every program begins with: a topic of its own, by its name.
HEAD = """
import asyncio, gc, logging, os, signal, subprocess, sys, threading, time, warnings
from oncelog import Admin, ClientClosedError, Consumer, Producer, RequestTimeoutError
from oncelog._engine.net import runtime, threads
server, topic = sys.argv[1:]

def values(count, topic=topic):
    with Consumer(topic, bootstrap_servers=server, auto_offset_reset="earliest") as consumer:
        found = []
        while len(found) < count:
            for records in consumer.getmany(timeout_ms=5000).values():
                found += records
        return found
"""

PROGRAMS = {
    "ends": """
producer = Producer(bootstrap_servers=server, linger_ms=1000)
for n in range(1000):
    producer.send(topic, b"%d" % n)
""",
    "exits": """
producer = Producer(bootstrap_servers=server)
for n in range(100):
    producer.send(topic, b"%d" % n)
sys.exit(3)
""",
    "asyncio": """
from oncelog import aio
async def main():
    producer = aio.Producer(bootstrap_servers=server, linger_ms=1000)
    for n in range(100):
        await producer.send(topic, b"%d" % n)
asyncio.run(main())
""",
    "child": """
import multiprocessing
def work():
    producer = Producer(bootstrap_servers=server, linger_ms=1000)
    for n in range(100):
        producer.send(topic, b"%d" % n)
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
""",
    "silent": """
from oncelog._engine.produce import leaving
leaving.EXIT_FLUSH_S = 0.3
producer = Producer(bootstrap_servers=server)
for n in range(5):
    producer.send(topic, b"%d" % n)
""",
    "raises": """
class Stop(Exception): pass
def ring(*_): raise Stop
signal.signal(signal.SIGALRM, ring)
producer = Producer(bootstrap_servers=server, linger_ms=1, batch_size=2000)
producer.partitions_for(topic)
sent = []
stops = 0
while stops < 100:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0007)
        while True:
            text = b"%d" % len(sent)
            sent.append(text)
            if len(sent) % 3:
                headers = [("h", text)] if len(sent) % 7 == 0 else None
                producer.send(topic, text, text, headers=headers)
            else:
                producer.send(topic, text, timestamp_ms=1 if len(sent) % 2 else None)
    except Stop:
        stops += 1
producer.flush(timeout_ms=30_000)
settled = producer.metrics()["records_acked"]
producer.close(timeout_ms=5000)
found = values(settled)
assert len({record.value for record in found}) == len(found) == settled
assert all(record.key in (None, record.value) for record in found)
assert all(dict(record.headers).get("h", record.value) == record.value for record in found)
assert len(sent) - stops <= settled <= len(sent), (len(sent), stops, settled)
print("ok")
""",
    "handler": """
refused, within = [], []
def ring(*_):
    if len(within) == 5:
        return  # slower than its timer: it would nest until Python's limit of recursion
    within.append("handler")
    try:
        producer.send(topic, b"from the handler")
        producer.flush(timeout_ms=5000)
    except RuntimeError as error:
        refused.append(str(error))
    finally:
        within.pop()
signal.signal(signal.SIGALRM, ring)
producer = Producer(bootstrap_servers=server)
producer.partitions_for(topic)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.003)
ends = time.monotonic() + 0.4
while time.monotonic() < ends:
    producer.send(topic, b"v", b"k")
signal.setitimer(signal.ITIMER_REAL, 0)
producer.flush(timeout_ms=30_000)
acked = producer.metrics()["records_acked"]
producer.close()
assert all("signal handler" in text for text in refused), refused
assert len(values(acked)) == acked
print("ok")
""",
    "reads": """
class Stop(Exception): pass
def ring(*_):
    if reading: raise Stop
signal.signal(signal.SIGALRM, ring)
wanted = [b"%d" % n for n in range(3000)]
with Producer(bootstrap_servers=server, batch_size=300) as producer:
    for value in wanted:
        producer.send(topic, value)
consumer = Consumer(topic, bootstrap_servers=server, auto_offset_reset="earliest")
taken, stops, reading = [], 0, False
while sum(map(len, taken)) < len(wanted):
    try:
        reading = True
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        while True:
            found = consumer.getmany(timeout_ms=50, max_records=20)
            if found: taken.append(found[topic, 0])
            if len(taken) >= 150: break
    except Stop:
        stops += 1
    finally:
        reading = False  # a handler that raises here would end the program
        signal.setitimer(signal.ITIMER_REAL, 0)
consumer.close()
assert [record.value for records in taken for record in records] == wanted
print("ok")
""",
    "callbacks": """
def bad(kind):
    def callback(*_): raise kind("of the callback")
    return callback
other = Producer(bootstrap_servers=server)
with Producer(bootstrap_servers=server) as producer:
    for kind in (SystemExit, KeyboardInterrupt, asyncio.CancelledError, ValueError, ValueError):
        future = producer.send(topic, b"v", on_delivery=bad(kind))
        future.add_done_callback(bad(kind))
        future.result(30)
    producer.flush(timeout_ms=30_000)
other.send(topic, b"v").result(30)
other.close()
print("ok")
""",
    "thread": """
def ends_the_loop(): raise SystemExit
with Producer(bootstrap_servers=server) as producer:
    runtime.loop().call_soon_threadsafe(ends_the_loop)
    producer.send(topic, b"v").result(30)
print("ok")
""",
    "logs": """
class ToTopic(logging.Handler):
    producer = None
    def emit(self, record):
        if self.producer is None:
            ToTopic.producer = Producer(bootstrap_servers=server)
        self.producer.send(topic, record.getMessage().encode())
handler = ToTopic()
logging.basicConfig(level=logging.DEBUG, handlers=[handler])
logging.raiseExceptions = False
for n in range(50):
    logging.info("line %d", n)
handler.producer.flush(timeout_ms=30_000)
logging.getLogger().removeHandler(handler)
handler.producer.close()
lines = {b"line %d" % n for n in range(50)}
found = values(49)
assert len(lines & {record.value for record in found}) >= 49, found
print("ok")
""",
    "fork-open": """
producer = Producer(bootstrap_servers=server)
producer.send(topic, b"v").result(30)
if (child := os.fork()) == 0:
    try:
        Producer(bootstrap_servers=server)
    except ClientClosedError as error:
        print(error, flush=True)
    try:
        producer.send(topic, b"v")
    except ClientClosedError as error:
        print(error, flush=True)
    if (grandchild := os.fork()) == 0:
        os._exit(0)
    os.waitpid(grandchild, 0)
    try:
        Producer(bootstrap_servers=server)
    except ClientClosedError:
        os._exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
producer.send(topic, b"v").result(30)
producer.close()
print(code)
""",
    "fork-exec": """
with Producer(bootstrap_servers=server) as producer:
    producer.send(topic, b"v").result(30)
    for _ in range(20):
        done = subprocess.run(["env"], preexec_fn=os.getpid, capture_output=True, check=True)
        assert b"GRPC_ENABLE_FORK_SUPPORT" not in done.stdout
print("ok")
""",
    "fork-closed": """
with Producer(bootstrap_servers=server) as producer:
    producer.send(topic, b"v").result(30)
    assert runtime._NATIVE & runtime._native_threads(), runtime._native_threads()
if (child := os.fork()) == 0:
    with Producer(bootstrap_servers=server) as mine:
        mine.send(topic, b"v").result(30)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    "shutdown": """
def read():
    with Consumer(topic, bootstrap_servers=server, auto_offset_reset="earliest") as consumer:
        yield from consumer
class Holder:
    def __init__(self):
        self.producer = Producer(bootstrap_servers=server)
        self.admin = Admin(bootstrap_servers=server)
    def __del__(self):
        self.producer.close()
        self.producer.close(timeout_ms=2000)
        self.admin.close()
holder = Holder()
holder.me = holder
holder.producer.send(topic, b"v").result(30)
reading = read()
assert next(reading).value == b"v"
sys.modules["keeps_it"] = reading
print("ok", flush=True)
""",
    "dropped": """
warnings.simplefilter("error", ResourceWarning)
unraisable = []
sys.unraisablehook = lambda one: unraisable.append(str(one.exc_value))
for n in range(20):
    Producer(bootstrap_servers=server, linger_ms=1000).send(topic, b"%d" % n)
    Consumer(topic, bootstrap_servers=server)
    Admin(bootstrap_servers=server)
gc.collect()
values(20)
assert len(unraisable) == 60, unraisable
assert all("dropped without close()" in text for text in unraisable)
async def left():
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)
runtime.run(left(), 30)
print("ok")
""",
    "frozen": """
producer = Producer(bootstrap_servers=server)
producer.send(topic, b"v").result(30)
consumer = Consumer(topic, bootstrap_servers=server, auto_offset_reset="latest")
real, start = time.monotonic, time.monotonic()
time.monotonic = lambda: start - 1000
for call in (
    lambda: producer.partitions_for("missing"), lambda: consumer.getmany(timeout_ms=60_000)
):
    try:
        call()
    except RuntimeError as error:
        print(error)
time.monotonic = real
producer.send(topic, b"v").result(30)
producer.close()
consumer.close()
""",
    "green": """
import types
sys.modules["gevent.monkey"] = types.SimpleNamespace(is_module_patched=lambda name: True)
try:
    Producer(bootstrap_servers=server)
except RuntimeError as error:
    print(error)
""",
    "blocked": """
threads.SLICE_S, threads.MOST_SLICES = 0.1, 3
held, entered = threading.Lock(), threading.Event()
held.acquire()
def waits_for_the_user(*_):
    entered.set()
    held.acquire()
producer = Producer(bootstrap_servers=server)
producer.send(topic, b"v", on_delivery=waits_for_the_user)
entered.wait()
producer.send(topic, b"w")
try:
    producer.flush()
except RequestTimeoutError as error:
    print(error)
try:
    Admin(bootstrap_servers=server).list_topics()
except RequestTimeoutError as error:
    print(error)
os._exit(0)
""",
}


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def run(name: str, server: str) -> Ended:
    words = [sys.executable, "-c", HEAD + PROGRAMS[name], server, name]
    try:
        done = subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        return Ended(-99, str(error.stdout), f"hangs: {error.stderr!r}")
    return Ended(done.returncode, done.stdout, done.stderr)


class Kit:
    """A broker of the kit on a thread, and what came of each program."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        never = Lie(at="produce", where={"topic": "silent"}, answer="none", times=0)
        self.broker = self._do(self._started(never))
        servers = self.broker.bootstrap_servers[0]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            asked = {name: pool.submit(run, name, servers) for name in PROGRAMS}
        self.ended = {name: future.result() for name, future in asked.items()}

    async def _started(self, lie: Lie) -> Broker:
        broker = Broker(1, [lie], lifetime_ms=24 * 3600 * 1000)
        await broker.__aenter__()
        for name in PROGRAMS:
            broker.create_topic(name)
        return broker

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def stored(self, name: str) -> list[bytes | None]:
        return [value for _, value in contents(self.broker.cluster.partitions[name, 0])]

    def close(self) -> None:
        self._do(self.broker.__aexit__())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


@pytest.fixture(scope="module")
def kit() -> Iterator[Kit]:
    kit = Kit()
    yield kit
    kit.close()


@pytest.mark.parametrize(
    ("name", "code", "count"), [("ends", 0, 1000), ("exits", 3, 100), ("asyncio", 0, 100)]
)
def test_a_program_that_ends_without_close_has_sent_its_records(
    kit: Kit, name: str, code: int, count: int
):
    assert kit.ended[name] == Ended(code, "", "")
    assert kit.stored(name) == [b"%d" % n for n in range(count)]


def test_so_has_a_process_that_multiprocessing_forked(kit: Kit):
    assert kit.ended["child"] == Ended(0, "", "")
    assert kit.stored("child") == [b"%d" % n for n in range(100)]


def test_a_program_says_what_it_leaves_undelivered(kit: Kit):
    ended = kit.ended["silent"]
    assert ended.code == 0
    assert "without closing its producer: 5 records were not delivered" in ended.err


@pytest.mark.parametrize(
    "name",
    [
        "raises",
        "handler",
        "reads",
        "callbacks",
        "thread",
        "logs",
        "fork-exec",
        "shutdown",
        "dropped",
    ],
)
def test_a_program_goes_on(kit: Kit, name: str):
    ended = kit.ended[name]
    assert (ended.code, ended.out) == (0, "ok\n"), ended


def test_a_callback_with_a_bug_is_told_once_of_each_kind(kit: Kit):
    said = kit.ended["callbacks"].err
    assert said.count("on_delivery raised") == said.count("a done callback raised") == 4, said
    assert "ValueError: of the callback" in said


def test_a_forked_child_is_told_why_it_gets_no_client(kit: Kit):
    first, second, *rest = kit.ended["fork-open"].out.splitlines()
    assert first.startswith("this process was forked while its parent used a client")
    assert second == "the producer was made before a fork: make one in each process"
    assert rest == ["7"]


def test_a_child_forked_after_the_last_close_has_clients(kit: Kit):
    assert kit.ended["fork-closed"].out == "7\n", kit.ended["fork-closed"]
    assert kit.stored("fork-closed") == [b"v", b"v"]


def test_nobody_waits_for_an_engine_that_a_callback_holds(kit: Kit):
    lines = kit.ended["blocked"].out.splitlines()
    assert len(lines) == 2, kit.ended["blocked"]
    assert all("the client's thread has not run for" in line for line in lines)
    assert all("waits_for_the_user" in line for line in lines)


def test_a_clock_that_is_replaced_is_an_error(kit: Kit):
    ended = kit.ended["frozen"]
    lines = ended.out.splitlines()
    assert ended.code == 0 and len(lines) == 2, ended
    assert all("another clock is in the place of the machine's" in line for line in lines)


def test_threads_that_are_replaced_are_an_error(kit: Kit):
    assert "patch_all(thread=False)" in kit.ended["green"].out, kit.ended["green"]
