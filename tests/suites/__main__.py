"""scripts/kafka-suites: tests of Kafka's clients and tools against nodes' Kafka ports.

SUITES --run--> Cases --verdict, with the list of those that cannot pass--> exit code
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tests.suites import franz, java, kafka_python, librdkafka, sarama
from tests.suites.outcome import Case, verdict


class Suite(NamedTuple):
    """Tests of others. run: takes names and `quick`; cannot: name -> reason."""

    version: str
    run: Callable[..., Iterator[Case]]
    cannot: Mapping[str, str]


SUITES = {
    "librdkafka": Suite(librdkafka.VERSION, librdkafka.run, librdkafka.CANNOT),
    "franz-go": Suite(franz.VERSION, franz.run, franz.CANNOT),
    "kafka-python": Suite(kafka_python.VERSION, kafka_python.run, kafka_python.CANNOT),
    "sarama": Suite(sarama.VERSION, sarama.run, sarama.CANNOT),
    "java": Suite(java.VERSION, java.run, java.CANNOT),
}


def run(name: str, only: list[str], *, quick: bool) -> bool:
    """Run a suite and print its outcome; returns True if it passes."""
    suite = SUITES[name]
    print(f"===== {name} {suite.version}", flush=True)
    lines, passes = verdict(list(suite.run(only, quick=quick)), suite.cannot)
    print("\n".join(lines), flush=True)
    return passes


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/kafka-suites", description=__doc__)
    parser.add_argument("suite", choices=[*SUITES, "all"])
    parser.add_argument("--only", metavar="NAME,...", help="tests to run", default="")
    parser.add_argument("--quick", action="store_true", help="the tests of CI")
    args = parser.parse_args()
    only = [one for one in args.only.split(",") if one]
    names = list(SUITES) if args.suite == "all" else [args.suite]
    passed = [run(name, only, quick=args.quick) for name in names]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
