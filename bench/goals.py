"""Goals, and the results that reach them.

Each goal is a ratio or a figure of one or two measurements. A goal without its measurements is
reported as not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.plan import (
    CONSUME,
    HALF,
    MIB,
    PRODUCE_CASES,
    SINGLE,
    bytes_case,
    many_case,
    partitions_case,
    pids_case,
    produce_case,
    restart_case,
)
from bench.results import Results, Row

OWN, PORT, ALONE = "Oncelog", "Oncelog, Kafka's port", "Oncelog, Kafka's port, one node"
DURABLE = (
    "Kafka, flush.messages=1",
    "NATS JetStream, sync_interval: always",
    "RabbitMQ quorum queues",
)
# "Equal" and "no slower" allow the difference between two equal runs.
EQUAL = 0.95


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal. `measure` returns None without a measurement.

    `most`: the target is met at or below its value, else at or above it.
    """

    text: str
    target: float
    unit: str
    measure: Callable[[Results], float | None]
    most: bool = False

    def met(self, value: float) -> bool:
        return value <= self.target if self.most else value >= self.target


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: Goal
    value: float | None

    @property
    def word(self) -> str:
        if self.value is None:
            return "not measured"
        return "met" if self.goal.met(self.value) else "NOT met"


def _best(rows: Iterable[Row], name: str) -> float:
    return max((row.figures.get(name, 0.0) for row in rows), default=0.0)


def _least(rows: Iterable[Row], name: str) -> float:
    return min((row.figures[name] for row in rows if name in row.figures), default=0.0)


def _thousand(results: Results) -> float | None:
    few, many = (_own("producers", many_case(count), "records_per_s") for count in (64, 1000))
    less, more = few(results), many(results)
    return more / less if less and more else None


def _own(
    section: str, case: str, name: str, client: str = "python"
) -> Callable[[Results], float | None]:
    def measure(results: Results) -> float | None:
        rows = results.find(section, case, system=OWN, client=client)
        values = [row.figures[name] for row in rows if name in row.figures]
        return float(values[-1]) if values else None

    return measure


def _against(
    section: str,
    case: str,
    name: str,
    systems: Iterable[str],
    only_python: bool = False,
    less_is_better: bool = False,
) -> Callable[[Results], float | None]:
    """Compares Oncelog with the best of those systems, with any of their clients.

    Above 1 Oncelog is ahead.
    """
    names = tuple(systems)

    def measure(results: Results) -> float | None:
        rows = [
            row
            for row in results.find(section, case)
            if not only_python or row.client.startswith("python")
        ]
        best = _least if less_is_better else _best
        own = best((row for row in rows if row.system == OWN), name)
        theirs = best((row for row in rows if row.system in names), name)
        if not own or not theirs:
            return None
        return theirs / own if less_is_better else own / theirs

    return measure


def _share_of_limit(results: Results) -> float | None:
    # Its own run computed it: limits of a later run would not belong to this figure.
    return _best(results.find("consume", system=OWN), "of_grpc_stream") or None


def _best_batch(results: Results) -> float | None:
    rows = [row for row in results.find("client") if row.case.startswith("send_batch")]
    return _best(rows, "records_per_s") / 1e6 or None


def _millions(results: Results) -> float | None:
    value = _own("client", "send, 100 B", "records_per_s")(results)
    return None if value is None else value / 1e6


def _produce_goals() -> list[Goal]:
    found = []
    for size, count in PRODUCE_CASES:
        case = produce_case(size, count)
        produce = ("produce", case, "records_per_s")
        kafka = _against(*produce, ["Kafka"], only_python=True)
        nats = _against(*produce, ["NATS JetStream"])
        synced = _against(*produce, DURABLE)
        found += [
            Goal(f"produce {case}: Kafka as shipped, Python client", 1.5, "x", kafka),
            Goal(f"produce {case}: NATS JetStream as shipped", 5.0, "x", nats),
            Goal(f"produce {case}: best peer that syncs, any client", 1.5, "x", synced),
        ]
    mib = ("bytes", bytes_case(MIB), "mb_per_s")
    nats = _against(*mib, ["NATS JetStream"])
    return [
        *found,
        Goal("bytes, 1 MiB batches", 150.0, "MB/s", _own(*mib)),
        Goal("bytes, 1 MiB batches: NATS JetStream as shipped", 1.0, "x", nats),
        Goal("client alone: send() of 100 B", 1.0, "M records/s", _millions),
        Goal("client alone: send_batch of 100 B", 10.0, "M records/s", _best_batch),
        Goal("consume: share of the gRPC stream", 0.8, "x", _share_of_limit),
    ]


