"""scripts/deploy-test: the Helm chart by itself, before a real kube-apiserver, and rolled.

charts (lint, refused values, golden files), admission (dry run under *restricted*), roll (real
nodes by the real controller of StatefulSets), all at once --> exit code
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.deploy import admission, charts, roll, tools
from tests.deploy.kubernetes import apiserver


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
    if args.quick:
        tools.tool("helm")
    else:
        tools.build_all()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        parts = [pool.submit(list, charts.faults(update=args.update))]
        if not args.quick:
            server = stack.enter_context(apiserver())
            parts += [pool.submit(list, part.faults(server)) for part in (admission, roll)]
        found = [fault for part in parts for fault in part.result()]
    print("\n\n".join([*found, f"{len(found)} faults after {time.monotonic() - began:.1f} s"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
