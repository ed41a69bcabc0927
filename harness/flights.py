"""examples/flights on three nodes of its own, whose leaders are killed meanwhile.

scripts/flights calls this module. The example itself knows no more of the cluster than its
addresses.
"""

from __future__ import annotations

import argparse
import sys
import time

from examples.flights import data, job, run
from harness.arguments import number
from harness.demo import TOPIC, Killer, fresh
from harness.local_cluster import LocalCluster
from harness.node_process import ROOT, HarnessError
from oncelog import OncelogError

DEFAULT_KILLS = 5
DIRECTORY = ROOT / "data" / "flights"


class KilledLeaders(run.Faults):
    """Kills a leader at even distances in the stream, and starts it again."""

    def __init__(self, cluster: LocalCluster, records: int, kills: int) -> None:
        super().__init__()
        self._killer = Killer(cluster)
        self._due = [records * number // (kills + 1) for number in range(1, kills + 1)]

    def at(self, sent: int) -> None:
        self._note()
        if self._due and sent >= self._due[0]:
            self._due.pop(0)
            self._killer.kill_next()

    def wait(self) -> None:
        self._killer.wait()
        self._note()

    def _note(self) -> None:
        """When it was seen that a node is dead, milliseconds after it was."""
        for node in self._killer.killed[len(self.kills) :]:
            self.kills.append((time.time(), node))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/flights",
        description="A year of departures through Oncelog and Spark while leaders are killed, "
        "compared with pandas.",
    )
    run.add_options(parser, DIRECTORY)
    parser.add_argument(
        "--kills",
        type=number(int, 0, 1000),
        default=DEFAULT_KILLS,
        help=f"how often to kill a leader (default {DEFAULT_KILLS})",
    )
    parser.add_argument(
        "--no-idempotence",
        action="store_true",
        help="show what the same kills do to a plain producer's table",
    )
    options = parser.parse_args()
    try:
        return flights(options)
    except (HarnessError, OncelogError, data.DataError) as error:
        print(f"flights: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def flights(options: argparse.Namespace) -> int:
    nodes = options.dir / "cluster"
    fresh(nodes)
    job.session()  # the job's own; here, since the harness uses gRPC as well
    with LocalCluster(nodes, settings={}) as cluster:
        print(f"three nodes: {cluster.bootstrap}")
        outcome = run.run(
            cluster.bootstrap,
            options.dir,
            options.records,
            options.seconds,
            KilledLeaders(cluster, options.records, options.kills),
            idempotent=not options.no_idempotence,
        )
    run.report(outcome, options.dir)
    return 0 if outcome.good else 1


assert run.TOPIC == TOPIC, "what is killed are this topic's leaders"

if __name__ == "__main__":
    sys.exit(main())
