"""`python -m cluster`: one node, until SIGTERM, SIGINT or SIGHUP.

Exit codes: 0 stopped as asked, 1 failed while running or at start, 2 bad settings,
or a Python that leaves out assertions.
"""

from __future__ import annotations

import os
import sys

from cluster.startup import prepare


def main() -> int:
    prepare()
    from cluster.node.process import run  # after signals are handled

    return run(sys.argv[1:], os.environ)


if __name__ == "__main__":
    sys.exit(main())
