"""Each language's client beside the same language's Kafka client: records/s, processor time.

    python -m bench.languages [--rounds N] [--seconds S] [--only go,java,node,rust] [--flush]
                              [--into docs/clients.md]

Three brokers of Kafka and three nodes of Oncelog take turns. In each turn one process at a time
sends records of 100 B and of 1 KiB, without compression, to a topic of six partitions. Batches,
linger and buffer are those of docs/client-defaults.json on both sides. Kafka acknowledges records
in page caches unless --flush is given, Oncelog records on disks. Brokers share the machine with
the client: the rate is of all together, the processor time the client's alone.

The programs are each client's own (clients/*), and those in bench/clients: franz, kafkajs,
rdkafka, KafkaBench.java. Their dependencies are built or fetched first. Programs that this
machine cannot build are left out, with a message. With --into, the part of the page between the
two marks is replaced.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import fetch
from bench.machine import scratch_directory
from bench.plan import names
from bench.processes import ROOT, BenchError, run_json, run_text
from bench.systems.face import System, Unavailable
from bench.systems.kafka import Kafka
from bench.systems.oncelog import Oncelog

BEGIN, END = "<!-- languages:begin -->", "<!-- languages:end -->"
LANGUAGES = ("go", "java", "node", "rust")
SIZES = (100, 1024)
PARTITIONS = 6
BUILD_S = 600.0
CLIENTS, PEERS, BUILT = ROOT / "clients", ROOT / "bench" / "clients", ROOT / "build" / "bench"

Words = list[str | Path]
#: Servers, topic, seconds, bytes -> the words that start a program.
Command = Callable[[str, str, float, int], Words]


@dataclass(frozen=True, slots=True)
class Program:
    """One program. `build` prepares it and returns its start command. Raises BenchError."""

    language: str
    title: str
    kafka: bool
    build: Callable[[], Command]


@dataclass(frozen=True, slots=True)
class Figure:
    rate: float  # records/s
    cost: float  # us of processor time for each record


# -- the programs -------------------------------------------------------------------------


def flags(program: Path) -> Command:
    """Start command of the Go programs."""

    def command(servers: str, topic: str, seconds: float, size: int) -> Words:
        where = ["-servers", servers, "-topic", topic]
        return [program, "produce", *where, "-seconds", str(seconds), "-size", str(size)]

    return command


def words(*start: str | Path) -> Command:
    """Start command of all other programs."""

    def command(servers: str, topic: str, seconds: float, size: int) -> Words:
        return [*start, servers, topic, str(seconds), str(size)]

    return command


def go() -> Command:
    run_text(["go", "build", "-C", CLIENTS / "go", "-o", BUILT / "go", "./bench"], BUILD_S)
    return flags(BUILT / "go")


def franz() -> Command:
    run_text(["go", "build", "-C", PEERS / "franz", "-o", BUILT / "franz", "."], BUILD_S)
    return flags(BUILT / "franz")


def java() -> Command:
    run_text([CLIENTS / "java" / "build"], BUILD_S)
    target = CLIENTS / "java" / "target"
    jars = (target / "classpath").read_text().strip()
    path = f"{target / 'test-classes'}:{target / 'classes'}:{jars}"
    return words("java", "-cp", path, "io.github.oncelog.client.bench.Bench", "produce")


def kafka_clients() -> Command:
    jars = Kafka(flush=False)
    jars.prepare()
    return words("java", *jars.java_words(), PEERS / "KafkaBench.java")


def node() -> Command:
    run_text([CLIENTS / "node" / "build"], BUILD_S)
    return words("node", CLIENTS / "node" / "dist" / "bench" / "bench.js", "produce")


def kafkajs() -> Command:
    there = fetch.cache() / "kafkajs"
    shutil.copytree(PEERS / "kafkajs", there, dirs_exist_ok=True)
    run_text(["npm", "ci", "--no-audit", "--no-fund"], BUILD_S, cwd=there)
    return words("node", there / "bench.mjs")


def rust() -> Command:
    package: Words = [
        "--manifest-path",
        CLIENTS / "rust" / "Cargo.toml",
        "--package",
        "oncelog-driver",
    ]
    run_text(["cargo", "build", "--quiet", "--release", "--locked", *package], BUILD_S)
    return words(CLIENTS / "rust" / "target" / "release" / "bench", "produce")


def rdkafka() -> Command:
    """Builds the rdkafka program, apart from clients/rust so that its users get no librdkafka."""
    manifest = PEERS / "rdkafka" / "Cargo.toml"
    options: Words = ["--quiet", "--release", "--locked", "--manifest-path", manifest]
    run_text(["cargo", "build", *options, "--target-dir", BUILT / "rdkafka"], BUILD_S)
    return words(BUILT / "rdkafka" / "release" / "oncelog-bench-rdkafka")


PROGRAMS = (
    Program("go", "Go", False, go),
    Program("go", "franz-go", True, franz),
    Program("java", "Java", False, java),
    Program("java", "kafka-clients", True, kafka_clients),
    Program("node", "Node.js", False, node),
    Program("node", "kafkajs", True, kafkajs),
    Program("rust", "Rust", False, rust),
    Program("rust", "rdkafka", True, rdkafka),
)

# -- measuring ----------------------------------------------------------------------------

Built = dict[Program, Command]
Figures = dict[tuple[Program, int], list[Figure]]


def build(languages: Sequence[str]) -> Built:
    """Builds the programs that this machine can build; prints the others."""
    BUILT.mkdir(parents=True, exist_ok=True)
    found: Built = {}
    for program in PROGRAMS:
        if program.language in languages:
            try:
                found[program] = program.build()
            except (BenchError, Unavailable) as error:
                print(f"without {program.title}: {error}", flush=True)
    return found


def measure(system: System, programs: Built, seconds: float, scratch: Path, into: Figures) -> None:
    """Runs one turn of the programs for this system. Raises BenchError."""
    system.prepare()
    try:
        system.start(scratch)
        for program, command in programs.items():
            for size in SIZES:
                servers, topic = servers_of(system), system.fresh(PARTITIONS)
                line = run_json(command(servers, topic, seconds, size), 60 + 4 * seconds)
                figure = Figure(line["records_per_s"], line["cpu_us_per_record"])
                into.setdefault((program, size), []).append(figure)
                print(
                    f"{program.title:14} {size:5} B {figure.rate:12,.0f} records/s "
                    f"{figure.cost:7.2f} us each",
                    flush=True,
                )
    finally:
        system.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def servers_of(system: System) -> str:
    if isinstance(system, Oncelog):
        return system.running.bootstrap
    assert isinstance(system, Kafka), "there are two systems"
    return ",".join(system.addresses)


def table(figures: Figures) -> str:
    """Table of the medians of all turns."""
    lines = [
        "| client | 100 B, records/s | µs each | 1 KiB, records/s | µs each |",
        "|---|---|---|---|---|",
    ]
    for program in PROGRAMS:
        cells = []
        for size in SIZES:
            found = figures.get((program, size))
            if found is not None:
                rate = statistics.median(one.rate for one in found)
                cost = statistics.median(one.cost for one in found)
                cells += [f"{rate:,.0f}".replace(",", " "), f"{cost:.2f}"]
        if cells:
            lines.append(f"| {program.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def put_into(page: str, part: str) -> str:
    """Replaces the part of the page between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"the page needs {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each program and size")
    parser.add_argument(
        "--only", type=lambda text: names(text, LANGUAGES), default=list(LANGUAGES),
        metavar="LIST", help=f"of {','.join(LANGUAGES)}",
    )  # fmt: skip
    parser.add_argument("--flush", action="store_true", help="Kafka forces each append to disk")
    parser.add_argument("--into", type=Path, help="a page with marks for the table")
    options = parser.parse_args()
    programs = build(options.only)
    figures: Figures = {}
    scratch = scratch_directory(None)
    try:
        for turn in range(options.rounds):
            for system in (Kafka(flush=options.flush), Oncelog()):
                mine = {
                    program: command
                    for program, command in programs.items()
                    if program.kafka == isinstance(system, Kafka)
                }
                measure(system, mine, options.seconds, scratch / f"{system.name}-{turn}", figures)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(table(figures))
    if options.into is not None:
        options.into.write_text(put_into(options.into.read_text(), table(figures)))


if __name__ == "__main__":
    main()
