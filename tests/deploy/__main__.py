"""scripts/deploy-test: the Helm chart by itself, before a real kube-apiserver, and rolled.

charts (lint, refused values, golden files), admission (dry run under *restricted*), roll (real
nodes by the real controller of StatefulSets) --> exit code
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.deploy import admission, charts, roll, tools


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/deploy-test", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only what needs helm alone")
    parser.add_argument("--built", action="store_true", help="build nothing")
    parser.add_argument("--update", action="store_true", help="write the golden files anew")
    args = parser.parse_args()
    began = time.monotonic()
    if args.built and not tools.all_are_built():
        print("deploy-test: some programs are not built: scripts/deploy-test does, once")
        return tools.MISSING
    later = () if args.quick else itertools.chain(admission.faults(), roll.faults())
    found = list(itertools.chain(charts.faults(update=args.update), later))
    print("\n\n".join([*found, f"{len(found)} faults after {time.monotonic() - began:.1f} s"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
