"""Command behind scripts/bench: options, the run, and its JSON lines, tables and plots."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench import plots, report
from bench.machine import scratch_directory
from bench.plan import FULL, PEERS, QUICK, SECTIONS, names
from bench.processes import ROOT
from bench.results import Results
from bench.run import Run
from bench.systems.face import System
from bench.systems.kafka_port import KafkaPort
from bench.systems.oncelog import Oncelog

MAX_ROUNDS = 20


def systems(peers: Sequence[str]) -> list[System]:
    """Variants of these peers. Loads the modules of these peers only."""
    found: list[System] = []
    if "kafka" in peers:
        from bench.systems.kafka import Kafka

        found += [Kafka(flush=False), Kafka(flush=True)]
    if "nats" in peers:
        from bench.systems.nats import Nats

        found += [Nats(sync=False), Nats(sync=True)]
    if "rabbitmq" in peers:
        from bench.systems.rabbitmq import RabbitMq

        found += [RabbitMq(streams=False), RabbitMq(streams=True)]
    return found


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures Oncelog, and peers beside it."
    )
    parser.add_argument("--quick", action="store_true", help="less of everything: 3 minutes")
    parser.add_argument(
        "--peers", type=lambda text: names(text, PEERS), default=[], metavar="LIST",
        help=f"also measure, in the same run: {','.join(PEERS)}",
    )  # fmt: skip
    parser.add_argument(
        "--only", type=lambda text: names(text, SECTIONS), default=list(SECTIONS),
        metavar="LIST", help=f"of the sections {','.join(SECTIONS)}",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N",
        help="Oncelog and its peers take turns so often, and medians count: what a machine "
        "gives may change within minutes",
    )  # fmt: skip
    parser.add_argument(
        "--no-oncelog", action="store_true",
        help="only the peers: what is in the results of Oncelog stays",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=ROOT / "data" / "bench",
        help="directory of results; what is there stays unless measured again",
    )  # fmt: skip
    parser.add_argument("--scratch", type=Path, help="directory for the clusters' data")
    options = parser.parse_args(arguments)
    if not 1 <= options.rounds <= MAX_ROUNDS:
        parser.error(f"--rounds: {options.rounds} must be 1..{MAX_ROUNDS}")
    return options


def measure(options: argparse.Namespace, results: Results, scratch: Path) -> None:
    scale = QUICK if options.quick else FULL
    round_s = scale.peer_s * len(systems(options.peers))
    total_s = scale.own_s + round_s + (options.rounds - 1) * (scale.peer_s + round_s)
    run = Run(results, scale, options.only, scratch, total_s)
    run.measure_limits("before")
    if not options.no_oncelog:
        if "client" in options.only:
            run.client_alone()
    for _ in range(options.rounds):
        own: list[System] = [] if options.no_oncelog else [Oncelog(), KafkaPort(), KafkaPort(1)]
        for system in [*own, *systems(options.peers)]:
            run.shared(system)
    if not options.no_oncelog:
        run.own()
        if "path" in options.only:
            run.path()
        if "pids" in options.only:
            run.pids()
    run.measure_limits("after")


def _ended(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> int:
    options = parse(sys.argv[1:])
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out / "results.jsonl")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended)  # so that no server outlives the benchmark
    scratch = scratch_directory(options.scratch)
    started = time.monotonic()
    try:
        measure(options, results, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text = report.text(results)
    (out / "table.txt").write_text(text + "\n")
    (out / "table.md").write_text(report.markdown(results))
    pictures = plots.draw(results, out)
    print(f"\n{text}\n")
    files = ["results.jsonl", "table.txt", "table.md", *(path.name for path in pictures)]
    print(f"{time.monotonic() - started:.0f} s. Results in {out}: {', '.join(files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
