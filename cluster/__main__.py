"""`python -m cluster`: one node, until SIGTERM, SIGINT or SIGHUP; with --health a look at one.

Exit codes: 0 stopped as asked, 1 failed while running or at start, 2 bad settings,
or a Python that leaves out assertions.
"""

from __future__ import annotations

import os
import sys

from cluster.startup import prepare


def main() -> int:
    prepare()
    argv = sys.argv[1:]
    if len(argv) == 2 and argv[0] == "--health":
        from cluster.health_check import check

        return check(argv[1], os.environ)
    from cluster.node.process import run  # after signals are handled

    return run(argv, os.environ)


if __name__ == "__main__":
    sys.exit(main())