def _latency_goals() -> list[Goal]:
    p50, p99 = _own("latency", SINGLE, "p50_x_floor"), _own("latency", SINGLE, "p99_x_floor")
    half = _own("latency", HALF, "p99_ms")
    nats = _against("latency", SINGLE, "p50_ms", DURABLE[1:2], less_is_better=True)
    kafka = _against("latency", HALF, "p50_ms", ["Kafka"], less_is_better=True)
    client = _own("producers", many_case(64), "records_per_s")
    plain = _own("producers", many_case(64), "records_per_s", "raw gRPC")
    synced = _against("producers", many_case(64), "records_per_s", DURABLE, only_python=True)
    on_off = _own("idempotence", "", "on_to_off")
    return [
        Goal("one record at a time: p50 against the floor", 1.5, "x", p50, most=True),
        Goal("one record at a time: p99 against the floor", 4.0, "x", p99, most=True),
        Goal("one record at a time: p50 of NATS JetStream that syncs", 1.0, "x", nats),
        Goal("at half of the maximum: p99", 25.0, "ms", half, most=True),
        Goal("at half of the maximum: p50 of Kafka as shipped", 1.0, "x", kafka),
        Goal("64 small producers, Python client", 4500.0, "records/s", client),
        Goal("64 small producers, plain gRPC", 6500.0, "records/s", plain),
        Goal("64 small producers: best peer that syncs", 1.0, "x", synced),
        Goal("1,000 small producers against 64", EQUAL, "x", _thousand),
        Goal("idempotence on against off", 0.97, "x", on_off),
    ]


def _cluster_goals() -> list[Goal]:
    def many(what: str, name: str) -> Callable[[Results], float | None]:
        return _own("partitions", partitions_case(1000, what), name, "")

    def large(what: str, name: str) -> Callable[[Results], float | None]:
        return _own("restart", restart_case(10_000, what), name, "")

    def pids(name: str) -> Callable[[Results], float | None]:
        return _own("pids", pids_case(1_000_000), name, "")

    p50, p99 = (_own("failover", "", name, "") for name in ("p50_s", "p99_s"))
    serving, memory = (
        large("a node restarted", name) for name in ("serving_s", "node_mb_after_restart")
    )
    decay, written = large("filled", "decay"), large("filled", "written_per_byte")
    each, price = pids("counted_bytes_per_producer"), pids("large_to_small")
    return [
        Goal("failover: p50", 1.0, "s", p50, most=True),
        Goal("failover: p99", 2.0, "s", p99, most=True),
        Goal("1,000 partitions, idle: of a core, busiest node", 0.10, "x",
             many("idle", "idle_share"), most=True),
        Goal("1,000 partitions: start", 20.0, "s", many("start", "start_s"), most=True),
        Goal("1,000 partitions: produce over 100 of them against 6", EQUAL, "x",
             many("load", "hundred_to_six")),
        Goal("10 GB: a killed node serves again", 5.0, "s", serving, most=True),
        Goal("10 GB: memory of that node", 300.0, "MB", memory, most=True),
        Goal("10 GB: speed at the end against the start", EQUAL, "x", decay),
        Goal("10 GB: written to disk for each byte accepted", 2.2, "x", written, most=True),
        Goal("1,000,000 producer ids: memory of each", 128.0, "bytes", each, most=True),
        Goal("1,000,000 producer ids: price of a batch against 10", 1.05, "x", price, most=True),
    ]  # fmt: skip


def _kafka_goals() -> list[Goal]:
    """Kafka's protocol under one client."""

    def port(case: str, name: str, system: str = PORT) -> Callable[[Results], float | None]:
        def measure(results: Results) -> float | None:
            return _best(results.find("kafka", case, system=system), name) or None

        return measure

    def against(case: str, system: str) -> Callable[[Results], float | None]:
        own = port(case, "records_per_s")

        def measure(results: Results) -> float | None:
            theirs = _best(results.find("kafka", case, system=system), "records_per_s")
            ours = own(results)
            return ours / theirs if ours and theirs else None

        return measure

    singly = port(many_case(64), "broker_us_per_record", ALONE)

    def per_core(results: Results) -> float | None:
        cost = singly(results)
        return 1e6 / cost if cost else None

    found = []
    for size in (100, 1024):
        case = produce_case(size, 6)
        found += [
            Goal(f"Kafka's port, {case}: Kafka that syncs", 1.0, "x", against(case, DURABLE[0])),
            Goal(f"Kafka's port, {case}: Kafka as shipped", 0.8, "x", against(case, "Kafka")),
        ]
    cost = port(produce_case(100, 6), "broker_us_per_record", ALONE)
    p50, consume = port(SINGLE, "p50_ms"), port(CONSUME, "mb_per_s")
    return [
        *found,
        Goal("Kafka's port, one node: processor time for 100 B", 0.6, "us", cost, most=True),
        Goal("Kafka's port, one node: batches of one record for a core", 5000, "/s", per_core),
        Goal("Kafka's port: one record at a time, p50", 3.0, "ms", p50, most=True),
        Goal("Kafka's port: consume", 300.0, "MB/s", consume),
    ]


GOALS = (*_produce_goals(), *_latency_goals(), *_cluster_goals(), *_kafka_goals())


def verdicts(results: Results) -> list[Verdict]:
    return [Verdict(goal, goal.measure(results)) for goal in GOALS]


def rows(results: Results) -> list[list[str]]:
    found = []
    for verdict in verdicts(results):
        goal = verdict.goal
        bound = "<=" if goal.most else ">="
        value = "-" if verdict.value is None else f"{verdict.value:.3g} {goal.unit}".strip()
        found.append(
            [goal.text, f"{bound} {goal.target:g} {goal.unit}".strip(), value, verdict.word]
        )
    return found


HEADINGS = ["goal", "target", "measured", ""]
